"""The order in which a score puts feature rows into caches and tiers, and the buckets that capacities cut it into.

Rows of all node types are numbered end to end: first row of the type + node. All figures of a score are sums over
buckets of its order: caches of some sizes, tiers, points of a curve. So the order is cut once at all these capacities,
and each row remembers only its bucket, in one byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.graph_checks import take_by_rank
from tiering.formats.layout import TIERS
from tiering.formats.scores import Scores
from tiering.layout.tiers import Capacities, RankedTable, plan_tiers

FloatArray: TypeAlias = "npt.NDArray[np.float64]"
IntArray: TypeAlias = "npt.NDArray[np.int64]"
Score: TypeAlias = "Scores | Mapping[str, npt.ArrayLike]"
"""A scores artifact, or one vector per node type."""
RowBytes: TypeAlias = int | Mapping[str, int] | None
"""Bytes of a row of the types without features: see `competing_rows`."""
Ranges: TypeAlias = "dict[str, dict[str, tuple[int, int]]]"
"""Node type and tier -> half-open range of ranks, as `tiering.layout.plan_tiers` returns them."""

FEATURES, GIVEN, ASSUMED = "features", "given", "assumed"
"""Source of a row size: the graph's feature table, the caller, none (a row counts as 1 byte)."""
CHUNK = 1 << 20
"""Rows processed at a time."""


