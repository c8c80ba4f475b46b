"""The order of an epoch: which training nodes make which batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError, quoted
from tiering.text.progress import progress

IdArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch: ``plan[b]`` gives the seeds of batch b per node type."""

    epoch: int  # number of the epoch
    train: dict[str, IdArray]  # per node type: the seeds as they were given
    places: dict[str, IdArray]  # per node type: places in ``train[t]`` in the order of the epoch
    offsets: dict[str, IdArray]
    """Per node type, shape (batches + 1,): batch b has ``places[t][offsets[t][b]:offsets[t][b + 1]]``."""
    seed_time: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # per node type: times along ``train[t]``

    @cached_property
    def ids(self) -> dict[str, IdArray]:
        """Per node type: all seeds in the order of the epoch."""
        return {t: self.train[t][places] for t, places in self.places.items()}

    @property
    def times(self) -> dict[str, npt.NDArray[Any]]:
        """Per node type with times of its seeds: these in the order of the epoch."""
        return {t: times[self.places[t]] for t, times in self.seed_time.items()}

    def seeds_of(self, batch: int) -> tuple[dict[str, IdArray], dict[str, npt.NDArray[Any]] | None]:
        """Return the seeds of a batch and their times, per node type; ``None`` where none were given."""
        places = self.places_of(batch)
        return self[batch], {t: times[places[t]] for t, times in self.seed_time.items()} or None

    def __len__(self) -> int:
        return min(int(o.size) - 1 for o in self.offsets.values())

    def __getitem__(self, batch: int) -> dict[str, IdArray]:
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of {len(self)}")
        return {t: self.train[t][places] for t, places in self.places_of(batch).items()}

    def places_of(self, batch: int) -> dict[str, IdArray]:
        """Return the places in ``train[t]`` of the seeds of a batch, per node type."""
        return {t: all_[self.offsets[t][batch] : self.offsets[t][batch + 1]] for t, all_ in self.places.items()}


def epoch_order(n: int, seed: int, epoch: int) -> IdArray:
    """Return the permutation of ``0 .. n - 1`` in which an epoch visits training nodes, the same on all machines."""
    return native.epoch_order(n, key_word(seed, "seed"), key_word(epoch, "epoch"))


def batches(
    train: Mapping[str, npt.ArrayLike],
    batch_size: int,
    epoch: int,
    *,
    seed: int = 0,
    drop_last: bool = False,
    shuffle: bool = True,
    seed_time: Mapping[str, npt.NDArray[Any]] | None = None,
    world_size: int = 1,
) -> EpochPlan:
    """Cut the training nodes of one epoch into batches.

    With one node type, batch b is ``train[epoch_order(n, seed, epoch)][b * batch_size : (b + 1) * batch_size]``;
    several types are laid end to end and shuffled together. The order of `train` matters; duplicates are kept.
    Without `shuffle` the order is the one given (validation, inference). `seed_time`: times along `train`, which follow
    its order. `drop_last`, `world_size` and the end of the epoch: `cut_order`. `InputError` if `train` is empty or not
    whole numbers, or the batch size is not positive.
    """
    lists = {t: id_array(ids, f"training nodes of type {t!r}") for t, ids in train.items()}
    total = sum(ids.size for ids in lists.values())
    if total == 0:
        raise InputError("training nodes: expected at least 1, found 0; give a split or a list of node ids")
    order = epoch_order(total, seed, epoch) if shuffle else np.arange(total)
    order, ends = cut_order(order, "training nodes", batch_size, drop_last, world_size)
    for t, times in (seed_time or {}).items():
        if len(times) != lists[t].size:
            raise InputError(
                f"seed_time of type {t!r}: expected one for each of {lists[t].size} seeds, found {len(times)}"
            )
    plan = EpochPlan(epoch, lists, {}, {}, dict(seed_time or {}))
    start = 0
    for node_type, ids in lists.items():
        mine = np.flatnonzero((order >= start) & (order < start + ids.size))
        plan.places[node_type] = order[mine] - start
        plan.offsets[node_type] = np.searchsorted(mine, ends).astype(np.int64)
        start += ids.size
    return plan


