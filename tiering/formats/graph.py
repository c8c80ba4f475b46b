"""The graph artifact: CSC adjacency per relation, labels and splits per node type. See ``data_specs/graph.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import (
    MappedArrays,
    Problem,
    Relation,
    array_problems,
    body_problem,
    id_bytes,
    named_relations,
    range_problems,
    relation_key,
    valid_name,
)
from tiering.errors import FormatError, MissingError, RefusedError
from tiering.formats.features import EDGE_FEATURES, LABEL_VALUES, Features, FeatureTable, edge_feature_shape
from tiering.formats.import_record import describe_import
from tiering.formats.names import Names, NodeNames, NodeNumbers
from tiering.formats.order import Order
from tiering.formats.times import GraphTime, declared_time_problems, time_problems
from tiering.text.description import Fields, Part, Table
from tiering.text.units import format_bytes, format_count

_NO_SPLIT = (
    "give the node type if several have it, or the nodes (seeds=IDS of loaders, --train of `tiering trace`); "
    "--train of `tiering score`, and --split and --split-column of `tiering import`, record a split"
)


def relation_folder(relation: Relation) -> str:
    """Return a relation's folder in a graph: ``relations/SRC__NAME__DST``."""
    return "relations/" + "__".join(relation)


def find_relation(path: Path, known: list[Relation], relation: Relation | str | None) -> Relation:
    """Return the one relation of that key, name or pair of types, or the only one; `MissingError` otherwise."""
    named = known if relation is None else named_relations(known, relation)
    if len(named) != 1:
        keys = ", ".join(map(relation_key, known))
        raise MissingError(f"{path}: no single relation {relation!r}; relations: {keys}")
    return named[0]


