"""What a growing prefix holds and is worth: of the feature rows' common line, and of adjacency lists.

Both are cut into blocks, `POINTS` at the most, so that graphs of any size take the same memory. Sums run front to back:
the same figures on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.formats.adjacency_prefix import ListBytes
from tiering.placement.access_times import AccessTimes
from tiering.placement.beyond import Beyond
from tiering.placement.tiers import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

POINTS = 1 << 18
"""Blocks at the most, and one per node type or relation; with fewer rows (columns) a block is one row (column)."""
CHUNK = 1 << 18
"""Rows or columns read at a time."""


@dataclass(frozen=True)
class Lists:
    """Adjacency lists of one relation that are to be placed; columns are ranks of the destination type."""

    relation: str
    """Its key, ``src:name:dst``."""
    indptr: npt.NDArray[np.int64]
    """int64, shape (columns + 1,)."""
    size: ListBytes
    """What they take in the memory of a GPU."""
    reads: Callable[[int, int], Floats]
    """Expected reads per epoch of the lists of columns begin to end: float64, shape (end - begin,)."""
    places: Callable[[Ints], Floats]
    """Places that a read looks at in lists of given lengths (`list_read_places`): int64 (n,) to float64 (n,)."""

    @property
    def columns(self) -> int:
        """Number of lists."""
        return int(self.indptr.size) - 1

    @property
    def bytes(self) -> int:
        """Bytes of all lists."""
        return int(self.size.taken(self.columns, int(self.indptr[-1]))) if self.columns else 0


@dataclass(frozen=True)
class FeatureLine:
    """Prefixes of the common line of feature rows, the line along which `plan_tiers` fills the tiers."""

    bytes: Ints
    """int64, shape (blocks + 1,), from 0 on: what each prefix takes."""
    seconds: Floats
    """float64, same shape: seconds per epoch that it saves on the GPU beside host memory."""
    ssd_seconds: Floats
    """float64, same shape: seconds per epoch that it saves in host memory beside SSDs."""

    def saved(self, nbytes: Ints, beyond: Beyond, times: AccessTimes) -> Floats:
        """Seconds saved by gpu tiers of each number of bytes, whole blocks, with the tiers that follow each."""
        gpu, peer, cpu = (np.searchsorted(self.bytes, nbytes + more, side="right") - 1 for more in beyond.ends)
        return np.asarray(times.saved_by_tiers(self.seconds[gpu], self.seconds[peer], self.ssd_seconds[cpu]))


@dataclass(frozen=True)
class ListPath:
    """Prefixes of the relations' adjacency lists, growing by a block of one relation at a time."""

    bytes: Ints
    """int64, shape (blocks + 1,), from 0 on: what all lists so far take."""
    seconds: Floats
    """float64, same shape: seconds per epoch that they save."""
    reads: Floats
    """float64, same shape: their reads per epoch."""
    relation: Ints
    """int64, shape (blocks,): whose block is added."""
    end: Ints
    """int64, shape (blocks,): columns of that relation from then on."""

    def columns(self, point: int, relations: int) -> list[int]:
        """Columns of each relation at a point of the path."""
        found = [0] * relations
        for index in range(relations):
            own = np.flatnonzero(self.relation[:point] == index)
            found[index] = int(self.end[own[-1]]) if own.size else 0
        return found


def feature_line(tables: Sequence[Table], times: AccessTimes, beyond: Beyond) -> FeatureLine:
    """The common line of all rows: by score per byte, ties by table, then by rank."""
    step = _step(sum(table.rows for table in tables))
    keys, sizes = [np.zeros(0)], [np.zeros(0, np.int64)]
    seconds, ssd_seconds = [np.zeros(0)], [np.zeros(0)]
    for table in tables:
        keys.append(table.scores[::step] / table.row_bytes)
        sizes.append(np.diff(_ends(table.rows, step), prepend=0) * table.row_bytes)
        (sums,) = _block_sums(table.rows, step, 1, _accesses(table))
        seconds.append(sums * times.feature(table.row_bytes))
        ssd_seconds.append(sums * beyond.ssd_seconds(table.row_bytes, times))
    line = np.argsort(-np.concatenate(keys), kind="stable")
    bytes_, *saved = (_up_to(np.concatenate(each)[line]) for each in (sizes, seconds, ssd_seconds))
    return FeatureLine(bytes_, *saved)


