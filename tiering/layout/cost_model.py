"""Seconds that a GPU's memory saves: costs of accesses, assumed or from a file, and what growing prefixes save by them.

Prefixes are of the feature rows in placement order, and of adjacency lists. Rows and lists are cut into blocks, so that
graphs of any size take the same memory. Sums run front to back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError, MissingError
from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.ssd_rows import ssd_stride
from tiering.layout.tiers import Capacities, RankedTable
from tiering.text.options import accept_spelling

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BLOCKS = 1 << 18  # blocks at most, and one per node type or relation
EDGE_BLOCKS = 1 << 16  # blocks of lists of a relation: scores take some 15 MiB while they are made, then 1 MiB
CHUNK = 1 << 16  # rows or columns read at a time
BLOCK_BYTES = 108  # memory of a block of rows or columns while a split is planned
CHUNK_BYTES = 96  # memory of a row or column of a chunk while a split is planned
ASSUMED = "assumed"  # source of the default figures
WIDE_BYTES_PER_SECOND = 25e9
"""Speed of PCIe 4.0 x16 under wide reads of host memory by the GPU: 31.5 GB/s raw, without headers."""
SECTORS_PER_SECOND = WIDE_BYTES_PER_SECOND / 2 / 32
"""Scattered reads of a sector of 32 B reach half of the wide bandwidth: a header is as long as a sector."""
SAVED = 1 - 1 / 100  # fraction of the host's time that is saved: the GPU's own memory counts as 100 times as fast
SSD_READ_BYTES = 4096  # bytes of a read of an SSD; rows up to this size take one
_ASSUMED = {"peer_share": 0.9, "ssd_seconds": 1e-6}
"""Figures that a file of measured ones may omit: a peer's memory counts as ten times as fast as the host's (NVLink
against PCIe), and an SSD does a million random reads per second."""
_FORM = (
    '{"device": "...", "feature_seconds": {"base": x, "per_byte": y}, "list_seconds": a, "neighbour_seconds": b}, '
    "in seconds"
)


@dataclass(frozen=True)
class AccessCosts:
    """Seconds that an access to host memory takes longer than one to the GPU's, with all accesses of a batch in flight.

    Costs are per feature row and per byte of it, per adjacency list looked up, per neighbor id sampled, and per read of
    up to `SSD_READ_BYTES` from one SSD, in addition to host memory; a peer's memory saves `peer_share` of a row's. By
    default a list's begin and end, and each neighbor id, cost one scattered sector of 32 B, 2.53 ns. A feature row
    costs its bytes at 25 GB/s, 0.0396 ns each, and one sector, because rows begin and end inside sectors.
    """

    feature_base: float = SAVED / SECTORS_PER_SECOND
    feature_per_byte: float = SAVED / WIDE_BYTES_PER_SECOND
    list_seconds: float = SAVED / SECTORS_PER_SECOND
    neighbour_seconds: float = SAVED / SECTORS_PER_SECOND
    peer_share: float = _ASSUMED["peer_share"]
    ssd_seconds: float = _ASSUMED["ssd_seconds"]
    source: str = ASSUMED  # ``assumed``, or ``measured on`` and the device

    def feature(self, row_bytes: int) -> float:
        """Return the seconds that an access to a feature row of `row_bytes` bytes on the GPU saves."""
        return self.feature_base + self.feature_per_byte * row_bytes

    def saved_by_tiers(self, gpu: Any, shared: Any, before_ssd: Any) -> Any:
        """Return the seconds that tiers save; numbers or arrays.

        `gpu` and `shared` are the seconds that rows on the GPU, and on the GPU and its peers, save if all lie on the
        GPU; `before_ssd` those that rows of these tiers and of host memory save against SSDs.
        """
        return gpu + self.peer_share * (shared - gpu) + before_ssd

    def to_json(self) -> dict[str, Any]:
        """Return the figures in the form of the file, with ``source`` for ``device``."""
        feature = {"base": self.feature_base, "per_byte": self.feature_per_byte}
        others = ("list_seconds", "neighbour_seconds", "peer_share", "ssd_seconds")
        return {"source": self.source, "feature_seconds": feature, **{name: getattr(self, name) for name in others}}


def read_access_costs(path: str | os.PathLike[str]) -> AccessCosts:
    """Read measured figures from a JSON file: ``device``, and seconds from 0 to 1 as in `AccessCosts.to_json`.

    ``peer_share`` and ``ssd_seconds`` are optional.
    """
    file, where = Path(path), f"access costs: {path}"
    if not file.is_file():
        raise MissingError(f"{where}: no such file; omit --access-costs to use assumed costs")
    try:
        document = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON ({error}); expected {_FORM}") from None
    accept_spelling(document, "neighbor_seconds", "neighbour_seconds")
    _check_fields(document, ("device", "feature_seconds", "list_seconds", "neighbour_seconds"), _ASSUMED, where)
    feature, device = document["feature_seconds"], document["device"]
    _check_fields(feature, ("base", "per_byte"), {}, f"{where}: feature_seconds")
    if not isinstance(device, str) or not device.strip():
        raise InputError(f"{where}: device: expected the name of the device measured, found {device!r}")
    seconds = {**_ASSUMED, **document, **{f"feature_seconds.{name}": feature[name] for name in feature}}
    names = ("feature_seconds.base", "feature_seconds.per_byte", "list_seconds", "neighbour_seconds", *_ASSUMED)
    base, per_byte, lists, neighbors, peers, ssd = (_at_most_one(seconds[name], f"{where}: {name}") for name in names)
    if not any((base, per_byte, lists, neighbors)):
        raise InputError(f"{where}: expected seconds above 0 for features or lists, found 0 for all; measure again")
    return AccessCosts(base, per_byte, lists, neighbors, peers, ssd, f"measured on {device.strip()}")


def _check_fields(document: Any, required: Collection[str], optional: Collection[str], where: str) -> None:
    if not isinstance(document, dict):
        raise InputError(f"{where}: expected an object {_FORM}, found {document!r}")
    missing, unknown = [n for n in required if n not in document], sorted({*document} - {*required} - {*optional})
    if missing or unknown:
        wrong = f"no {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        raise InputError(f"{where}: expected {', '.join(required)}, found {wrong}; the expected form is {_FORM}")


def _at_most_one(value: Any, where: str) -> float:
    """Check a fraction, or seconds per access, which are far below 1."""
    what = "a fraction" if where.endswith("peer_share") else "seconds per access"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: expected {what}, a finite number of 0 or more, found {value!r}")
    if value > 1:
        hint = "" if what == "a fraction" else "; are these nanoseconds?"
        raise InputError(f"{where}: expected {what}, at most 1, found {value!r}{hint}")
    return float(value)


@dataclass(frozen=True)
class LowerTiers:
    """The tiers after the gpu tier. Their sizes are fixed, so they begin later if the gpu tier holds more rows.

    `peer_bytes` are the bytes of all peers together, `cpu_bytes` of host memory, or ``None`` for all that is left;
    `ssds` are read side by side.
    """

    peer_bytes: int = 0
    cpu_bytes: int | None = None
    ssds: int = 0

    @classmethod
    def of(cls, capacities: Capacities, total: int, ssds: int) -> LowerTiers:
        """Return the tiers of a layout with `total` bytes of features."""
        peer, cpu = capacities.peer, capacities.cpu
        peers = 0 if peer is None else min(total, peer.of(total) * capacities.num_peers)
        if not ssds or (cpu is not None and cpu.auto):
            return cls(peers)
        return cls(peers, 0 if cpu is None else cpu.of(total), ssds)

    @property
    def ends(self) -> tuple[int, int, int]:
        """Bytes from the end of the gpu tier to the ends of the gpu, peer and cpu tiers."""
        return 0, self.peer_bytes, self.peer_bytes + (self.cpu_bytes or 0)

    def ssd_seconds(self, row_bytes: int, costs: AccessCosts) -> float:
        """Return the seconds that an access to a row on SSD takes longer than in host memory; 0 without SSDs."""
        if self.cpu_bytes is None:
            return 0.0
        return -(-ssd_stride(row_bytes) // SSD_READ_BYTES) * costs.ssd_seconds / self.ssds


@dataclass(frozen=True)
class AdjacencyLists:
    """Adjacency lists of one relation (by its key) to place; columns are ranks of the destination type."""

    relation: str
    indptr: Ints
    size: ListBytes  # their size in the memory of a GPU
    reads: Callable[[int, int], Floats]  # expected reads per epoch of the lists of columns begin to end
    positions: Callable[[Ints], Floats]  # positions read in lists of given lengths: `list_read_places`

    @property
    def columns(self) -> int:
        """Number of lists."""
        return int(self.indptr.size) - 1

    @property
    def bytes(self) -> int:
        """Bytes of all lists."""
        return int(self.size.prefix_bytes(self.columns, int(self.indptr[-1]))) if self.columns else 0

    def benefit(self, costs: AccessCosts, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return the seconds that each list of a range of columns saves on the GPU, and its reads."""
        reads = self.reads(begin, end)
        positions = self.positions(np.diff(self.indptr[begin : end + 1]))
        return (positions * costs.neighbour_seconds + costs.list_seconds) * reads, reads


