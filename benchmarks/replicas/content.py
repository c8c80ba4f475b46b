"""Arrays of a replica: communities as in `tiering generate`, with the traps of the dataset it is like.

Citations come in both directions where the dataset has them so; edges between nodes of one type have a few loops if it
does; the last nodes of every type are isolated; labels are missing where the dataset has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.replicas.containers import Array
from tiering.datasets.generated import (
    EDGE_BLOCK,
    FEATURE_BLOCK,
    HOMOPHILY,
    SIGNAL,
    Ids,
    KeyedPermutation,
    Population,
    draw_edges,
)
from tiering.datasets.import_context import chunks
from tiering.datasets.specs import DatasetSpec, SpecFile, relation_of

SPLITS = ("train", "val", "test")
SHARES = (0.6, 0.2, 0.2)
"""Fractions of the labeled nodes, where the dataset's own numbers are not known."""


@dataclass
class Content:
    """Arrays of one replica, of the numbers in `source`."""

    source: DatasetSpec
    seed: int
    populations: dict[str, Population] = field(init=False)

    def __post_init__(self) -> None:
        smallest = min(self.source.nodes.values())
        classes = min(max(self.source.classes.values(), default=8), max(2, smallest // 2))
        self.populations = {
            name: Population(count, classes, self.seed, stream)
            for stream, (name, count) in enumerate(self.source.nodes.items())
        }

    def array(self, file: SpecFile) -> Array:
        """Return the content of a file, or of an array of an archive."""
        dtype = np.dtype(file.dtypes[0] if file.dtypes else "int64").str
        if file.holds == "features":
            population, dim = self.populations[str(file.of)], int(file.dim or 1)
            return Array(dtype, (population.size, dim), lambda: self._features(population, dim))
        if file.holds == "labels":
            rows = file.prefixes[0] if file.prefixes else self.source.nodes[str(file.of)]
            shape: tuple[int, ...] = (rows, 1) if file.shape is not None and len(file.shape) == 2 else (rows,)
            return Array(dtype, shape, lambda: self._labels(str(file.of), rows, np.dtype(dtype).kind == "f"))
        if file.holds == "edges":
            return self._edge_array(file, dtype)
        other = file.shape or (1,)
        return Array(dtype, other, lambda: [np.zeros(other, dtype)])

    def split(self, node_type: str, name: str) -> Ids:
        """Return the nodes of a split, ascending: those of train and val have a label."""
        ends = np.cumsum([0, *self.split_sizes(node_type)])
        k = SPLITS.index(name)
        return np.sort(self._chosen(node_type).forward(np.arange(ends[k], ends[k + 1])))

    def split_sizes(self, node_type: str) -> list[int]:
        """Return the nodes in train, val, test."""
        about, labeled = self.source.about, self.labeled(node_type)
        sizes, left = [], self.source.nodes[node_type]
        for name, share in zip(SPLITS, SHARES, strict=True):
            sizes.append(min(left, about.get(name, int(labeled * share))))  # scaled counts were rounded one by one
            left -= sizes[-1]
        return sizes

    def labeled(self, node_type: str) -> int:
        """Return the nodes that have a label."""
        return self.source.about.get("labeled", self.source.nodes[node_type])

    def _chosen(self, node_type: str) -> KeyedPermutation:
        """Return the order with the labeled nodes first, those of train before the others."""
        return KeyedPermutation(self.source.nodes[node_type], (self.seed, 3))

    def _features(self, population: Population, dim: int) -> Iterator[npt.NDArray[Any]]:
        for block, rows in enumerate(chunks(population.size, max(1, FEATURE_BLOCK // dim))):
            yield population.features(block, rows, dim, SIGNAL)

    def _labels(self, node_type: str, rows: int, may_lack: bool) -> Iterator[npt.NDArray[Any]]:
        population, order, labeled = self.populations[node_type], self._chosen(node_type), self.labeled(node_type)
        for part in chunks(rows, EDGE_BLOCK):
            ids = np.arange(part.start, part.stop)
            labels = population.community_of_ids(ids).astype(np.float64)
            if may_lack and labeled < population.size:
                labels[order.forward(ids, inverse=True) >= labeled] = np.nan
            yield labels

    def _edge_array(self, file: SpecFile, dtype: str) -> Array:
        name = str(file.of)
        count = self.source.edges[name]
        shape = file.shape or (count, 2)
        if file.path in ("row", "col"):
            column = ("row", "col").index(file.path)
            return Array(dtype, (count,), lambda: (edges[:, column] for edges in self.edges(name)))
        if shape[0] == 2 and shape != (2, 2):
            return Array(dtype, shape, lambda: (edges[:, k] for k in (0, 1) for edges in self.edges(name)))
        return Array(dtype, (count, 2), lambda: self.edges(name))

    def edges(self, name: str) -> Iterator[Ids]:
        """Yield the edges of a relation, in blocks of shape (some, 2)."""
        source, _, target = relation_of(name)
        ends, count = (self.populations[source], self.populations[target]), self.source.edges[name]
        loops = min(self.source.about.get("self_loops", 0), count) if source == target else 0
        both = source == target and bool(self.source.about.get("both_directions", 0))
        stream = 8 * list(self.source.edges).index(name)
        for block, part in enumerate(chunks(count - loops, EDGE_BLOCK)):
            size = part.stop - part.start
            edges = draw_edges(*ends, stream, block, -(-size // 2) if both else size, HOMOPHILY)
            edges = self._leave_last_alone(edges, source, target)
            if both:  # (u, v), (v, u), (u, v)... as IGB's generator appends them
                edges = np.stack((edges, edges[:, ::-1]), axis=1).reshape(-1, 2)[:size]
            yield edges
        if loops:
            nodes = KeyedPermutation(ends[0].size, (self.seed, 5)).forward(np.arange(loops) % ends[0].size)
            yield np.stack((nodes, nodes), axis=1)

    def _leave_last_alone(self, edges: Ids, source: str, target: str) -> Ids:
        """Move edges off the last node of a hundred, or one, so that ids counted by the largest id are too few."""
        for column, node_type in enumerate((source, target)):
            count = self.source.nodes[node_type]
            alone = max(1, count // 100)
            edges[:, column] -= np.where(edges[:, column] >= count - alone, alone, 0)
        return edges