@dataclass(frozen=True)
class Rows:
    """Feature rows of all node types that compete for the tiers."""

    types: tuple[str, ...]
    """Node types in the graph's order."""
    counts: tuple[int, ...]
    row_bytes: tuple[int, ...]
    """Bytes of a row of each type, at least 1."""
    origins: tuple[str, ...]
    """For each type `FEATURES`, `GIVEN` or `ASSUMED`."""

    @cached_property
    def starts(self) -> IntArray:
        """First row of each type, and the number of rows: int64, shape (types + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)

    @property
    def size(self) -> int:
        """Rows of all types."""
        return int(self.starts[-1])

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return sum(count * size for count, size in zip(self.counts, self.row_bytes, strict=True))

    @property
    def one_size(self) -> bool:
        """Whether all rows have the same size."""
        return len(set(self.row_bytes)) <= 1

    def slice_type(self, index: int) -> slice:
        """Return the rows of the type number `index`."""
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def join(self, per_type: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return one array over all rows from one per type; other types are left out."""
        arrays = [per_type[t] for t in self.types]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def sort(self, values: npt.NDArray[Any], threads: int) -> npt.NDArray[Any]:
        """Return the rows by falling value per byte, ties by type and node: int32 or int64, shape (rows,)."""
        if not self.one_size:
            values = values.astype(np.float64)
            for index, size in enumerate(self.row_bytes):
                values[self.slice_type(index)] /= size
        return native.sort_by_score(np.ascontiguousarray(values, dtype=np.float64), threads)

    def split(self, order: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return the rows of each type in an order of all rows."""
        slices = [self.slice_type(index) for index in range(len(self.types))]
        return [order] if len(slices) == 1 else [order[(order >= s.start) & (order < s.stop)] for s in slices]

    def count_fitting(self, order: npt.NDArray[Any], capacities: IntArray) -> IntArray:
        """Return how many rows from the front of `order` fit into each capacity (bytes).

        A prefix ends before the first row that does not fit.
        """
        if self.one_size:
            return np.minimum(capacities // max(self.row_bytes, default=1), self.size)
        sizes, fitting, before = np.array(self.row_bytes, np.int64), np.zeros(capacities.shape, np.int64), 0
        for begin in range(0, order.size, CHUNK):
            kinds = np.searchsorted(self.starts, order[begin : begin + CHUNK], side="right") - 1
            used = np.cumsum(sizes[kinds]) + before
            fitting += np.searchsorted(used, capacities, side="right")
            before = int(used[-1])
        return fitting

    def plan_tiers(self, values: Sequence[npt.NDArray[Any]], tiers: Capacities) -> Ranges:
        """Return the tiers of each type, as `tiering layout` cuts them, for values per type that fall by rank."""
        columns = zip(self.types, self.counts, self.row_bytes, values, strict=True)
        try:
            return plan_tiers([RankedTable(*column) for column in columns], tiers, strict=False)
        except InputError as error:
            if ASSUMED not in self.origins:
                raise
            raise InputError(
                f"{error} (no features: every row counts as 1 B; say what it has with --row-bytes)"
            ) from None


def competing_rows(graph: Graph, row_bytes: RowBytes = None) -> Rows:
    """Return the rows that compete for the tiers, with their sizes.

    `row_bytes` are bytes of a row of the types that have no features (a learned embedding, say): one number, or a
    mapping from node type to number, which may also overrule a feature table's size. Types with features and types with
    a given size compete; where there are none of either, all types do and every row counts as 1 byte.
    """
    given = _check_row_bytes(graph, row_bytes)
    chosen: list[tuple[str, int, int, str]] = []
    for node_type in graph.node_types:
        count, table = graph.num_nodes(node_type), graph.feature_table(node_type)
        if node_type in given and (table is None or isinstance(row_bytes, Mapping)):
            chosen.append((node_type, count, given[node_type], GIVEN))
        elif table is not None:
            chosen.append((node_type, count, max(1, table.row_bytes), FEATURES))
    chosen = chosen or [(t, graph.num_nodes(t), 1, ASSUMED) for t in graph.node_types]
    types, counts, sizes, origins = zip(*chosen, strict=True)
    return Rows(types, counts, sizes, origins)


def _check_row_bytes(graph: Graph, row_bytes: RowBytes) -> dict[str, int]:
    if row_bytes is None:
        return {}
    sizes = dict(row_bytes) if isinstance(row_bytes, Mapping) else dict.fromkeys(graph.node_types, row_bytes)
    for node_type, size in sizes.items():
        if node_type not in graph.node_types:
            raise InputError(f"row bytes: no node type {node_type!r}; types: {', '.join(graph.node_types)}")
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size < 2**40:
            raise InputError(f"row bytes of {node_type!r}: expected a whole number of bytes from 1, found {size!r}")
    return {node_type: int(size) for node_type, size in sizes.items()}


def join_scores(graph: Graph, rows: Rows, name: str, score: Score) -> FloatArray:
    """Return one score over all competing rows, in the graph's own ids; a type it does not know counts as 0.

    Refuses a vector of the wrong length, and values that are negative or not finite.
    """
    vectors = []
    known = score.node_types if isinstance(score, Scores) else list(score)
    for node_type, count in zip(rows.types, rows.counts, strict=True):
        if node_type not in known:
            vectors.append(np.zeros(count))
            continue
        vector = score.values(node_type) if isinstance(score, Scores) else score[node_type]
        values = np.asarray(vector, dtype=np.float64)
        where = f"score {name!r}, node type {node_type!r}"
        if values.shape != (count,):
            raise InputError(
                f"{where}: expected shape ({count},), one value per node of {graph.path}, found {values.shape}"
            )
        for begin in range(0, count, CHUNK):
            chunk = values[begin : begin + CHUNK]
            bad = np.flatnonzero(~(np.isfinite(chunk) & (chunk >= 0)))
            if bad.size:
                node = begin + int(bad[0])
                raise InputError(f"{where}: expected finite values of 0 or more, found {values[node]} at node {node}")
        vectors.append(values if graph.order is None else take_by_rank(values, graph, node_type))
    return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)


@dataclass(frozen=True)
class CacheOrder:
    """The order of one score, cut into buckets."""

    edges: IntArray
    """Rows from the front to each cut: ascending, from 0 to the number of rows."""
    buckets: npt.NDArray[np.uint8]
    """Bucket of each row: b where ``edges[b] <= position of the row < edges[b + 1]``."""
    cuts: IntArray
    """Number of the edge at which each capacity ends."""
    ranges: Ranges | None
    """Tiers of each type; ``None`` without tiers."""
    tier_cuts: IntArray
    """Number of the edge at which each of `TIERS` ends, 0 in front; empty without tiers."""
    positions: list[npt.NDArray[Any]]
    """Per type, int32 or int64, shape (nodes,): position in the ssd tier, -1 for other rows; empty without one."""

    def count(self, rows: Rows, weights: IntArray | None = None) -> IntArray:
        """Return the rows up to each edge, or the sum of their `weights`: int64, shape (types, edges)."""
        counts = np.zeros((len(rows.types), self.edges.size), np.int64)
        for index, of_type in enumerate(counts):
            part = rows.slice_type(index)
            # bincount sums in float64: exact below 2^53.
            sums = np.bincount(
                self.buckets[part], None if weights is None else weights[part], minlength=self.edges.size - 1
            )
            np.cumsum(sums.astype(np.int64), out=of_type[1:])
        return counts


def cut_order(
    rows: Rows, values: FloatArray | IntArray, capacities: IntArray, tiers: Capacities | None, threads: int
) -> CacheOrder:
    """Sort the rows by `values`, none negative, and cut the order at the capacities (bytes) and tiers.

    The cuts have at most 256 different positions. Cost: one sort. Memory: up to 44 bytes per row while it runs, 1
    afterwards; with an ssd tier 5 (9 from 2^31 rows).
    """
    order = rows.sort(values, threads)
    fitting = rows.count_fitting(order, capacities)
    by_type = [] if tiers is None else rows.split(order)
    ranges = None if tiers is None else rows.plan_tiers([values[own].astype(np.float64) for own in by_type], tiers)
    tier_ends = [] if ranges is None else [sum(r[tier][1] for r in ranges.values()) for tier in TIERS]
    edges = np.unique(np.concatenate([[0, rows.size], fitting, tier_ends])).astype(np.int64)
    buckets = np.empty(rows.size, np.uint8)
    for bucket, (begin, end) in enumerate(pairwise(edges)):
        for first in range(begin, end, CHUNK):
            buckets[order[first : min(end, first + CHUNK)]] = bucket
    tier_cuts = np.searchsorted(edges, [0, *tier_ends] if ranges is not None else [])
    positions = []
    if ranges is not None and tiers is not None and tiers.ssd:
        for index, own in enumerate(by_type):
            begin, end = ranges[rows.types[index]]["ssd"]
            position = np.full(own.size, -1, own.dtype)
            position[own[begin:end] - rows.slice_type(index).start] = np.arange(end - begin)
            positions.append(position)
    return CacheOrder(edges, buckets, np.searchsorted(edges, fitting), ranges, tier_cuts, positions)
