"""Features of nodes that have none: the mean of their neighbors' rows, as OGB does for MAG240M's authors.

Rows are read front to back, a piece at a time. They are added in float32, by piece and order of edges, to the sums of
as many nodes as the memory holds: the result depends neither on the memory nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import Relation, relation_key, storage_dtype
from tiering.datasets.arrays import narrow_rows
from tiering.datasets.import_context import ImportContext
from tiering.errors import InputError
from tiering.formats.dataset import EdgeData, FeatureStream, GraphSoFar, NodeData
from tiering.formats.features import FeatureTable

PIECE = 16 << 20  # bytes of a piece of the neighbors' rows, as float32; other pieces round otherwise
EDGE_BYTES = 40  # memory that sorting takes for each edge
DTYPES = ("float16", "bfloat16", "float32", "float64")
Pairs = tuple[npt.NDArray[Any], npt.NDArray[Any]]  # nodes and neighbors of edges, ordered by node


def add_neighbor_means(nodes: dict[str, NodeData], edges: list[EdgeData], context: ImportContext) -> None:
    """Give features to the node types named in option ``mean_features``, in that order."""
    for node_type, name in context.options.mean_features.by_type.items():
        if node_type not in nodes:
            raise InputError(f"--mean-features: no node type {node_type}; the types are {', '.join(nodes)}")
        if nodes[node_type].features is not None:
            context.warn(f"--mean-features: {node_type} has features already, which are taken")
            continue
        fitting = [e.relation for e in edges if node_type in e.relation[::2] and e.relation[0] != e.relation[2]]
        named = (r for r in fitting if name in (r[1], relation_key(r), "__".join(r), "___".join(r)))
        if (relation := next(named, None)) is None:
            known = ", ".join(r[1] for r in fitting) or "none"
            raise InputError(f"--mean-features: no relation {name} of {node_type} to another type; expected {known}")
        other = relation[2] if relation[0] == node_type else relation[0]
        table = nodes[other].features
        if table is None or table.dtype not in DTYPES:
            has = "none" if table is None else table.dtype
            raise InputError(
                f"--mean-features: {node_type} needs the features of {other}, which has {has}; expected "
                f"features of {', '.join(DTYPES)}; name a relation with a type that has features, or list {other} first"
            )
        room, count = sums_memory(context), nodes[node_type].num_nodes
        passes = -(-count * 4 * table.dim // max(1, room // 2))
        read = passes * table.rows * table.dim * storage_dtype(table.dtype).itemsize
        pieces = partial(_sum_rows, relation, relation[0] == node_type, count, table, room)
        shape, how = (count, table.dim, table.dtype), f"means of {other}"
        nodes[node_type].features = FeatureStream(*shape, pieces, how, room + 4 * PIECE, read, (other,))
        context.notes.setdefault("mean_features", {})[node_type] = name
        if context.options.deduplicate:
            context.warn(f"--mean-features: with --deduplicate a neighbor counts once in the rows of {node_type}")


def sums_memory(context: ImportContext) -> int:
    """Return the bytes that sums may take."""
    return max(PIECE, context.scratch.budget.left() // 2)


def _sum_rows(
    relation: Relation,
    by_neighbor: bool,
    count: int,
    table: FeatureTable | FeatureStream,
    room: int,
    start: int,
    graph: GraphSoFar,
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the means from node `start` on, zeros for nodes without edges; see `FeatureStream.pieces`."""
    rows, step = graph.rows(relation[2] if by_neighbor else relation[0]), max(1, PIECE // (4 * table.dim))
    lists, piece = graph.csc(relation), np.empty((min(step, rows.shape[0]), table.dim), rows.dtype)
    while start < count:
        stop = min(count, start + max(1, room // 2 // (4 * table.dim + 8)))
        if by_neighbor:
            find_pairs: Callable[[int, int], Pairs] = partial(_find_in_neighbors, lists, start, stop)
        else:
            limit = lists[0][start] + max(1, room // 2 // EDGE_BYTES)
            stop = max(start + 1, min(stop, int(np.searchsorted(lists[0], limit, side="right")) - 1))
            find_pairs = _sort_by_piece(lists, start, stop, step)
        total, degree = np.zeros((stop - start, table.dim), np.float32), np.zeros(stop - start, np.int64)
        for first in range(0, rows.shape[0], step):
            last = min(rows.shape[0], first + step)
            nodes, neighbors = find_pairs(first, last)
            if nodes.size:
                # Disks are read front to back: adding, which follows the edges, would map pages in their order.
                np.copyto(piece[: last - first], rows[first:last])
                native.add_rows(piece[: last - first], nodes, neighbors, total, degree, graph.threads)
        total /= np.maximum(degree, 1)[:, None]
        for first in range(0, stop - start, step):
            yield start + first, narrow_rows(total[first : first + step], table.dtype)
        start = stop


def _sort_by_piece(lists: Pairs, start: int, stop: int, step: int) -> Callable[[int, int], Pairs]:
    """Return the function that finds the edges of nodes [start, stop), whose lists these are, with a piece."""
    indptr, indices = lists
    neighbors = np.asarray(indices[indptr[start] : indptr[stop]])
    # The lists are in the order of the nodes, and remain so within each piece.
    order = np.argsort(neighbors // step, kind="stable")
    neighbors = neighbors[order].astype(np.int64)
    nodes = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))[order]
    ends = np.append(0, np.cumsum(np.bincount(neighbors // step)))

    def find(first: int, last: int) -> Pairs:
        begin, end = ends[np.minimum((first // step, -(-last // step)), ends.size - 1)]
        return nodes[begin:end], neighbors[begin:end] - first

    return find


def _find_in_neighbors(lists: Pairs, start: int, stop: int, first: int, last: int) -> Pairs:
    """Return the edges of nodes [start, stop) with neighbors [first, last), whose lists these are."""
    indptr, indices = lists
    ends = indptr[first : last + 1]
    nodes = np.asarray(indices[ends[0] : ends[-1]])
    inside = np.flatnonzero((nodes >= start) & (nodes < stop))
    inside = inside[np.argsort(nodes[inside], kind="stable")]
    neighbors = np.searchsorted(ends - ends[0], inside, side="right") - 1
    return np.subtract(nodes[inside], start, dtype=np.int64), neighbors
