"""The graph artifact: CSC adjacency per relation, labels and splits per node type. See ``data_specs/graph.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Manifest, Relation, id_bytes, relation_key, valid_name
from tiering.artifacts.problems import Problem
from tiering.description import Part, Table
from tiering.errors import MissingError
from tiering.formats.features import EDGE_FEATURES, Features, FeatureTable, edge_feature_shape
from tiering.formats.names import Names, NodeNames
from tiering.formats.order import Order
from tiering.units import format_bytes, format_count


def relation_folder(relation: Relation) -> str:
    return "relations/" + "__".join(relation)


class _MappedArrays(Mapping[str, np.ndarray[Any, Any]]):
    """Arrays of a folder of an artifact by name, each mapped when it is looked up."""

    def __init__(self, manifest: Manifest, folder: str, names: tuple[str, ...]) -> None:
        self._manifest, self._folder, self._names = manifest, folder, names

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._names:
            raise KeyError(name)
        return self._manifest.array(f"{self._folder}/{name}")

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Graph(Artifact):
    """A heterogeneous graph, reordered or not; a homogeneous one has one node type and one relation."""

    kind = "graph"
    part_types: ClassVar[Mapping[str, type[Artifact]]] = {"features": Features, "order": Order, "names": Names}

    @property
    def node_types(self) -> list[str]:
        """Node types, in a fixed order."""
        return list(self.manifest.body["node_types"])

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type) of each relation, in a fixed order."""
        return [(r["src"], r["name"], r["dst"]) for r in self.manifest.body["relations"]]

    def num_nodes(self, node_type: str | None = None) -> int:
        """Nodes of a type; of all types if none is given."""
        if node_type is None:
            return sum(map(self.num_nodes, self.node_types))
        return int(self._node(node_type)["num_nodes"])

    def num_edges(self, relation: Relation | str | None = None) -> int:
        """Edges of a relation; of all relations if none is given."""
        if relation is None:
            return sum(int(entry["num_edges"]) for entry in self.manifest.body["relations"])
        index = self.relations.index(self.relation(relation))
        return int(self.manifest.body["relations"][index]["num_edges"])

    def relation(self, relation: Relation | str | None = None) -> Relation:
        """Resolve ``"src:name:dst"``, a bare name that is unique, or ``None`` where there is one relation."""
        if relation is None and len(self.relations) == 1:
            return self.relations[0]
        for known in self.relations:
            if relation in (known, relation_key(known)):
                return known
        named = [known for known in self.relations if known[1] == relation]
        if len(named) == 1:
            return named[0]
        known_keys = ", ".join(map(relation_key, self.relations))
        raise MissingError(f"{self.path}: no single relation {relation!r}; relations: {known_keys}")

    def csc(self, relation: Relation | str | None = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Adjacency of a relation, mapped read-only.

        Returns
        -------
        indptr : numpy.ndarray
            int64, shape (nodes of the destination type + 1,).
        indices : numpy.ndarray
            int32 or int64, shape (edges,): ``indices[indptr[v]:indptr[v + 1]]`` are the in-neighbours of v.
        """
        folder = relation_folder(self.relation(relation))
        return self.manifest.array(f"{folder}/indptr"), self.manifest.array(f"{folder}/indices")

    def edge_data(self, relation: Relation | str | None = None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Arrays that run along `indices`: ``edge_ids`` (position in the source), ``weight``, ``type``...

        Each is mapped, read-only, when it is first looked up.
        """
        resolved = self.relation(relation)
        entry = self.manifest.body["relations"][self.relations.index(resolved)]
        return _MappedArrays(self.manifest, relation_folder(resolved), tuple(entry["edge_data"]))

    def edge_feature_shape(self, relation: Relation) -> tuple[int, str] | None:
        """Dim and dtype of the features of a relation's edges (edge data ``feat``), by the manifest alone; ``None`` for
        none.
        """
        entry = self.manifest.files.get(f"{relation_folder(relation)}/{EDGE_FEATURES}")
        return None if entry is None else edge_feature_shape(entry.dtype, entry.shape)

    def edge_feature_table(self, relation: Relation) -> FeatureTable | None:
        """The features of a relation's edges as a table, its rows by position in ``indices``; ``None`` for none."""
        shape, name = self.edge_feature_shape(relation), f"{relation_folder(relation)}/{EDGE_FEATURES}"
        if shape is None:
            return None
        held, verifier = self.manifest.place(name), self.manifest.verifier(name) if self.manifest.verify else None
        return FeatureTable(
            self.path / name, self.num_edges(relation), *shape, row_order="rank", held=held, verifier=verifier
        )

    def labels(self, node_type: str | None = None) -> np.ndarray[Any, Any] | None:
        """Class of each node, int64 with -1 for none; ``None`` if the type has no labels."""
        node_type = self._only(node_type)
        name = f"nodes/{node_type}/label"
        return self.manifest.array(name) if self._node(node_type)["num_classes"] is not None else None

    def num_classes(self, node_type: str | None = None) -> int | None:
        """Number of classes, or ``None`` without labels."""
        classes = self._node(self._only(node_type))["num_classes"]
        return None if classes is None else int(classes)

    def splits(self, node_type: str | None = None) -> list[str]:
        """Names of the splits of a type, such as ``train``, ``val``, ``test``."""
        return list(self._node(self._only(node_type))["splits"])

    def split(self, name: str, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Node ids of a split, int64, in the order of the source.

        The order is kept when ids are relabelled, so that batch b of a reordered graph holds the images of batch b
        of the original.

        Raises
        ------
        MissingError
            If the type has no such split, or none was named and several types have one.
        """
        if node_type is None:
            owners = [owner for owner in self.node_types if name in self._node(owner)["splits"]]
            if len(owners) != 1:
                has = ", ".join(f"{t}: {'/'.join(self.splits(t)) or 'none'}" for t in self.node_types)
                raise MissingError(f"{self.path}: no single node type with a split {name!r} ({has})")
            node_type = owners[0]
        if name not in self._node(node_type)["splits"]:
            has = ", ".join(self.splits(node_type)) or "none"
            raise MissingError(f"{self.path}: node type {node_type!r} has no split {name!r}; splits: {has}")
        return self.manifest.array(f"nodes/{node_type}/split-{name}")

    @property
    def features(self) -> Features | None:
        """The feature tables, or ``None`` if no node type has features."""
        return cast("Features | None", self.part("features"))

    def feature_table(self, node_type: str) -> FeatureTable | None:
        """Feature table of a type, or ``None`` if it has none."""
        self._node(node_type)
        if self.features is None or node_type not in self.features.node_types:
            return None
        return self.features.table(node_type)

    def listed_table(self, node_type: str) -> dict[str, Any] | None:
        """What the features' manifest says of the table of a type, its file not looked at."""
        features = self._nested.get("features")
        table: dict[str, Any] | None = None if features is None else features.manifest.body["tables"].get(node_type)
        return table

    @property
    def order(self) -> Order | None:
        """The order this graph was relabelled by, or ``None`` for a graph in original ids."""
        return cast("Order | None", self.part("order"))

    def new_to_old(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Original id of each node of this graph; only for reordered graphs."""
        return self._ordered().new_to_old(node_type)

    def old_to_new(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Node of this graph for each original id; only for reordered graphs."""
        return self._ordered().old_to_new(node_type)

    def names(self, node_type: str | None = None) -> NodeNames | None:
        """Names of the nodes of a type by this graph's ids, and back; ``None`` if the source had numbers.

        ``graph.names().of([0, 7])`` are names, ``graph.names().find(["Q42"])`` the ids of names.
        """
        node_type = self._only(node_type)
        self._node(node_type)
        names = cast("Names | None", self.part("names"))
        if names is None or node_type not in names.node_types:
            return None
        return NodeNames(names.table(node_type), self.order, node_type)

    def node_keys(self, node_type: str) -> np.ndarray[Any, Any] | None:
        """Original ids as keys of the sampler's random numbers; ``None`` where ids are the original ones."""
        return None if self.order is None else self.order.new_to_old(node_type)

    def _ordered(self) -> Order:
        if self.order is None:
            raise MissingError(
                f"{self.path}: not a reordered graph; run `tiering reorder {self.path} --scores S --out R`"
            )
        return self.order

    def _only(self, node_type: str | None) -> str:
        if node_type is not None:
            return node_type
        if len(self.node_types) != 1:
            raise MissingError(f"{self.path}: say which node type; types: {', '.join(self.node_types)}")
        return self.node_types[0]

    def _node(self, node_type: str) -> dict[str, Any]:
        nodes: dict[str, Any] = self.manifest.body["node_types"]
        if node_type not in nodes:
            raise MissingError(f"{self.path}: no node type {node_type!r}; types: {', '.join(nodes)}")
        entry: dict[str, Any] = nodes[node_type]
        return entry

    def _body_problems(self) -> list[Problem]:
        nodes = self.manifest.body["node_types"]
        problems, seen = [] if "features" not in self._nested else self._table_problems(), set()
        problems += [] if "order" not in self._nested else self._order_problems()
        problems += [] if "names" not in self._nested else self._name_problems()
        for name in nodes:
            if not valid_name(name):
                problems.append(Problem(f"manifest.json: body.node_types.{name}", "is no name of a type", "value"))
        for entry in self.manifest.body["relations"]:
            relation = (entry["src"], entry["name"], entry["dst"])
            where = f"manifest.json: body.relations.{relation_key(relation)}"
            if relation in seen or not valid_name(entry["name"]):
                message = "stands twice" if relation in seen else "is no name of a relation"
                problems.append(Problem(where, message, "value"))
            seen.add(relation)
            if entry["src"] not in nodes or entry["dst"] not in nodes:
                problems.append(Problem(where, "names a node type that the graph does not have", "value"))
                continue
            folder = relation_folder(relation)
            problems += self._shape_problems(f"{folder}/indptr", (nodes[entry["dst"]]["num_nodes"] + 1,), ("int64",))
            stored = f"int{8 * id_bytes(nodes[entry['src']]['num_nodes'])}"
            problems += self._shape_problems(f"{folder}/indices", (entry["num_edges"],), (stored,))
            for name in entry["edge_data"]:
                problems += self._shape_problems(f"{folder}/{name}", (entry["num_edges"],), None)
        for node_type, entry in nodes.items():
            if entry["num_classes"] is not None:
                problems += self._shape_problems(f"nodes/{node_type}/label", (entry["num_nodes"],), ("int64",))
            for name in entry["splits"]:
                problems += self._shape_problems(f"nodes/{node_type}/split-{name}", None, ("int64",))
        return problems

    def _table_problems(self) -> list[Problem]:
        """Feature tables that are not one row for each node."""
        nodes, problems = self.manifest.body["node_types"], []
        for name, table in self._nested["features"].manifest.body["tables"].items():
            expected = nodes[name]["num_nodes"] if name in nodes else 0
            if table["rows"] != expected:
                message = f"expected {expected} rows, as many as nodes, found {table['rows']}"
                problems.append(Problem(f"features/manifest.json: body.tables.{name}", message, "value"))
        return problems

    def _order_problems(self) -> list[Problem]:
        """An order of other nodes than these."""
        order = self._nested["order"]
        if set(order.manifest.body["node_types"]) != set(self.node_types):
            return [Problem("order/manifest.json: body.node_types", "are not those of the graph", "value")]
        problems = []
        for name in self.node_types:
            entry, count = order.manifest.files.get(f"nodes/{name}/new_to_old"), self.num_nodes(name)
            if entry is not None and entry.shape != (count,):
                message = f"expected shape {(count,)}, found {entry.shape}"
                problems.append(Problem(f"order/nodes/{name}/new_to_old", message, "size"))
        return problems

    def _name_problems(self) -> list[Problem]:
        """Names of other nodes than these."""
        names, problems = self._nested["names"].manifest, []
        for name in names.body["node_types"]:
            entry, nodes = names.files.get(f"nodes/{name}/offsets"), self.manifest.body["node_types"]
            expected = (nodes[name]["num_nodes"] + 1,) if name in nodes else None
            if entry is not None and entry.shape != expected:
                message = f"expected shape {expected}, one more than nodes, found {entry.shape}"
                problems.append(Problem(f"names/nodes/{name}/offsets", message, "size"))
        return problems

    def _shape_problems(
        self, name: str, shape: tuple[int, ...] | None, dtypes: tuple[str, ...] | None
    ) -> list[Problem]:
        entry = self.manifest.files.get(name)
        if entry is None:
            return [Problem(f"manifest.json: files.{name}", "the file is not listed", "value")]
        if shape is not None and entry.shape[: len(shape)] != shape:
            return [Problem(name, f"expected shape {shape}, found {entry.shape}", "size")]
        if dtypes is not None and len(entry.shape) != 1:
            return [Problem(name, f"expected one axis, found shape {entry.shape}", "size")]
        if dtypes is not None and entry.dtype not in dtypes:
            return [Problem(name, f"expected dtype {' or '.join(dtypes)}, found {entry.dtype}", "value")]
        return []

    def _structure_problems(self, threads: int) -> list[Problem]:
        problems = []
        for relation in self.relations:
            indptr, _ = self.csc(relation)
            where = f"{relation_folder(relation)}/indptr"
            if indptr[0] != 0 or indptr[-1] != self.num_edges(relation):
                message = f"expected 0 .. {self.num_edges(relation)}, found {indptr[0]} .. {indptr[-1]}"
                problems.append(Problem(where, message, "value"))
            drops = np.flatnonzero(indptr[1:] < indptr[:-1])
            if drops.size:
                problems.append(Problem(where, f"decreases at {drops.size} places, first at node {drops[0]}", "value"))
        for node_type in self.node_types:
            count = self.num_nodes(node_type)
            classes, labels = self.num_classes(node_type), self.labels(node_type)
            if labels is not None and labels.size and not (-1 <= labels.min() <= labels.max() < (classes or 0)):
                message = f"expected -1 .. {(classes or 0) - 1}, found {labels.min()} .. {labels.max()}"
                problems.append(Problem(f"nodes/{node_type}/label", message, "value"))
            for name in self.splits(node_type):
                ids = self.split(name, node_type)
                if ids.size and not (0 <= ids.min() <= ids.max() < count):
                    message = f"expected ids 0 .. {count - 1}, found {ids.min()} .. {ids.max()}"
                    problems.append(Problem(f"nodes/{node_type}/split-{name}", message, "value"))
        return problems

    def _content_problems(self, threads: int) -> list[Problem]:
        from tiering import native

        problems = []
        for relation in self.relations:
            indptr, indices = self.csc(relation)
            try:
                native.check_csc(indptr, indices, self.num_nodes(relation[0]), threads)
            except ValueError as error:
                problems.append(Problem(relation_folder(relation), str(error), "value"))
        return problems

    def summary(self) -> dict[str, Any]:
        nodes = {}
        for node_type in self.node_types:
            table, described = self.feature_table(node_type), None
            if table is not None:
                described = {"dim": table.dim, "dtype": table.dtype, "row_bytes": table.row_bytes}
                described["path"] = str(table.path)
            nodes[node_type] = {
                "nodes": self.num_nodes(node_type),
                "classes": self.num_classes(node_type),
                "splits": {name: int(self.split(name, node_type).size) for name in self.splits(node_type)},
                "features": described,
            }
        relations = {
            relation_key(relation): {"edges": self.num_edges(relation), "edge_data": sorted(self.edge_data(relation))}
            for relation in self.relations
        }
        return {
            **super().summary(),
            "reordered": self.order is not None,
            "node_types": nodes,
            "relations": relations,
            "changes": self.manifest.body["changes"],
        }

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        nodes = []
        for node_type, entry in summary["node_types"].items():
            classes, features = entry["classes"], entry["features"]
            splits = ", ".join(f"{name} {format_count(size)}" for name, size in entry["splits"].items()) or "-"
            row = "-"
            if features is not None:
                row = f"{features['dim']} x {features['dtype']} = {format_bytes(features['row_bytes'])} a row"
            nodes.append((node_type, format_count(entry["nodes"]), "-" if classes is None else classes, splits, row))
        relations = [
            (key, format_count(entry["edges"]), ", ".join(entry["edge_data"]) or "-")
            for key, entry in summary["relations"].items()
        ]
        ids = "ranks of an order" if summary["reordered"] else "original ids"
        return [
            Table(f"Nodes ({ids})", ("type", "nodes", "classes", "splits", "features"), nodes),
            Table("Edges", ("relation", "edges", "edge data"), relations),
        ]
