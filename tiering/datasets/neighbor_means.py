"""Features of nodes that have none: the mean of their neighbours' rows.

OGB makes those of MAG240M's authors from their papers so, and those of its institutions from their authors.

Approach: the rows of the neighbours are read front to back, some 16 MiB at a time, and added in float32 to the rows of
as many nodes as the memory holds; with less memory they are read more often. A node's rows are added one by one, piece
after piece and in the order of its edges within each. Pieces depend neither on the memory nor on the number of threads,
so neither does the result.
Cost: the neighbours' table and the relation's lists, once for every part of the nodes that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import Relation, relation_key, storage_dtype
from tiering.datasets.arrays import narrow_rows
from tiering.datasets.import_context import ImportContext
from tiering.errors import InputError
from tiering.formats.dataset import EdgeData, FeatureStream, GraphSoFar, NodeData

PIECE = 16 << 20
"""Bytes of a piece of the neighbours' rows, as float32. Part of the definition: other pieces round otherwise."""
EDGE_BYTES = 40  # memory that sorting takes for each edge
DTYPES = ("float16", "bfloat16", "float32", "float64")
Pairs = Callable[[int, int], tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""Function from a piece of the neighbours, [first, last), to the edges of a part of the nodes with it.

Nodes and neighbours are counted from the first of the part and of the piece, ordered by node, then as they stand.
"""


def add_neighbor_means(nodes: dict[str, NodeData], edges: list[EdgeData], context: ImportContext) -> None:
    """Give features to the node types named in option ``mean_features``, in that order."""
    for node_type, name in context.options.mean_features.by_type.items():
        if node_type not in nodes:
            raise InputError(f"--mean-features: no node type {node_type}; there are: {', '.join(nodes)}")
        if nodes[node_type].features is not None:
            context.warn(f"--mean-features: {node_type} has features already, which are taken")
            continue
        relation = _relation(node_type, name, edges)
        other = relation[2] if relation[0] == node_type else relation[0]
        table = nodes[other].features
        if table is None or table.dtype not in DTYPES:
            has = "none" if table is None else table.dtype
            raise InputError(
                f"--mean-features: {node_type} is to get the mean of rows of {other}, which has {has}; expected "
                f"features of {', '.join(DTYPES)}; name a relation with a type that has them, or give that one first"
            )
        room = sums_memory(context)
        mean = _Mean(relation, node_type, other, nodes[node_type].num_nodes, table.dim, table.dtype, room)
        passes = -(-mean.count * 4 * table.dim // max(1, room // 2))
        read = passes * table.rows * table.dim * storage_dtype(table.dtype).itemsize
        nodes[node_type].features = FeatureStream(
            mean.count, table.dim, table.dtype, mean.pieces, f"means of {other}", room + 4 * PIECE, read, (other,)
        )
        context.notes.setdefault("mean_features", {})[node_type] = name
        if context.options.deduplicate:
            context.warn(f"--mean-features: with --deduplicate a neighbour counts once in the rows of {node_type}")


def sums_memory(context: ImportContext) -> int:
    """Return the bytes that sums may take."""
    return max(PIECE, context.scratch.budget.left() // 2)


def _relation(node_type: str, name: str, edges: list[EdgeData]) -> Relation:
    fitting = [edge.relation for edge in edges if node_type in (edge.relation[0], edge.relation[2])]
    for relation in fitting:
        names = (relation[1], relation_key(relation), "__".join(relation), "___".join(relation))
        if name in names and relation[0] != relation[2]:
            return relation
    known = ", ".join(relation[1] for relation in fitting if relation[0] != relation[2]) or "none"
    raise InputError(f"--mean-features: no relation {name} of {node_type} to another type; there are: {known}")


@dataclass(frozen=True)
class _Mean:
    """The mean of the rows of the `other` ends of a node's edges; zeros for nodes without edges."""

    relation: Relation
    node_type: str
    other: str
    count: int
    dim: int
    dtype: str
    room: int  # bytes of memory

    @property
    def step(self) -> int:
        """Rows of a piece."""
        return max(1, PIECE // (4 * self.dim))

    def pieces(self, start: int, graph: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield rows from `start` on."""
        rows, step = graph.rows(self.other), self.step
        piece = np.empty((min(step, rows.shape[0]), self.dim), rows.dtype)
        while start < self.count:
            stop, find_pairs = self._part(graph, start)
            total, degree = np.zeros((stop - start, self.dim), np.float32), np.zeros(stop - start, np.int64)
            for first in range(0, rows.shape[0], step):
                last = min(rows.shape[0], first + step)
                nodes, neighbours = find_pairs(first, last)
                if nodes.size:
                    # Disks are read front to back: adding, which follows the edges, would map pages in their order.
                    np.copyto(piece[: last - first], rows[first:last])
                    native.add_rows(piece[: last - first], nodes, neighbours, total, degree, graph.threads)
            total /= np.maximum(degree, 1)[:, None]
            for first in range(0, stop - start, step):
                yield start + first, narrow_rows(total[first : first + step], self.dtype)
            start = stop

    def _part(self, graph: GraphSoFar, start: int) -> tuple[int, Pairs]:
        """Return the end of a part of the nodes that fits, and the function that finds its pairs."""
        stop = min(self.count, start + max(1, self.room // 2 // (4 * self.dim + 8)))
        if self.relation[0] == self.node_type:
            return stop, self._find_in_lists_by_neighbour(graph, start, stop)
        indptr, indices = graph.csc(self.relation)
        limit = indptr[start] + max(1, self.room // 2 // EDGE_BYTES)
        stop = max(start + 1, min(stop, int(np.searchsorted(indptr, limit, side="right")) - 1))
        neighbours = np.asarray(indices[indptr[start] : indptr[stop]])
        # The lists are in the order of the nodes, and remain so within each piece.
        order = np.argsort(neighbours // self.step, kind="stable")
        neighbours = neighbours[order].astype(np.int64)
        nodes = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))[order]
        ends = np.append(0, np.cumsum(np.bincount(neighbours // self.step)))

        def find(first: int, last: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
            begin, end = ends[np.minimum((first // self.step, -(-last // self.step)), ends.size - 1)]
            return nodes[begin:end], neighbours[begin:end] - first

        return stop, find

    def _find_in_lists_by_neighbour(self, graph: GraphSoFar, start: int, stop: int) -> Pairs:
        indptr, indices = graph.csc(self.relation)

        def find(first: int, last: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
            ends = indptr[first : last + 1]
            nodes = np.asarray(indices[ends[0] : ends[-1]])
            inside = np.flatnonzero((nodes >= start) & (nodes < stop))
            inside = inside[np.argsort(nodes[inside], kind="stable")]
            neighbours = np.searchsorted(ends - ends[0], inside, side="right") - 1
            return np.subtract(nodes[inside], start, dtype=np.int64), neighbours

        return find