@dataclass(frozen=True)
class Prefixes:
    """Prefixes that grow by a block of one table, of rows or of lists, at a time.

    For each prefix its bytes, shape (blocks + 1,), and two sums, shape (2, blocks + 1). For each block the number of
    its table, and the rows or lists of the table up to its end.
    """

    bytes: Ints
    sums: Floats
    table: npt.NDArray[np.int32]
    end: Ints

    @classmethod
    def merge(cls, tables: list[tuple[Floats, Ints, Floats, Ints]]) -> Prefixes:
        """Merge the blocks of tables (keys, bytes, summands, ends) by falling key; ties by table, then as they come.

        Takes the tables out of the list, so that their blocks are not held twice.
        """
        none = np.zeros(0, np.int64)
        number = np.repeat(np.arange(len(tables), dtype=np.int32), [table[0].size for table in tables])
        columns = [list(column) for column in zip((none, none, np.zeros((2, 0)), none), *tables, strict=True)]
        tables.clear()
        keys, sizes, summands, ends = (np.concatenate(columns.pop(0), axis=-1) for _ in range(4))
        order = np.argsort(np.negative(keys, out=keys), kind="stable").astype(np.int32)
        del keys
        sums = _cumulate(summands[:, order])
        del summands
        return cls(_cumulate(sizes[order]), sums, number[order], ends[order])

    def table_end(self, table: int, point: int) -> int:
        """Return the rows or lists of a table among the first `point` blocks."""
        return int(self.end[:point][self.table[:point] == table].max(initial=0))


