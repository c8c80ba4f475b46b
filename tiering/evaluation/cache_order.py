"""The order in which a score puts feature rows into caches and tiers, and what training then reads over each link.

Rows of all node types are numbered end to end: first row of the type + node. An order is cut once at all capacities
requested (caches, tiers, points of a curve), and each row remembers only its bucket, in one byte.
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
from tiering.formats.graph import Graph, take_by_rank
from tiering.formats.layout import TIERS
from tiering.formats.scores import Scores
from tiering.formats.ssd_rows import SsdRows
from tiering.layout.tiers import Capacities, RankedTable, plan_tiers

FloatArray: TypeAlias = "npt.NDArray[np.float64]"
IntArray: TypeAlias = "npt.NDArray[np.int64]"
Score: TypeAlias = "Scores | Mapping[str, npt.ArrayLike]"  # a scores artifact, or one vector per node type
RowBytes: TypeAlias = int | Mapping[str, int] | None
"""Bytes of a row of the types without features: see `competing_rows`."""
Ranges: TypeAlias = "dict[str, dict[str, tuple[int, int]]]"
"""Node type and tier -> half-open range of ranks, as `tiering.layout.tiers.plan_tiers` returns them."""

FEATURES = "features"  # source of a row size: the graph's feature table
GIVEN = "given"  # source of a row size: the caller
ASSUMED = "assumed"  # no source of a row size: a row counts as 1 byte
CHUNK = 1 << 20  # rows processed at a time
ORACLE = "oracle"  # name of the ranking by true counts in every result
LINKS = ("gpu_memory", "peer_link", "host_link", "ssd")  # names of the links, fastest first


@dataclass(frozen=True)
class Rows:
    """Feature rows that compete for the tiers: for each node type number, bytes (at least 1) and source of the size."""

    types: tuple[str, ...]
    counts: tuple[int, ...]
    row_bytes: tuple[int, ...]
    origins: tuple[str, ...]

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
    def bytes_known(self) -> bool:
        """Whether the bytes of all rows are known."""
        return ASSUMED not in self.origins

    def slice_type(self, index: int) -> slice:
        """Return the rows of the type number `index`."""
        return slice(int(self.starts[index]), int(self.starts[index + 1]))

    def join(self, per_type: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return one array over all rows from one per type; other types are omitted."""
        arrays = [per_type[t] for t in self.types]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def sort(self, values: npt.NDArray[Any], threads: int) -> npt.NDArray[Any]:
        """Return the rows by falling value per byte, ties by type and node: int32 or int64, shape (rows,)."""
        if len(set(self.row_bytes)) > 1:
            values = values.astype(np.float64)
            for index, size in enumerate(self.row_bytes):
                values[self.slice_type(index)] /= size
        return native.sort_by_score(np.ascontiguousarray(values, dtype=np.float64), threads)

    def split(self, order: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Return the rows of each type in an order of all rows."""
        ends = list(pairwise(self.starts.tolist()))
        return [order] if len(ends) == 1 else [order[(order >= first) & (order < end)] for first, end in ends]

    def count_fitting(self, order: npt.NDArray[Any], capacities: IntArray) -> IntArray:
        """Return how many rows from the front of `order` fit into each capacity, in bytes."""
        if len(set(self.row_bytes)) <= 1:
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
            if self.bytes_known:
                raise
            raise InputError(
                f"{error} (no features: every row counts as 1 B; give the size of a row with --row-bytes)"
            ) from None

    def join_scores(self, graph: Graph, name: str, score: Score) -> FloatArray:
        """Return a score, checked, over all rows, in the graph's own ids; a type that it does not know counts as 0."""
        known = score.node_types if isinstance(score, Scores) else list(score)
        vectors = {}
        for node_type, count in zip(self.types, self.counts, strict=True):
            if node_type not in known:
                vectors[node_type] = np.zeros(count)
                continue
            vector = score.values(node_type) if isinstance(score, Scores) else score[node_type]
            values = np.asarray(vector, dtype=np.float64)
            where = f"score {name!r}, node type {node_type!r}"
            if values.shape != (count,):
                raise InputError(
                    f"{where}: expected shape ({count},), one value per node of {graph.path}, found {values.shape}"
                )
            if (bad := np.flatnonzero(~(np.isfinite(values) & (values >= 0)))).size:
                found = f"{values[bad[0]]} at node {bad[0]}"
                raise InputError(f"{where}: expected finite values of 0 or more, found {found}")
            vectors[node_type] = values if graph.order is None else take_by_rank(values, graph, node_type)
        return self.join(vectors)

    def count_ssd_reads(
        self, orders: Sequence[CacheOrder], page: int, block: int, nodes: Mapping[str, IntArray]
    ) -> IntArray:
        """Return bytes and pages read for the unique nodes of a batch: int64, shape (orders, types, 2).

        As by the loader, every page that holds a row of the batch is read once, from the block of the first byte needed
        to the block of the last. The layout is one with a single stripe file.
        """
        sums = np.zeros((len(orders), len(self.types), 2), np.int64)
        for of_order, order in zip(sums, orders, strict=True):
            on_ssd = [end - begin for begin, end in (order.ranges[node_type]["ssd"] for node_type in self.types)]
            unit, places = SsdRows.plan_all(list(zip(on_ssd, self.row_bytes, strict=True)), page, 1)
            for index, (node_type, place) in enumerate(zip(self.types, places, strict=True)):
                read = order.positions[index][nodes[node_type]]
                begins = place.begins(np.sort(read[read >= 0]), unit)
                of_order[index] = read_spans(begins, begins + self.row_bytes[index], page, block)[:2]
        return sums


def competing_rows(graph: Graph, row_bytes: RowBytes = None) -> Rows:
    """Return the rows that compete for the tiers, with their sizes.

    `row_bytes` are bytes of a row of the types that have no features (a learned embedding, say): one number, or a
    mapping from node type to number, which may also overrule a feature table's size. Types with features and types with
    a given size compete; where there are none of either, all types do and every row counts as 1 byte.
    """
    overruled, sizes = isinstance(row_bytes, Mapping), {}
    if row_bytes is not None:
        sizes = dict(row_bytes) if isinstance(row_bytes, Mapping) else dict.fromkeys(graph.node_types, row_bytes)
    for node_type, size in sizes.items():
        if node_type not in graph.node_types:
            raise InputError(f"row bytes: no node type {node_type!r}; types: {', '.join(graph.node_types)}")
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size < 2**40:
            raise InputError(f"row bytes of {node_type!r}: expected a whole number of bytes from 1, found {size!r}")
    chosen: list[tuple[str, int, int, str]] = []
    for node_type in graph.node_types:
        count, table = graph.num_nodes(node_type), graph.feature_table(node_type)
        if node_type in sizes and (table is None or overruled):
            chosen.append((node_type, count, int(sizes[node_type]), GIVEN))
        elif table is not None:
            chosen.append((node_type, count, max(1, table.row_bytes), FEATURES))
    chosen = chosen or [(t, graph.num_nodes(t), 1, ASSUMED) for t in graph.node_types]
    return Rows(*zip(*chosen, strict=True))


@dataclass(frozen=True)
class CacheOrder:
    """The order of one score, cut into buckets at `edges`: row numbers from 0 to the number of rows.

    `cuts` and `tier_cuts` are the numbers of the edges at which the capacities, and each of `TIERS` (0 in front), end.
    `positions` are per type those in the ssd tier, -1 for other rows. Without tiers, what tells of them is empty.
    """

    edges: IntArray
    buckets: npt.NDArray[np.uint8]  # bucket of each row: b where ``edges[b] <= position of the row < edges[b + 1]``
    cuts: IntArray
    ranges: Ranges
    tier_cuts: IntArray
    positions: list[npt.NDArray[Any]]

    def count(self, rows: Rows, weights: IntArray | None = None) -> IntArray:
        """Return the rows up to each edge, or the sum of their `weights`: int64, shape (types, edges)."""
        counts = np.zeros((len(rows.types), self.edges.size), np.int64)
        for index, of_type in enumerate(counts):
            part = rows.slice_type(index)
            # bincount sums in float64: exact below 2^53.
            own = None if weights is None else weights[part]
            sums = np.bincount(self.buckets[part], own, minlength=self.edges.size - 1)
            np.cumsum(sums.astype(np.int64), out=of_type[1:])
        return counts

    @classmethod
    def cut(
        cls, rows: Rows, values: FloatArray | IntArray, capacities: IntArray, tiers: Capacities | None, threads: int
    ) -> CacheOrder:
        """Sort the rows by `values`, none negative, and cut the order at the capacities (bytes) and tiers.

        The cuts have at most 256 different positions. Cost: one sort. Memory: up to 44 bytes per row while it runs, 1
        afterwards; with an ssd tier 5 (9 from 2^31 rows).
        """
        order, ranges, positions = rows.sort(values, threads), {}, []
        fitting = rows.count_fitting(order, capacities)
        if tiers is not None:
            by_type = rows.split(order)
            ranges = rows.plan_tiers([values[own].astype(np.float64) for own in by_type], tiers)
            for index, own in enumerate(by_type if tiers.ssd else ()):
                begin, end = ranges[rows.types[index]]["ssd"]
                position = np.full(own.size, -1, own.dtype)
                position[own[begin:end] - int(rows.starts[index])] = np.arange(end - begin)
                positions.append(position)
        tier_ends = [0, *(sum(own[tier][1] for own in ranges.values()) for tier in TIERS)]
        edges = np.unique(np.concatenate([[0, rows.size], fitting, tier_ends])).astype(np.int64)
        buckets = np.empty(rows.size, np.uint8)
        for bucket, (begin, end) in enumerate(pairwise(edges)):
            for first in range(begin, end, CHUNK):
                buckets[order[first : min(end, first + CHUNK)]] = bucket
        cuts, tier_cuts = (np.searchsorted(edges, ends) for ends in (fitting, tier_ends))
        return cls(edges, buckets, cuts, ranges, tier_cuts, positions)


def read_spans(begins: IntArray, ends: IntArray, page: int, block: int) -> tuple[int, int, int]:
    """Return bytes and pages read for rows, and runs of rows that share a page.

    Rows are given by their first byte and the byte behind the last: ascending, no row twice. Reads begin and end at
    multiples of `block` bytes.
    """
    first, last = begins // block * block, -(-ends // block) * block
    pages = (ends - 1) // page - begins // page + 1
    together = begins[1:] // page == (ends[:-1] - 1) // page
    # Between two rows of a page lies a gap, which is read too, or they share a block: then it is negative.
    between = (first[1:] - last[:-1])[together]
    shared = np.count_nonzero(together)
    return int((last - first).sum() + between.sum()), int(pages.sum() - shared), begins.size - shared


@dataclass(frozen=True)
class LinkTraffic:
    """Tiers that one score fills, and what training reads through them; arrays have one entry per type of `rows`.

    Row r of the peer tier lies on GPU r mod P, and batches are spread evenly over the P GPUs, so one read in P of that
    tier is local like the gpu tier, and the others cross the peer link. Rows of the cpu and the ssd tier cross the host
    link. Bytes over links are the bytes of the rows; SSDs deliver more: `Rows.count_ssd_reads`.
    """

    rows: Rows
    ranges: Ranges  # node type and tier -> half-open range of ranks
    reads: IntArray  # rows read over all epochs: shape (types, tiers)
    ssd_reads: IntArray | None
    """Bytes and pages read from the SSDs, over all epochs; ``None`` without ssd tier or known row sizes."""
    num_peers: int
    epochs: int
    intervals: FloatArray | None  # 95 % interval of each link's fraction of all bytes: shape (links, 2)

    def moved(self, node_type: str | None = None) -> dict[str, float]:
        """Return the bytes per epoch over each link, of one type or all."""
        return {link: entry["bytes_per_epoch"] for link, entry in self.to_json(node_type)["links"].items()}

    def to_json(self, node_type: str | None = None) -> dict[str, Any]:
        """Return links and tiers, of all types or one, as docs/evaluate.md says."""
        types = [i for i, t in enumerate(self.rows.types) if node_type in (None, t)]
        sizes, reads = np.array(self.rows.row_bytes)[types], self.reads[types]
        moved = (self.link_weights(self.num_peers) @ (sizes @ reads / self.epochs)).tolist()
        total = sum(moved) or 1.0
        links: dict[str, dict[str, Any]] = {
            link: {"bytes_per_epoch": nbytes, "share": nbytes / total}
            for link, nbytes in zip(LINKS, moved, strict=True)
        }
        device = [None, None] if self.ssd_reads is None else (self.ssd_reads[types].sum(axis=0) / self.epochs).tolist()
        links["ssd"] |= zip(("bytes_read_per_epoch", "pages_read_per_epoch"), device, strict=True)
        for index, entry in enumerate(links.values() if node_type is None else ()):
            entry["interval"] = None if self.intervals is None else self.intervals[index].tolist()
        ranges = [self.ranges[self.rows.types[i]] for i in types]
        counts = np.array([[own[tier][1] - own[tier][0] for tier in TIERS] for own in ranges])
        columns = counts.sum(axis=0).tolist(), (sizes @ counts).tolist(), (reads.sum(axis=0) / self.epochs).tolist()
        names = ("rows", "bytes", "reads_per_epoch")
        tiers = {t: dict(zip(names, row, strict=True)) for t, *row in zip(TIERS, *columns, strict=True)}
        by_type = {"types": {t: self.to_json(t) for t in self.rows.types}} if node_type is None else {}
        return {"links": links, "tiers": tiers, **by_type}

    @staticmethod
    def link_weights(num_peers: int) -> FloatArray:
        """Return the fraction of each tier's reads over each link: float64, shape (links, tiers), columns sum to 1."""
        local = 1 / num_peers if num_peers else 0.0
        return np.array([[1, local, 0, 0], [0, 1 - local, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)