class Graph(Artifact):
    """A heterogeneous graph, reordered or not; a homogeneous one has one node type and one relation."""

    kind = "graph"
    part_types = (Features.kind, Order.kind, Names.kind)

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type) of each relation, in a fixed order."""
        return [(r["src"], r["name"], r["dst"]) for r in self.manifest.body["relations"]]

    def num_nodes(self, node_type: str | None = None) -> int:
        """Return the number of nodes of a type, by default of all types."""
        if node_type is None:
            return sum(map(self.num_nodes, self.node_types))
        return int(self._node(node_type)["num_nodes"])

    def num_edges(self, relation: Relation | str | None = None) -> int:
        """Return the number of edges of a relation, by default of all relations."""
        if relation is None:
            return sum(int(entry["num_edges"]) for entry in self.manifest.body["relations"])
        index = self.relations.index(self.relation(relation))
        return int(self.manifest.body["relations"][index]["num_edges"])

    def relation(self, relation: Relation | str | None = None) -> Relation:
        """Return the relation of a key ``"src:name:dst"``, a unique name or pair of types; ``None``: the only one."""
        return find_relation(self.path, self.relations, relation)

    def csc(self, relation: Relation | str | None = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the adjacency of a relation, mapped read-only: ``indptr`` (int64) and ``indices`` (int32 or int64).

        The in-neighbors of v are ``indices[indptr[v]:indptr[v + 1]]``.
        """
        folder = relation_folder(self.relation(relation))
        return self.manifest.array(f"{folder}/indptr"), self.manifest.array(f"{folder}/indices")

    def to_scipy(self, relation: Relation | str | None = None, values: str | None = None) -> Any:
        """Return a relation as a ``scipy.sparse.csc_array`` of shape (source nodes, destination nodes).

        Entry (i, j) is the edge i -> j, so `import_graph` takes it back; several edges between two nodes stay several
        entries. `values` names edge data of one number per edge; by default each edge counts 1, float32. Ids are mapped
        from the artifact, read-only, where scipy takes their dtype. Cost: reads ``indptr``; memory of 4 bytes per edge
        without `values`, and of 8 where ids are of 32 bits and the relation has 2^31 edges or more.
        """
        from scipy.sparse import csc_array

        relation = self.relation(relation)
        (indptr, indices), known = self.csc(relation), self.edge_data(relation)
        if values is not None and (values not in known or known[values].ndim != 1):
            names = ", ".join(name for name in known if known[name].ndim == 1) or "none"
            raise MissingError(f"{self.path}: {relation_key(relation)} has no edge data {values!r}; it has {names}")
        data = np.ones(indices.size, np.float32) if values is None else known[values]
        if indices.size < 2**31:  # scipy wants one dtype for both, and would copy the longer one
            indptr = indptr.astype(indices.dtype)
        return csc_array((data, indices, indptr), shape=(self.num_nodes(relation[0]), self.num_nodes(relation[2])))

    def edge_data(self, relation: Relation | str | None = None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return arrays that run along `indices`: ``edge_ids``, ``weight``, ``type``..., mapped when looked up."""
        resolved = self.relation(relation)
        entry, folder = self.manifest.body["relations"][self.relations.index(resolved)], relation_folder(resolved)
        return MappedArrays(self.manifest, {name: f"{folder}/{name}" for name in entry["edge_data"]})

    @property
    def time(self) -> GraphTime | None:
        """Name, kind, dtype and unit of the times; ``None`` for a graph that was imported without."""
        return GraphTime.of(self.manifest)

    def times(self, relation: Relation | str | None = None) -> np.ndarray[Any, Any] | None:
        """Return the time of each entry of `indices`, or of its source, ascending in each list; ``None`` if untimed."""
        return self._times(relation_folder(self.relation(relation)))

    def node_times(self, node_type: str | None = None) -> np.ndarray[Any, Any] | None:
        """Return the time of each node of a type; ``None``: the nodes have no times of their own."""
        return self._times(f"nodes/{self._resolve_type(node_type)}")

    def _times(self, folder: str) -> np.ndarray[Any, Any] | None:
        name = None if self.time is None else f"{folder}/{self.time.name}"
        return self.manifest.array(name) if name in self.manifest.files else None

    def edge_feature_shape(self, relation: Relation) -> tuple[int, str] | None:
        """Return dim and dtype of the features of a relation's edges (edge data ``feat``), if there are any."""
        entry = self.manifest.files.get(f"{relation_folder(relation)}/{EDGE_FEATURES}")
        return None if entry is None else edge_feature_shape(entry.dtype, entry.shape)

    def edge_feature_table(self, relation: Relation) -> FeatureTable | None:
        """Return the features of a relation's edges, rows by position in ``indices``, if there are any."""
        shape, name = self.edge_feature_shape(relation), f"{relation_folder(relation)}/{EDGE_FEATURES}"
        if shape is None:
            return None
        manifest = self.manifest
        verifier = manifest.verifier(name) if manifest.verify else None
        return FeatureTable(
            self.path / name, self.num_edges(relation), *shape, row_order="rank", opener=partial(manifest.place, name),
            verifier=verifier, owner=manifest.held,
        )  # fmt: skip

    def labels(self, node_type: str | None = None) -> np.ndarray[Any, Any] | None:
        """Return the class of each node, int64 with -1 for none; ``None`` if the type has no labels.

        Labels that are not classes, numbers of shape (nodes,) or (nodes, C), stay as in the source.
        """
        node_type = self._resolve_type(node_type)
        name = LABEL_VALUES if self.has_label_values(node_type) else "label"
        return None if self.num_classes(node_type) is None else self.manifest.array(f"nodes/{node_type}/{name}")

    def has_label_values(self, node_type: str) -> bool:
        """Return whether a type has labels that are not classes."""
        return f"nodes/{node_type}/{LABEL_VALUES}" in self.manifest.files

    def num_classes(self, node_type: str | None = None) -> int | None:
        """Return the number of classes, or of label columns that are not classes; ``None`` without labels."""
        node_type = self._resolve_type(node_type)
        if self.has_label_values(node_type):
            return int((*self.manifest.files[f"nodes/{node_type}/{LABEL_VALUES}"].shape, 1)[1])
        classes = self._node(node_type)["num_classes"]
        return None if classes is None else int(classes)

    def splits(self, node_type: str | None = None) -> list[str]:
        """Return the names of the splits of a type, such as ``train``, ``val``, ``test``."""
        return list(self._node(node_type)["splits"])

    def split(self, name: str, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return the node ids of a split, int64, in the order of the source, also where ids are relabeled."""
        if node_type is None:
            owners = [owner for owner in self.node_types if name in self._node(owner)["splits"]]
            if len(owners) != 1 and len(self.node_types) > 1:
                has = ", ".join(f"{t}: {'/'.join(self.splits(t)) or 'none'}" for t in self.node_types)
                raise MissingError(f"{self.path}: no single node type with a split {name!r} ({has}); {_NO_SPLIT}")
            node_type = owners[0] if owners else self.node_types[0]
        if name not in self._node(node_type)["splits"]:
            known = self.splits(node_type)
            near = [f"; did you mean {split!r}?" for split in known if name.startswith(split) or split.startswith(name)]
            raise MissingError(
                f"{self.path}: node type {node_type!r} has no split {name!r}; splits: {', '.join(known) or 'none'}"
                f"{near[0] if near else f'; {_NO_SPLIT}'}"
            )
        return self.manifest.array(f"nodes/{node_type}/split-{name}")

    @property
    def features(self) -> Features | None:
        """The feature tables, or ``None`` if no node type has features."""
        return cast("Features | None", self.part("features"))

    def feature_table(self, node_type: str) -> FeatureTable | None:
        """Return the feature table of a type, or ``None`` if it has none."""
        self._resolve_type(node_type)
        if self.features is None or node_type not in self.features.node_types:
            return None
        return self.features.table(node_type)

    @property
    def order(self) -> Order | None:
        """The order this graph was relabeled by, or ``None`` for a graph in original ids."""
        return cast("Order | None", self.part("order"))

    def new_to_old(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return the original id of each node of a reordered graph."""
        return self._ordered().new_to_old(node_type)

    def old_to_new(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return the node id in a reordered graph for each original id."""
        return self._ordered().old_to_new(node_type)

    def names(self, node_type: str | None = None) -> NodeNames | NodeNumbers | None:
        """Return names, or other numbers, of nodes in the source by this graph's ids; ``None``: as in `new_to_old`."""
        node_type = self._resolve_type(node_type)
        names, file = cast("Names | None", self.part("names")), f"nodes/{node_type}/original_id"
        if names is not None and node_type in names.node_types:
            return NodeNames(names.table(node_type), self.order, node_type)
        if file in self.manifest.files:
            numbers, first = self.manifest.array(file), 0
        elif first := self.manifest.body["changes"].get("options", {}).get("first_id", 0):
            numbers = np.arange(self.num_nodes(node_type)) if self.order is None else self.new_to_old(node_type)
        else:
            return None
        return NodeNumbers(numbers, first, node_type) if numbers.ndim == 1 and numbers.dtype.kind in "iu" else None

    def node_keys(self, node_type: str) -> np.ndarray[Any, Any] | None:
        """Return original ids as keys of the sampler's random numbers; ``None`` where ids are the original ones."""
        return None if self.order is None else self.order.new_to_old(node_type)

    def _ordered(self) -> Order:
        if self.order is None:
            advice = f"run `tiering reorder {self.path} --scores S --out R`"
            raise MissingError(f"{self.path}: not a reordered graph; {advice}")
        return self.order

    def _node(self, node_type: str | None) -> Any:
        return self.manifest.body["node_types"][self._resolve_type(node_type)]

    def _body_problems(self) -> Iterator[Problem]:
        nodes, manifest, seen = self.manifest.body["node_types"], self.manifest, set()
        yield from (*self._part_problems(), *declared_time_problems(self, list(map(relation_folder, self.relations))))
        for name in nodes:
            if not valid_name(name):
                yield body_problem(f"body.node_types.{name}", "is not a valid name of a type")
        for entry in manifest.body["relations"]:
            relation = (entry["src"], entry["name"], entry["dst"])
            where = f"body.relations.{relation_key(relation)}"
            if relation in seen or not valid_name(entry["name"]):
                yield body_problem(where, "occurs twice" if relation in seen else "is not a valid name of a relation")
            seen.add(relation)
            if entry["src"] not in nodes or entry["dst"] not in nodes:
                yield body_problem(where, "names a node type that the graph does not have")
                continue
            folder, count = relation_folder(relation), (entry["num_edges"],)
            columns, stored = nodes[entry["dst"]]["num_nodes"], f"int{8 * id_bytes(nodes[entry['src']]['num_nodes'])}"
            yield from array_problems(manifest, f"{folder}/indptr", (columns + 1,), ["int64"])
            yield from array_problems(manifest, f"{folder}/indices", count, [stored])
            for name in entry["edge_data"]:
                yield from array_problems(manifest, f"{folder}/{name}", count)
        for node_type, entry in nodes.items():
            if entry["num_classes"] is not None:
                yield from array_problems(manifest, f"nodes/{node_type}/label", (entry["num_nodes"],), ["int64"])
            elif (values := manifest.files.get(path := f"nodes/{node_type}/{LABEL_VALUES}")) is not None:
                yield from array_problems(manifest, path, (entry["num_nodes"], *values.shape[1:2]))
            for name in entry["splits"]:
                yield from array_problems(manifest, f"nodes/{node_type}/split-{name}", None, ["int64"])

    def _part_problems(self) -> Iterator[Problem]:
        nodes, parts = self.manifest.body["node_types"], self._nested
        counts = {name: entry["num_nodes"] for name, entry in nodes.items()}
        if (features := parts.get("features")) is not None:
            for name, table in features.manifest.body["tables"].items():
                if table["rows"] != counts.get(name, 0):
                    message = f"expected one row per node, {counts.get(name, 0)}, found {table['rows']}"
                    yield Problem(f"features/manifest.json: body.tables.{name}", message, "value")
        order, names = parts.get("order"), parts.get("names")
        if order is not None and set(order.manifest.body["node_types"]) != set(nodes):
            yield Problem("order/manifest.json: body.node_types", "differ from the graph's node types", "value")
            return
        for part, file, more in ((order, "new_to_old", 0), (names, "offsets", 1)):
            if part is None:
                continue
            for name in part.manifest.body["node_types"]:
                path, expected = f"nodes/{name}/{file}", (counts[name] + more,) if name in counts else None
                entry = part.manifest.files.get(path)
                if entry is not None and entry.shape != expected:
                    message = f"expected shape {expected}{', one more than nodes' if more else ''}, found {entry.shape}"
                    yield Problem(f"{part.kind}/{path}", message, "size")

    def _structure_problems(self) -> Iterator[Problem]:
        for relation in self.relations:
            indptr, _ = self.csc(relation)
            where = f"{relation_folder(relation)}/indptr"
            if indptr[0] != 0 or indptr[-1] != self.num_edges(relation):
                message = f"expected 0 .. {self.num_edges(relation)}, found {indptr[0]} .. {indptr[-1]}"
                yield Problem(where, message, "value")
            drops = np.flatnonzero(indptr[1:] < indptr[:-1])
            if drops.size:
                yield Problem(where, f"decreases at {drops.size} positions, first at node {drops[0]}", "value")
        for node_type in self.node_types:
            folder = f"nodes/{node_type}"
            if (labels := self.labels(node_type)) is not None and not self.has_label_values(node_type):
                yield from range_problems(f"{folder}/label", "", labels, -1, self.num_classes(node_type) or 0)
            for name in self.splits(node_type):
                ids = self.split(name, node_type)
                yield from range_problems(f"{folder}/split-{name}", "ids ", ids, 0, self.num_nodes(node_type))

    def _content_problems(self, threads: int) -> Iterator[Problem]:
        from tiering import native

        for relation in self.relations:
            indptr, indices = self.csc(relation)
            try:
                native.check_csc(indptr, indices, self.num_nodes(relation[0]), threads)
            except ValueError as error:
                yield Problem(relation_folder(relation), str(error), "value")
                continue
            yield from time_problems(self, relation, relation_folder(relation))

    def _split_size(self, name: str, node_type: str) -> int:
        return self.manifest.files[f"nodes/{node_type}/split-{name}"].shape[0]

    def _summarize_content(self) -> dict[str, Any]:
        nodes = {}
        for node_type in self.node_types:
            table, features = self.feature_table(node_type), None
            if table is not None:
                features = {name: getattr(table, name) for name in ("dim", "dtype", "row_bytes")}
                features["path"] = str(table.path)
            nodes[node_type] = {
                "nodes": self.num_nodes(node_type),
                "classes": self.num_classes(node_type),
                "splits": {name: self._split_size(name, node_type) for name in self.splits(node_type)},
                "features": features,
            }
        relations = {
            relation_key(key): {"edges": self.num_edges(key), "edge_data": sorted(self.edge_data(key))}
            for key in self.relations
        }
        changes = self.manifest.changes
        time = {} if self.time is None else {"time": self.time._asdict()}
        parts = {"node_types": nodes, "relations": relations, "changes": changes, **time}
        return {"reordered": self.order is not None, **parts}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        nodes = []
        for node_type, entry in summary["node_types"].items():
            classes, features = entry["classes"], entry["features"]
            splits = ", ".join(f"{name} {format_count(size)}" for name, size in entry["splits"].items()) or "-"
            row = "-"
            if features is not None:
                row = f"{features['dim']} x {features['dtype']} = {format_bytes(features['row_bytes'])} per row"
            nodes.append((node_type, format_count(entry["nodes"]), "-" if classes is None else classes, splits, row))
        relations = [
            (key, format_count(entry["edges"]), ", ".join(entry["edge_data"]) or "-")
            for key, entry in summary["relations"].items()
        ]
        inputs = summary["provenance"].get("inputs", {})
        read = {} if summary["reordered"] else describe_import(summary, inputs)  # once, not after each later stage
        ids = "ids are ranks" if summary["reordered"] else "ids of the source"
        return [
            *([Fields(read, "Import")] if read else []),
            Table(f"Nodes ({ids})", ("type", "nodes", "classes", "splits", "features"), nodes),
            Table("Edges", ("relation", "edges", "edge data"), relations),
        ]


@contextmanager
def graph_errors(graph: Graph, relation: Relation | None = None) -> Iterator[None]:
    """Turn the core's `RefusedError` into a `FormatError` that names the graph and the relation."""
    try:
        yield
    except RefusedError as error:
        if error.relation >= 0:
            relation = graph.relations[error.relation]
        place = "" if relation is None else f"relation {relation_key(relation)}: "
        raise FormatError(f"{graph.path}: {place}{error}; {damaged(graph.path)}") from error


def take_by_rank(
    values: np.ndarray[Any, Any], graph: Graph, node_type: str, begin: int = 0, end: int | None = None
) -> np.ndarray[Any, Any]:
    """Return `values` of original nodes by the ranks [begin, end) of a reordered graph."""
    order = f"order of node type {node_type!r}"
    ids = checked_range(graph.new_to_old(node_type)[begin:end], values.shape[0], graph, order, begin=begin)
    return cast("np.ndarray[Any, Any]", values[ids])


def checked_range(
    values: np.ndarray[Any, Any], end: int, graph: Graph, what: str, *, least: int = 0, begin: int = 0
) -> np.ndarray[Any, Any]:
    """Return values that a graph's file holds from entry `begin` on; `FormatError` if one is not in [least, end)."""
    if values.size and not least <= values.min() <= values.max() < end:
        at = np.flatnonzero((values < least) | (values >= end))[0]
        raise FormatError(
            f"{graph.path}: {what}: entry {begin + at} is {values[at]}, expected {least}..{end - 1}; "
            f"{damaged(graph.path)}"
        )
    return values


def checked_split(graph: Graph, split: str, node_type: str | None = None) -> np.ndarray[Any, Any]:
    """Return the ids of a split, each of them a node."""
    ids = graph.split(split, node_type)
    owner = node_type or next(owner for owner in graph.node_types if split in graph.splits(owner))
    return checked_range(ids, graph.num_nodes(owner), graph, f"split {split!r} of node type {owner!r}")


def checked_labels(graph: Graph, node_type: str) -> np.ndarray[Any, Any] | None:
    """Return the class of each node, -1 for none, or values of each; ``None`` if the type has no labels."""
    labels, what = graph.labels(node_type), f"labels of node type {node_type!r}"
    if labels is None or graph.has_label_values(node_type):
        return labels
    return checked_range(labels, graph.num_classes(node_type) or 0, graph, what, least=-1)


def checked_lists(graph: Graph, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return `Graph.csc`, the offsets in order; `FormatError` if they are not."""
    from tiering import native

    indptr, indices = graph.csc(relation)
    with graph_errors(graph, relation):
        native.check_indptr(indptr, indices.shape[0])
    return indptr, indices


def damaged(path: object) -> str:
    """Return the end of a message about a graph that is damaged."""
    return f"the graph is damaged: run `tiering check {path} --full`"