def row_prefixes(tables: Sequence[RankedTable], costs: AccessCosts, lower: LowerTiers) -> Prefixes:
    """Return prefixes of feature rows in the order of `plan_tiers`: pinned ones first, then by score per byte.

    Their sums: seconds per epoch that they save on the GPU against host memory, and in host memory against SSDs.
    """
    step, parts = max(1, -(-sum(table.rows for table in tables) // BLOCKS)), []
    for table in tables:
        ends, sums = sum_blocks(table.rows, step, partial(read_range, table.scores))
        seconds = np.array([costs.feature(table.row_bytes), lower.ssd_seconds(table.row_bytes, costs)])
        keys = table.scores[::step] / table.row_bytes
        keys[: -(-table.first // step)] = np.inf
        parts.append((keys, np.diff(ends, prepend=0) * table.row_bytes, sums * seconds[:, None], ends))
    return Prefixes.merge(parts)


def list_prefixes(relations: Sequence[AdjacencyLists], costs: AccessCosts) -> Prefixes:
    """Return prefixes of adjacency lists, blocks taken greedily by seconds saved per byte, ties by relation.

    Their sums: seconds saved per epoch, and reads. Only prefixes can be cached, and a later block of a relation may
    save more than an earlier one. So a block counts with the best run of blocks that it begins: `falling_rates`.
    """
    step, parts = max(1, -(-sum(lists.columns for lists in relations) // BLOCKS)), []
    for lists in relations:
        ends, sums = sum_blocks(lists.columns, step, partial(lists.benefit, costs))
        sizes = np.diff(lists.size.prefix_bytes(ends, lists.indptr[ends]), prepend=0)
        parts.append((falling_rates(sums[0], sizes) if len(relations) > 1 else np.zeros(ends.size), sizes, sums, ends))
    return Prefixes.merge(parts)


def split_memory(rows: int, columns: int) -> int:
    """Return the peak memory of planning a split, in bytes, for numbers of feature rows and lists over all types."""
    blocks = min(rows, BLOCKS) + min(columns, BLOCKS)
    return BLOCK_BYTES * blocks + CHUNK_BYTES * min(max(rows, columns), CHUNK) + (1 << 20)


@dataclass(frozen=True)
class EdgeScores:
    """Expected reads per epoch of each row of edge features, by position: blocks of lists end at `ends`.

    Rows of a relation have the order of its ``indices``, list after list. A tier is a range of rows, so a row has the
    score of the best run of lists that its own begins (the upper concave hull): `rates` never rise.
    """

    ends: Ints
    rates: Floats

    @classmethod
    def of(
        cls, indptr: Ints, reads: Callable[[int, int], Floats], entries: Callable[[Ints], Floats],
        blocks: int = EDGE_BLOCKS,
    ) -> EdgeScores:  # fmt: skip
        """Score rows by the reads of the lists of columns begin to end, which sample ``entries(d)`` of d neighbors."""
        count = indptr.shape[0] - 1

        def drawn(begin: int, end: int) -> Floats:
            return reads(begin, end) * entries(np.diff(indptr[begin : end + 1]))

        columns, (sums,) = sum_blocks(count, max(1, -(-count // blocks)), drawn)
        ends = np.asarray(indptr[columns])
        sizes = np.diff(ends, prepend=0)
        some = sizes > 0
        return cls(ends[some], falling_rates(sums[some], sizes[some]))

    def __getitem__(self, rows: int | slice) -> Any:
        """Return the reads of a row, or of a slice of rows."""
        count = int(self.ends[-1]) if self.ends.size else 0
        at = np.arange(*rows.indices(count)) if isinstance(rows, slice) else rows
        return self.rates[np.searchsorted(self.ends, at, side="right")]


def prefix_sums(values: Any, ends: Sequence[int]) -> list[float]:
    """Return the sums of the first ``ends[i]`` values, front to back, chunk by chunk."""
    sums, total, begin = {}, 0.0, 0
    for end in sorted(set(ends)):
        for first in range(begin, end, CHUNK):
            total = float(np.cumsum(np.concatenate([[total], values[first : min(end, first + CHUNK)]]))[-1])
        begin, sums[end] = end, total
    return [sums[end] for end in ends]


def falling_rates(values: Floats, sizes: Ints) -> Floats:
    """Return for each block (of a size above 0) the highest value per byte of a run of blocks that it begins.

    Neighbors whose rates would rise are pooled until none does (the upper concave hull); cost O(blocks).
    """
    pooled: list[tuple[float, int, int]] = []
    for value, size in zip(values.tolist(), sizes.tolist(), strict=True):
        run = (value, size, 1)
        while pooled and run[0] * pooled[-1][1] >= pooled[-1][0] * run[1]:
            before = pooled.pop()
            run = (before[0] + run[0], before[1] + run[1], before[2] + run[2])
        pooled.append(run)
    rates = np.array([value / size for value, size, _ in pooled])
    # Rounding must not swap two runs of one relation: its columns are taken in order.
    return np.repeat(np.minimum.accumulate(rates), [count for *_, count in pooled])


def sum_blocks(count: int, step: int, read: Callable[[int, int], Floats | tuple[Floats, ...]]) -> tuple[Ints, Floats]:
    """Return ends of blocks of `step`, the last of which may be shorter, and sums over them: shape (arrays, blocks).

    `read` returns the arrays for a range.
    """
    ends = np.minimum(np.arange(step, count + step, step, dtype=np.int64), count)
    sums, chunk = [], max(1, CHUNK // step) * step
    for begin in range(0, max(count, 1), chunk):
        columns = np.atleast_2d(read(begin, min(count, begin + chunk)))
        if step > 1:
            padded = np.pad(columns, ((0, 0), (0, -columns.shape[1] % step)))
            columns = np.cumsum(padded.reshape(len(columns), -1, step), axis=2)[..., -1].copy()
        sums.append(columns)
    return ends, np.concatenate(sums, axis=1)[:, : ends.size]


def read_range(values: Any, begin: int, end: int) -> Floats:
    """Return a range of values, in memory or computed."""
    return values[begin:end]  # type: ignore[no-any-return]


def _cumulate(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sums of the first 0, 1, 2... values of the last axis, front to back."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), values.dtype)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
