"""The feature rows that compete for the tiers, the line that a score forms of them, and where capacities cut it.

Rows of all node types lie end to end: row = start of its node type + node. All that `evaluate` reports about a score
are sums over buckets of its line: caches of some sizes, tiers, points of a curve. So the line is cut once at all these
places, and each row remembers only its bucket, in one byte.
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
RowBytes: TypeAlias = "int | Mapping[str, int] | None"
"""What a caller may say about the size of rows: see `competing_rows`."""

FEATURES, GIVEN, ASSUMED = "features", "given", "assumed"
"""Where a row size comes from: the graph's feature table, the caller, nowhere (1 row counts as 1 byte)."""

CHUNK = 1 << 20
"""Rows looked at together."""


@dataclass(frozen=True)
class Rows:
    """Rows of all node types that compete."""

    types: tuple[str, ...]
    """In the graph's order."""
    counts: tuple[int, ...]
    row_bytes: tuple[int, ...]
    """Bytes of a row of each type, at least 1."""
    origins: tuple[str, ...]
    """For each type `FEATURES`, `GIVEN` or `ASSUMED`."""

    @cached_property
    def starts(self) -> IntArray:
        """int64, shape (types + 1,): first row of each type, and the number of rows."""
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
        """Whether all rows have the same size, so that bytes and rows are the same scale."""
        return len(set(self.row_bytes)) <= 1

    def part(self, index: int) -> slice:
        """Rows of the type number `index`."""
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def join(self, per_type: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """One array over all rows from one per type; other types in it are left out."""
        parts = [per_type[t] for t in self.types]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def line(self, values: npt.NDArray[Any], threads: int) -> npt.NDArray[Any]:
        """Rows by falling value per byte, ties by type and node: int32 or int64, shape (rows,)."""
        if not self.one_size:
            values = values.astype(np.float64)
            for index, size in enumerate(self.row_bytes):
                values[self.part(index)] /= size
        return native.sort_by_score(np.ascontiguousarray(values, dtype=np.float64), threads)

    def prefixes(self, line: npt.NDArray[Any], capacities: Sequence[int] | IntArray) -> IntArray:
        """How many rows from the front of `line` fit into each capacity (bytes): int64.

        A prefix ends before the first row that does not fit.
        """
        wanted = np.asarray(capacities, dtype=np.int64)
        if self.one_size:
            return np.minimum(wanted // max(self.row_bytes, default=1), self.size)
        sizes, fitting, before = np.array(self.row_bytes, np.int64), np.zeros(wanted.shape, np.int64), 0
        for begin in range(0, line.size, CHUNK):
            kinds = np.searchsorted(self.starts, line[begin : begin + CHUNK], side="right") - 1
            used = np.cumsum(sizes[kinds]) + before
            fitting += np.searchsorted(used, wanted, side="right")
            before = int(used[-1])
        return fitting


def competing_rows(graph: Graph, row_bytes: RowBytes = None) -> Rows:
    """Rows that compete for the tiers, and their sizes.

    `row_bytes` are bytes of a row of the types that have no features (a learned embedding, say): one number, or a
    mapping from node type to number, which may also overrule a feature table's size. Types with features and types with
    a given size compete; where there are none of either, all types do, every row counts as 1 byte, and sizes are
    numbers of rows.
    """
    given = _given(graph, row_bytes)
    tables = {t: table for t in graph.node_types if (table := graph.feature_table(t)) is not None}
    chosen: list[tuple[str, int, int, str]] = []
    for node_type in graph.node_types:
        count = graph.num_nodes(node_type)
        if node_type in given and (node_type not in tables or isinstance(row_bytes, Mapping)):
            chosen.append((node_type, count, given[node_type], GIVEN))
        elif node_type in tables:
            chosen.append((node_type, count, max(1, tables[node_type].row_bytes), FEATURES))
    chosen = chosen or [(t, graph.num_nodes(t), 1, ASSUMED) for t in graph.node_types]
    types, counts, sizes, origins = zip(*chosen, strict=True)
    return Rows(types, counts, sizes, origins)


def _given(graph: Graph, row_bytes: RowBytes) -> dict[str, int]:
    if row_bytes is None:
        return {}
    given = dict(row_bytes) if isinstance(row_bytes, Mapping) else dict.fromkeys(graph.node_types, row_bytes)
    for node_type, size in given.items():
        if node_type not in graph.node_types:
            raise InputError(f"row bytes: no node type {node_type!r}; types: {', '.join(graph.node_types)}")
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size < 2**40:
            raise InputError(f"row bytes of {node_type!r}: expected a whole number of bytes from 1, found {size!r}")
    return {node_type: int(size) for node_type, size in given.items()}


def score_vector(graph: Graph, rows: Rows, name: str, score: Score) -> FloatArray:
    """One score over all competing rows, in the graph's own ids; a type it does not know counts as 0.

    Refuses a vector of the wrong length, and values that are not finite or negative.
    """
    parts = []
    known = score.node_types if isinstance(score, Scores) else list(score)
    for node_type, count in zip(rows.types, rows.counts, strict=True):
        if node_type not in known:
            parts.append(np.zeros(count))
            continue
        vector = score.values(node_type) if isinstance(score, Scores) else score[node_type]
        values = np.asarray(vector, dtype=np.float64)
        where = f"score {name!r}, node type {node_type!r}"
        if values.shape != (count,):
            raise InputError(
                f"{where}: expected shape ({count},), one value per node of {graph.path}, found {values.shape}"
            )
        for begin in range(0, count, CHUNK):
            part = values[begin : begin + CHUNK]
            bad = np.flatnonzero(~(np.isfinite(part) & (part >= 0)))
            if bad.size:
                node = begin + int(bad[0])
                raise InputError(f"{where}: expected finite values of 0 or more, found {values[node]} at node {node}")
        parts.append(values if graph.order is None else take_by_rank(values, graph, node_type))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


Ranges: TypeAlias = "dict[str, dict[str, tuple[int, int]]]"
"""Node type and tier -> half-open range of ranks, as `tiering.layout.plan_tiers` returns them."""


@dataclass(frozen=True)
class Ranking:
    """The line of one score, cut."""

    edges: IntArray
    """Rows from the front of the line to each cut: ascending, from 0 to the number of rows."""
    buckets: npt.NDArray[np.uint8]
    """Per row: s where ``edges[s] <= place of the row < edges[s + 1]``."""
    cuts: IntArray
    """Number of the edge at which each capacity ends."""
    ranges: Ranges | None
    """Tiers of each type; ``None`` if none were asked for."""
    tier_cuts: IntArray
    """Number of the edge at which each of `TIERS` ends, 0 in front; only with `ranges`."""
    places: list[npt.NDArray[Any]]
    """Per type, int32 or int64, shape (nodes,): place of each row in the ssd tier, -1 for others; empty without one."""

    def count(self, rows: Rows, weights: IntArray | None = None) -> IntArray:
        """Rows up to each edge, or the sum of their `weights` (int64, one per row): int64, shape (types, edges)."""
        counts = np.zeros((len(rows.types), self.edges.size), np.int64)
        for index, of_type in enumerate(counts):
            part = rows.part(index)
            own = None if weights is None else weights[part]
            # bincount sums in float64: exact below 2^53.
            sums = np.bincount(self.buckets[part], own, minlength=self.edges.size - 1)
            np.cumsum(sums.astype(np.int64), out=of_type[1:])
        return counts


def rank_rows(
    rows: Rows, values: FloatArray | IntArray, capacities: IntArray, tiers: Capacities | None, threads: int
) -> Ranking:
    """Form the line of a score and cut it.

    `values`, one per row, are not negative; the highest per byte come first. With the cuts of `tiers`, which are those
    that `tiering layout` would make, the `capacities` (bytes) have at most 256 different places. Cost: one sort.
    Memory: while it runs up to 44 bytes per row, 1 afterwards; with an ssd tier 5 (9 from 2^31 rows).
    """
    line = rows.line(values, threads)
    prefixes = rows.prefixes(line, capacities)
    orders = [] if tiers is None else _orders(rows, line)
    ranges = None if tiers is None else _plan(rows, [values[order].astype(np.float64) for order in orders], tiers)
    tier_ends = [] if ranges is None else [sum(r[tier][1] for r in ranges.values()) for tier in TIERS]
    edges = np.unique(np.concatenate([[0, rows.size], prefixes, tier_ends])).astype(np.int64)
    buckets = np.empty(rows.size, np.uint8)
    for s, (begin, end) in enumerate(pairwise(edges)):
        for first in range(begin, end, CHUNK):
            buckets[line[first : min(end, first + CHUNK)]] = s
    tier_cuts = np.searchsorted(edges, [0, *tier_ends]) if ranges is not None else np.zeros(0, np.int64)
    places = [] if ranges is None or tiers is None or not tiers.ssd else _places(rows, orders, ranges)
    return Ranking(edges, buckets, np.searchsorted(edges, prefixes), ranges, tier_cuts, places)


def check_tiers(rows: Rows, tiers: Capacities) -> None:
    """Refuse sizes that no score fits, before anything is counted."""
    _plan(rows, [np.broadcast_to(np.float64(0), count) for count in rows.counts], tiers)


def _orders(rows: Rows, line: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Rows of each type by rank."""
    parts = [rows.part(index) for index in range(len(rows.types))]
    return [line] if len(parts) == 1 else [line[(line >= part.start) & (line < part.stop)] for part in parts]


def _places(rows: Rows, orders: Sequence[npt.NDArray[Any]], ranges: Ranges) -> list[npt.NDArray[Any]]:
    per_type = []
    for index, order in enumerate(orders):
        begin, end = ranges[rows.types[index]]["ssd"]
        places = np.full(order.size, -1, order.dtype)
        places[order[begin:end] - rows.part(index).start] = np.arange(end - begin)
        per_type.append(places)
    return per_type


def _plan(rows: Rows, values: Sequence[npt.NDArray[Any]], tiers: Capacities) -> Ranges:
    """Ranges of ranks for values per type that fall by rank."""
    columns = zip(rows.types, rows.counts, rows.row_bytes, values, strict=True)
    tables = [RankedTable(node_type, count, size, own) for node_type, count, size, own in columns]
    try:
        return plan_tiers(tables, tiers, strict=False)
    except InputError as error:
        if ASSUMED not in rows.origins:
            raise
        raise InputError(f"{error} (no features: every row counts as 1 B; say what it has with --row-bytes)") from None