def cut_order(order: IdArray, what: str, batch_size: int, drop_last: bool, world_size: int) -> tuple[IdArray, IdArray]:
    """Return the seeds of an epoch (`order`, some perhaps repeated), and where batches begin, shape (batches + 1,).

    A round is one batch for each of `world_size` processes. The seeds of a last, incomplete round are divided evenly:
    sizes differ by at most 1. If fewer seeds than processes are left, the first seeds of the epoch follow once more.
    `drop_last` skips an incomplete round; `InputError`, which calls the seeds `what`, if there is no other.
    """
    batch_size = positive_size(batch_size)
    world_size = whole_number(world_size, 1, 2**31, "world_size", ", 1 or more")
    rounds, rest = divmod(order.size, batch_size * world_size)
    ends = np.arange(rounds * world_size + 1) * batch_size
    if rest and not drop_last:
        shares = -(-max(rest, world_size) * np.arange(1, world_size + 1) // world_size)
        ends = np.append(ends, ends[-1] + shares)
        if rest < world_size:
            order = np.append(order, np.resize(order, world_size - rest))
    if ends.size == 1:
        size = f"{batch_size} for each of {world_size} processes" if world_size > 1 else batch_size
        raise InputError(f"drop_last: {order.size} {what} do not fill a batch of {size}; use a smaller batch size")
    return order, ends


def runs_of_batches(
    train: Mapping[str, npt.ArrayLike],
    batch_size: int,
    seed: int,
    epochs: range,
    threads: int,
    doing: str,
    seed_time: Mapping[str, npt.NDArray[Any]] | None = None,
    at_least: int = 8,
) -> Iterator[tuple[EpochPlan, int, int]]:
    """Yield batches ``[first, last)`` of epochs, `at_least` so many for every thread; a progress bar says `doing`."""
    per_epoch = -(-sum(np.asarray(ids).size for ids in train.values()) // batch_size)
    step = max(at_least * threads, per_epoch // 50)
    with progress(per_epoch * len(epochs), doing, "batch") as bar:
        for epoch in epochs:
            plan = batches(train, batch_size, epoch, seed=seed, seed_time=seed_time)
            for first in range(0, len(plan), step):
                last = min(first + step, len(plan))
                yield plan, first, last
                bar.update(last - first)


def whole_number(value: Any, low: int, end: int, what: str, expected: str) -> int:
    """Return a whole number of at least `low` and below `end`; `InputError` names it `what`."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number < end:
        raise InputError(f"{what}: expected a whole number{expected}, found {quoted(value)}")
    return number


def key_word(value: int, what: str) -> int:
    """Return `value` as an unsigned word of the key; `InputError` names it `what`."""
    return whole_number(value, 0, 2**64, what, " from 0 to 2^64 - 1")


def positive_size(batch_size: int) -> int:
    """Return `batch_size` as an int; `InputError` unless it is at least 1."""
    return whole_number(batch_size, 1, 2**63, "batch size", ", 1 or more")


def id_array(ids: npt.ArrayLike, what: str, count: int | None = None, meaning: str = "ids") -> IdArray:
    """Return ids, below `count` if that is known, as a contiguous int64 array; `InputError` names them `what`."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        found = f"{array.dtype} of shape {array.shape}"
        raise InputError(f"{what}: expected {meaning}, whole numbers of one dimension, found {found}")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if count is not None and array.size and not 0 <= array.min() <= array.max() < count:
        at = int(np.flatnonzero((array < 0) | (array >= count))[0])
        raise InputError(f"{what}: entry {at} is {array[at]}; expected {meaning}, 0 .. {count - 1}")
    return array
