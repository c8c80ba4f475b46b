"""Bytes and saved seconds of growing prefixes: of the feature rows in placement order, and of adjacency lists.

Rows and lists are cut into blocks, so that graphs of any size take the same memory. Sums run front to back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.formats.adjacency_prefix import ListBytes
from tiering.formats.layout import ssd_stride
from tiering.layout.cost_model import SSD_READ_BYTES, AccessCosts
from tiering.layout.tiers import Capacities, RankedTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Resolution:
    """The number of blocks at most, and one per node type or relation, and of rows or columns read at a time."""

    blocks: int = 1 << 18
    chunk: int = 1 << 18

    def step(self, count: int) -> int:
        """Return the rows or columns of a block, for `count` of them over all types or relations."""
        return max(1, -(-count // self.blocks))


@dataclass(frozen=True)
class LowerTiers:
    """The tiers after the gpu tier. Their sizes are fixed, so they begin later if the gpu tier holds more rows.

    `peer_bytes` are those of all peers together, `cpu_bytes` those of host memory, or ``None`` for all that is left;
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
        """Bytes from the end of the gpu tier to that of the gpu, peer and cpu tier."""
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
        seconds = self.positions(np.diff(self.indptr[begin : end + 1]))
        seconds *= costs.neighbour_seconds
        seconds += costs.list_seconds
        seconds *= reads
        return seconds, reads


@dataclass(frozen=True)
class RowBenefit:
    """Prefixes of all feature rows in the order in which `plan_tiers` places them; arrays of shape (blocks + 1,).

    For each prefix its bytes, and the seconds per epoch that it saves on the GPU against host memory, and in host
    memory against SSDs.
    """

    bytes: Ints
    seconds: Floats
    ssd_seconds: Floats

    @classmethod
    def of(
        cls, tables: Sequence[RankedTable], costs: AccessCosts, lower: LowerTiers, resolution: Resolution
    ) -> RowBenefit:
        """Return the prefixes of the rows: pinned ones first, then by score per byte; ties by table, then by rank."""
        step = resolution.step(sum(table.rows for table in tables))
        parts: list[tuple[npt.NDArray[Any], ...]] = [(np.zeros(0, np.int64),) * 4]
        for table in tables:
            (sums,) = block_sums(table.rows, step, resolution, table.read_scores)
            seconds, ssd = costs.feature(table.row_bytes), lower.ssd_seconds(table.row_bytes, costs)
            sizes = np.diff(block_ends(table.rows, step), prepend=0) * table.row_bytes
            keys = table.scores[::step] / table.row_bytes
            keys[: -(-table.first // step)] = np.inf
            parts.append((keys, sizes, sums * seconds, sums * ssd))
        return cls(*map(_cumulate, _merge_by_key(parts)))

    def saved(self, nbytes: Ints, lower: LowerTiers, costs: AccessCosts) -> Floats:
        """Return the seconds saved by gpu tiers of each number of bytes, with the tiers that follow each."""
        gpu, peer, cpu = (np.searchsorted(self.bytes, nbytes + more, side="right") - 1 for more in lower.ends)
        return np.asarray(costs.saved_by_tiers(self.seconds[gpu], self.seconds[peer], self.ssd_seconds[cpu]))


@dataclass(frozen=True)
class ListBenefit:
    """Prefixes of the relations' adjacency lists, which grow by a block of one relation at a time.

    For each prefix its bytes, the seconds per epoch that it saves, and its reads per epoch: shape (blocks + 1,). For
    each block its relation, and the columns of the relation up to its end: shape (blocks,).
    """

    bytes: Ints
    seconds: Floats
    reads: Floats
    relation: Ints
    end: Ints

    @classmethod
    def of(cls, relations: Sequence[AdjacencyLists], costs: AccessCosts, resolution: Resolution) -> ListBenefit:
        """Take blocks greedily by seconds saved per byte, ties by relation.

        Only prefixes can be cached, and a later block of a relation may save more than an earlier one. So a block
        counts with the best run of blocks that it begins: `falling_rates`.
        """
        step = resolution.step(sum(lists.columns for lists in relations))
        parts: list[tuple[npt.NDArray[Any], ...]] = [(np.zeros(0, np.int64),) * 6]
        for index, lists in enumerate(relations):
            ends = block_ends(lists.columns, step)
            seconds, reads = block_sums(lists.columns, step, resolution, partial(lists.benefit, costs))
            sizes = np.diff(lists.size.prefix_bytes(ends, lists.indptr[ends]), prepend=0)
            rates = falling_rates(seconds, sizes) if len(relations) > 1 else np.zeros(ends.size)
            parts.append((rates, sizes, seconds, reads, np.full(ends.size, index), ends))
        sizes, seconds, reads, relation, ends = _merge_by_key(parts)
        return cls(_cumulate(sizes), _cumulate(seconds), _cumulate(reads), relation, ends)

    def columns(self, relation: int, point: int) -> int:
        """Return the columns of a relation among the first `point` blocks."""
        return int(self.end[:point][self.relation[:point] == relation].max(initial=0))


def prefix_sums(values: Any, ends: Sequence[int]) -> list[float]:
    """Return the sums of the first ``ends[i]`` values, front to back, chunk by chunk."""
    sums, total, begin, chunk = {}, 0.0, 0, Resolution().chunk
    for end in sorted(set(ends)):
        for first in range(begin, end, chunk):
            total = float(np.cumsum(np.concatenate([[total], values[first : min(end, first + chunk)]]))[-1])
        begin, sums[end] = end, total
    return [sums[end] for end in ends]


def falling_rates(values: Floats, sizes: Ints) -> Floats:
    """Return for each block (of a size above 0) the highest value per byte of a run of blocks that it begins.

    Neighbours whose rates would rise are pooled until none does (the upper concave hull); cost O(blocks).
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


def block_ends(count: int, step: int) -> Ints:
    """Return the ends of blocks of `step`, the last of which may be shorter."""
    return np.minimum(np.arange(step, count + step, step, dtype=np.int64), count)


def block_sums(count: int, step: int, resolution: Resolution, read: Callable[[int, int], tuple[Floats, ...]]) -> Floats:
    """Return the sums over blocks of `step` of the arrays that `read` returns for a range: shape (arrays, blocks)."""
    sums = []
    chunk = max(1, resolution.chunk // step) * step
    for begin in range(0, max(count, 1), chunk):
        columns = read(begin, min(count, begin + chunk))
        if step > 1:
            whole = [np.pad(values, (0, -values.size % step)).reshape(-1, step) for values in columns]
            columns = tuple(np.cumsum(values, axis=1)[:, -1].copy() for values in whole)
        sums.append(columns)
    return np.concatenate(sums, axis=1)


def _merge_by_key(parts: Sequence[tuple[npt.NDArray[Any], ...]]) -> list[npt.NDArray[Any]]:
    """Merge the blocks of several sequences by their first column, falling; ties by sequence, then as they come."""
    key, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-key, kind="stable")
    return [column[order] for column in columns]


def _cumulate(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sums of the first 0, 1, 2... values, front to back."""
    sums = np.zeros(values.size + 1, values.dtype)
    np.cumsum(values, out=sums[1:])
    return sums
