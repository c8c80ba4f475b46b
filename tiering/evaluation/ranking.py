"""Where the capacities asked for cut the line of rows that a score forms.

All that `evaluate` reports about a score are sums over buckets of its line: caches of some sizes, tiers, points of a
curve. So the line is cut once at all these places, and each row remembers only its bucket, in one byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.competing_rows import ASSUMED, CHUNK, FloatArray, IntArray, Rows
from tiering.formats.layout import TIERS
from tiering.layout.capacities import Capacities, Table, plan_tiers

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
    tables = [Table(node_type, count, size, own) for node_type, count, size, own in columns]
    try:
        return plan_tiers(tables, tiers, strict=False)
    except InputError as error:
        if ASSUMED not in rows.origins:
            raise
        raise InputError(f"{error} (no features: every row counts as 1 B; say what it has with --row-bytes)") from None
