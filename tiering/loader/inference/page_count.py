"""The bytes of rows that a layer reads in an order of destinations and rows, counted on some pages of its tables.

A page stays in memory from one use to the next where that time is among the shortest that fit the memory together: no
policy reads less (Prieve and Fabry's VMIN). Missing pages among 16 neighbors are read together, and a request
counts as many bytes as the disk reads in its time. Only the graph is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tiering.artifacts.storage import AnyArray
from tiering.formats.embeddings import PAGE_BYTES
from tiering.formats.graph import Graph, checked_lists
from tiering.loader.inference.blocks import Ids, NodeRuns
from tiering.loader.inference.degrees import EDGES
from tiering.loader.inference.order import NodeOrder

REQUEST_BYTES = 20_000  # of a disk of 100,000 reads/s and 2 GB/s: the choice is the same on every machine
_NEIGHBORS = 16  # pages that are read together, with what lies between
_USES = 1 << 18  # uses of pages that are counted, about


class CountedTable(NamedTuple):
    """The rows of a node type in a table."""

    rows: int
    row_bytes: int
    first: int = 0
    """Rows before this one lie in memory."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are read."""
        return (self.rows - self.first) * self.row_bytes

    @property
    def per_page(self) -> int:
        """Rows that are read together."""
        return max(1, PAGE_BYTES // self.row_bytes)


def count_reads(
    graph: Graph, runs: Mapping[str, NodeRuns], order: NodeOrder, tables: Mapping[str, CountedTable], memory: int,
    alike: bool = True, request: int = REQUEST_BYTES,
) -> int:  # fmt: skip
    """Return about how many bytes of `tables` a layer reads with `memory` bytes for rows, and `request` for each read.

    `runs` are positions in `order`; `alike`: rows lie in that order too, else by rank. Cost: one pass over the in-lists
    of the graph, about 5 ns an edge; memory of some bytes for each node, and 20 MiB.
    """
    step = max(1, (graph.num_edges() + graph.num_nodes()) // _USES)  # of so many runs of pages one is counted
    blocks, firsts, masks, end = sum(len(run.edges) for run in runs.values()), dict[str, int](), {}, 0
    for t, table in tables.items():
        rows = order.positions[t] if alike and order.ranks else np.arange(table.rows)
        masks[t] = (rows // (_NEIGHBORS * table.per_page) % step == step // 3) & (rows >= table.first)
        firsts[t], end = end, end - (-table.rows // (_NEIGHBORS * table.per_page)) * _NEIGHBORS
    keys = []
    for t, sources, block in _uses(graph, runs, order, masks):
        rows = order.positions_of(t, sources) if alike else sources
        keys.append(np.unique((firsts[t] + rows.astype(np.int64) // tables[t].per_page) * blocks + block))
    pages, used = np.divmod(np.unique(np.concatenate(keys)) if keys else np.empty(0, np.int64), max(1, blocks))
    nbytes = np.array([table.per_page * table.row_bytes for table in tables.values()])
    sizes = nbytes[np.searchsorted([*firsts.values()], pages, "right") - 1]
    again = np.flatnonzero(pages[1:] == pages[:-1]) + 1
    times, kept = used[again] - used[again - 1], sizes[again]
    shortest = np.argsort(times)
    fits = np.cumsum((times * kept)[shortest]) <= memory * blocks // step
    missed = np.ones(pages.size, bool)
    missed[again[shortest[fits]]] = False
    reads = (pages // _NEIGHBORS * blocks + used)[missed]
    _, at, counts = np.unique(reads, return_index=True, return_counts=True)
    nbytes = sizes[missed][at]
    return int(step * np.minimum(counts * nbytes + request, _NEIGHBORS * nbytes).sum())


def _uses(
    graph: Graph, runs: Mapping[str, NodeRuns], order: NodeOrder, masks: Mapping[str, AnyArray]
) -> Iterator[tuple[str, AnyArray, Ids]]:
    """Yield the type and ranks of rows in `masks`, and for each of them the number of a block that uses it."""
    first = 0
    for t, run in runs.items():
        for name, sources, nodes in _edges(graph, t, masks):
            numbers = order.positions_of(t, nodes)
            if run.ids is not None:
                found = np.minimum(np.searchsorted(run.ids, numbers), run.ids.size - 1)
                wanted = run.ids[found] == numbers
                sources, numbers = sources[wanted], found[wanted]
            yield name, sources, first + np.searchsorted(run.bounds, numbers, "right") - 1
        first += len(run.edges)


def _edges(graph: Graph, t: str, masks: Mapping[str, AnyArray]) -> Iterator[tuple[str, AnyArray, AnyArray]]:
    """Yield type, sources and destinations of the edges to a type from rows in `masks`, and of each row to itself."""
    if t in masks:
        own = np.flatnonzero(masks[t])
        yield t, own, own
    for relation in graph.relations:
        if relation[2] == t and relation[0] in masks:
            indptr, indices = checked_lists(graph, relation)
            for begin in range(0, indices.size, EDGES):
                sources = indices[begin : begin + EDGES]
                # Ids out of range are refused when blocks are made.
                at = np.flatnonzero(masks[relation[0]].take(sources, mode="clip"))
                yield relation[0], sources[at], np.searchsorted(indptr, begin + at, "right") - 1