def list_path(lists: Sequence[Lists], times: AccessTimes) -> ListPath:
    """The path along which adjacency lists are taken: relations compete by seconds saved per byte.

    One relation: its columns in order. Several: each is cut at the corners of the upper concave hull of its seconds
    saved over bytes, and the pieces follow each other by falling slope, ties by relation. Within a piece the path goes
    block by block.
    """
    step = _step(sum(each.columns for each in lists))
    sizes, seconds, reads = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)]
    relation, end, slopes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for index, each in enumerate(lists):
        ends = _ends(each.columns, step)
        sizes.append(np.diff(each.size.taken(ends, each.indptr[ends]), prepend=0))
        saved, read = _block_sums(each.columns, step, 2, _benefit(each, times))
        seconds.append(saved)
        reads.append(read)
        relation.append(np.full(ends.size, index))
        end.append(ends)
        slopes.append(_hull_slopes(saved, sizes[-1]) if len(lists) > 1 else np.zeros(ends.size))
    path = np.argsort(-np.concatenate(slopes), kind="stable")
    return ListPath(
        _up_to(np.concatenate(sizes)[path]),
        _up_to(np.concatenate(seconds)[path]),
        _up_to(np.concatenate(reads)[path]),
        np.concatenate(relation)[path],
        np.concatenate(end)[path],
    )


def _accesses(table: Table) -> Callable[[int, int], tuple[Floats]]:
    """Accesses to a range of rows."""
    return lambda begin, end: (table.scores[begin:end],)


def _benefit(lists: Lists, times: AccessTimes) -> Callable[[int, int], tuple[Floats, Floats]]:
    """Seconds saved by each list of a range of columns, and its reads."""

    def of(begin: int, end: int) -> tuple[Floats, Floats]:
        reads = lists.reads(begin, end)
        each = lists.places(np.diff(lists.indptr[begin : end + 1]))
        each *= times.neighbour_seconds
        each += times.list_seconds
        each *= reads
        return each, reads

    return of


def _hull_slopes(values: Floats, sizes: Ints) -> Floats:
    """For each block the slope of its piece of the upper concave hull of the cumulative values: not increasing.

    Neighbours whose slopes would rise are pooled until none does; cost O(blocks).
    """
    pooled: list[tuple[float, int, int]] = []
    for value, size in zip(values.tolist(), sizes.tolist(), strict=True):
        piece = (value, size, 1)
        while pooled and piece[0] * pooled[-1][1] >= pooled[-1][0] * piece[1]:
            before = pooled.pop()
            piece = (before[0] + piece[0], before[1] + piece[1], before[2] + piece[2])
        pooled.append(piece)
    slopes = np.array([value / size for value, size, _ in pooled])
    # Rounding must not turn two pieces of one relation round: its columns are taken in order.
    return np.repeat(np.minimum.accumulate(slopes), [count for *_, count in pooled])


def prefix_sums(values: npt.NDArray[Any], ends: Sequence[int]) -> list[float]:
    """Sums of the first ``ends[i]`` values, `ends` ascending, front to back."""
    found, total, begin = [], 0.0, 0
    for end in ends:
        for first in range(begin, end, CHUNK):
            total = float(np.cumsum(np.concatenate([[total], values[first : min(end, first + CHUNK)]]))[-1])
        begin = end
        found.append(total)
    return found


def _step(count: int) -> int:
    return max(1, -(-count // POINTS))


def _ends(count: int, step: int) -> Ints:
    """Where blocks of `step` end."""
    return np.minimum(np.arange(step, count + step, step, dtype=np.int64), count)


def _up_to(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sums of the first 0, 1, 2... values; from front to back, whatever the machine."""
    found = np.zeros(values.size + 1, values.dtype)
    np.cumsum(values, out=found[1:])
    return found


def _block_sums(
    count: int, step: int, arrays: int, read: Callable[[int, int], tuple[Floats, ...]]
) -> tuple[Floats, ...]:
    """Sums over blocks of `step` of each of the arrays that `read` returns for a range."""
    blocks = -(-count // step)
    found = tuple(np.zeros(blocks) for _ in range(arrays))
    for first, last, begin, end in _chunks(count, step):
        for sums, values in zip(found, read(begin, end), strict=True):
            if step > 1:
                padded = np.zeros((last - first) * step)
                padded[: end - begin] = values
                np.cumsum(padded.reshape(-1, step), axis=1, out=padded.reshape(-1, step))
                sums[first:last] = padded[step - 1 :: step]
            else:
                sums[first:last] = values
    return found


def _chunks(count: int, step: int) -> Iterator[tuple[int, int, int, int]]:
    """First and last block, first and last item of pieces of whole blocks."""
    per, blocks = max(1, CHUNK // step), -(-count // step)
    for first in range(0, blocks, per):
        last = min(blocks, first + per)
        yield first, last, first * step, min(count, last * step)
