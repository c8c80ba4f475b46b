"""The sizes of a graph, of a dataset, or of a graph that does not exist yet: dry runs plan with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import FileEntry, Relation, id_bytes, relation_key, storage_dtype
from tiering.artifacts.reader import uncached_bytes
from tiering.formats.features import EDGE_FEATURES, LABEL_VALUES, FeatureTable, edge_feature_shape
from tiering.formats.graph import Graph, relation_folder

if TYPE_CHECKING:
    from tiering.formats.dataset import Dataset


@dataclass(frozen=True)
class NodeShape:
    """The nodes of a type, with the bytes of each array by file name: ``label``, ``split-train``..."""

    num_nodes: int
    arrays: dict[str, int] = field(default_factory=dict)
    table: FeatureTable | None = None  # the feature table, where it lies


@dataclass(frozen=True)
class EdgeShape:
    """The edges of a relation; `values`: bytes of an edge in each array; `uncached`: fraction not in the page cache."""

    relation: Relation
    num_edges: int
    values: dict[str, int] = field(default_factory=dict)
    features: tuple[int, str] | None = None
    uncached: float = 0.0


@dataclass(frozen=True)
class GraphShape:
    """Sizes of a graph, with methods of `Graph`, which it stands for where only sizes matter: ids may be any."""

    nodes: dict[str, NodeShape]
    edges: tuple[EdgeShape, ...]
    path: Path = Path()  # path of the graph, or of the graph to be made
    digest: str = ""

    @property
    def node_types(self) -> list[str]:
        """Node types, in the graph's order."""
        return list(self.nodes)

    @property
    def relations(self) -> list[Relation]:
        """Relations, in the graph's order."""
        return [edges.relation for edges in self.edges]

    @property
    def tables(self) -> dict[str, FeatureTable]:
        """Feature tables of the node types that have one."""
        return {name: node.table for name, node in self.nodes.items() if node.table is not None}

    @property
    def edge_tables(self) -> dict[str, FeatureTable]:
        """Features of edges by the key of their relation, where a graph at `path` has them."""
        return {
            relation_key(edges.relation): FeatureTable(
                self.path / relation_folder(edges.relation) / EDGE_FEATURES, edges.num_edges, *edges.features,
                row_order="rank",
            )
            for edges in self.edges
            if edges.features is not None
        }  # fmt: skip

    def feature_table(self, node_type: str) -> FeatureTable | None:
        """Return the feature table of a node type; ``None`` if it has none."""
        return self.nodes[node_type].table

    def num_nodes(self, node_type: str | None = None) -> int:
        """Return the nodes of a type, or of all types."""
        if node_type is None:
            return sum(node.num_nodes for node in self.nodes.values())
        return self.nodes[node_type].num_nodes

    def num_edges(self, relation: Relation | None = None) -> int:
        """Return the edges of a relation, or of all relations."""
        return sum(edges.num_edges for edges in self.edges if relation in (None, edges.relation))

    def splits(self, node_type: str) -> list[str]:
        """Return the names of a type's splits."""
        return [name.removeprefix("split-") for name in self.nodes[node_type].arrays if name.startswith("split-")]

    def split(self, name: str, node_type: str) -> npt.NDArray[np.int64]:
        """Return as many entries as the split has; they take no memory."""
        return np.broadcast_to(np.int64(0), self.nodes[node_type].arrays[f"split-{name}"] // 8)

    def num_classes(self, node_type: str) -> int | None:
        """Return 1 if there are labels, else ``None``."""
        return 1 if {"label", LABEL_VALUES} & set(self.nodes[node_type].arrays) else None

    def csc(self, relation: Relation) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return arrays of the shapes that the adjacency has; they take no memory."""
        columns = self.num_nodes(relation[2]) + 1
        return np.broadcast_to(np.int64(0), columns), np.broadcast_to(np.int32(0), self.num_edges(relation))

    def edge_bytes(self, edges: EdgeShape) -> int:
        """Return the bytes of a relation in a graph artifact."""
        source, _, destination = edges.relation
        values = id_bytes(self.nodes[source].num_nodes) + sum(edges.values.values())
        return 8 * (self.nodes[destination].num_nodes + 1) + edges.num_edges * values

    def node_bytes(self, node_type: str) -> int:
        """Return the bytes of the arrays of a node type in a graph artifact, without features."""
        return sum(self.nodes[node_type].arrays.values())

    def graph_bytes(self) -> int:
        """Return the bytes of all arrays of a graph artifact, without features and the manifest."""
        return sum(map(self.edge_bytes, self.edges)) + sum(map(self.node_bytes, self.nodes))

    def order_bytes(self) -> int:
        """Return the bytes of the order in a reordered graph: both maps and the score of each node."""
        return sum(node.num_nodes * (2 * id_bytes(node.num_nodes) + 8) for node in self.nodes.values())

    def reordered(self, path: Path, *, features: bool) -> GraphShape:
        """Return the sizes after a reorder, which writes the feature tables again with `features`."""
        nodes = dict(self.nodes)
        for name, table in self.tables.items() if features else ():
            table = replace(table, path=path / "features" / "tables" / name, offset=0, row_order="rank")
            nodes[name] = replace(nodes[name], table=table)
        return replace(self, nodes=nodes, path=path)

    @classmethod
    def of_dataset(cls, dataset: Dataset, *, edge_ids: bool = False, path: Path = Path()) -> GraphShape:
        """Return the sizes of the graph that an import of `dataset` makes at `path`."""
        nodes, relations = {}, []
        for name, data in sorted(dataset.nodes.items()):
            arrays = {} if data.labels is None else {"label": 8 * data.num_nodes}
            arrays |= {f"split-{split}": 8 * int(ids.shape[0]) for split, ids in data.splits.items()}
            arrays |= {extra: values.nbytes for extra, values in data.extra.items()}
            table = data.features
            if table is not None and not isinstance(table, FeatureTable):
                table = table.table(path / "features", name)
            nodes[name] = NodeShape(data.num_nodes, arrays, table)
        for edges in dataset.edges:
            values = {key: value_bytes(array) for key, array in edges.data.items()}
            values |= {"edge_ids": 8} if edge_ids or edges.edge_ids is not None else {}
            rows = edges.data.get(EDGE_FEATURES)
            features = None if rows is None else edge_feature_shape(rows.dtype.name, rows.shape)
            relations.append(EdgeShape(edges.relation, edges.num_edges, dict(sorted(values.items())), features))
        return cls(nodes, tuple(relations), path)

    @classmethod
    def of(cls, graph: SizedGraph, *, tables: bool = True) -> GraphShape:
        """Return the sizes of a graph; without `tables` nothing is asked of its features, whose files may be gone."""
        if isinstance(graph, GraphShape):
            return graph
        nodes, edges = {}, []
        for name in graph.node_types:
            arrays = {file: entry.bytes for file, entry in _inside(graph, f"nodes/{name}/").items()}
            nodes[name] = NodeShape(graph.num_nodes(name), arrays, graph.feature_table(name) if tables else None)
        for relation in graph.relations:
            files = _inside(graph, f"{relation_folder(relation)}/")
            values = {
                f: storage_dtype(entry.dtype).itemsize * math.prod(entry.shape[1:])
                for f, entry in files.items()
                if f not in ("indptr", "indices")
            }
            indices = graph.csc(relation)[1]
            uncached = uncached_bytes(indices) / max(1, indices.nbytes)
            features = graph.edge_feature_shape(relation)
            edges.append(EdgeShape(relation, graph.num_edges(relation), values, features, uncached))
        return cls(nodes, tuple(edges), graph.path, graph.digest)


SizedGraph: TypeAlias = Graph | GraphShape  # planning takes either


def _inside(graph: Graph, folder: str) -> dict[str, FileEntry]:
    files = graph.manifest.files.items()
    return {name.removeprefix(folder): entry for name, entry in files if name.startswith(folder)}


def value_bytes(values: np.ndarray[Any, Any]) -> int:
    """Return the bytes of one entry of an array along its first axis."""
    return int(values.dtype.itemsize * np.prod(values.shape[1:], dtype=np.int64))


def value_rows(values: npt.NDArray[Any], as_ids: bool = False) -> npt.NDArray[np.uint8]:
    """Return the entries along the first axis as rows of bytes; `as_ids` as int64. A memory map stays one."""
    whole = np.asanyarray(values, np.int64 if as_ids else None, order="C")
    return whole.reshape(-1).view(np.uint8).reshape(whole.shape[0], value_bytes(whole))
