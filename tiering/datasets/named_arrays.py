"""Graphs that come as named arrays by node type and relation, as PyG and DGL keep them, under the names of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.datasets.arrays import SourceArray
from tiering.datasets.edges import add_edge_values
from tiering.datasets.import_context import ImportContext, Scratch
from tiering.datasets.nodes import LabelArray, NodeArrays, make_dataset
from tiering.datasets.options import TIME_OPTIONS, node_count
from tiering.datasets.splits import read_split
from tiering.datasets.times import column_times
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.features import EDGE_FEATURES
from tiering.text.progress import note

NAMED_OPTIONS = frozenset({"relations", "num_labelled"}) | TIME_OPTIONS  # options of formats that come as named arrays
FEATURES, LABELS = ("x", "feat", "features"), ("y", "label", "labels")
SPLITS = {
    split: tuple(f"{name}_{kind}" for name in names for kind in ("mask", "idx"))
    for split, names in {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}.items()
}
EDGE_VALUES = {
    EDGE_FEATURES: ("edge_attr", "feat", "edge_feat"),
    "weight": ("edge_weight", "weight"),
    "type": ("edge_type", "type"),
}


Values = dict[str, Any]  # name -> SourceArray, or where it is and a value of any class; one that is read is taken out


@dataclass
class NamedArrays:
    """A graph as named arrays."""

    name: str
    where: str  # the file, or the object that the caller gave, for messages
    path: Path  # the file, or a name that stands for it
    scratch: Scratch
    classes: str = "integer"  # labels that are classes, see LabelArray
    nodes: dict[str, Values] = field(default_factory=dict)  # arrays by node type
    counts: dict[str, Any] = field(default_factory=dict)  # numbers of nodes that are stated
    edges: list[tuple[EdgeData, Values]] = field(default_factory=list)  # without data; arrays along them
    columns: list[SourceArray] = field(default_factory=list)  # arrays that were read
    ignored: list[str] = field(default_factory=list)  # names of values that are not read

    def wrap(self, values: Mapping[Any, Any], owner: str) -> Values:
        """Return the values of a node type or relation, `owner`, by name; ``None`` is no value."""
        return {
            str(name): (f"{self.where}: {name} of {owner}", value)
            for name, value in values.items()
            if value is not None
        }

    def take(self, arrays: Values, names: tuple[str, ...]) -> tuple[str, SourceArray | None]:
        """Remove the first of `names` from `arrays`, and return its name and the array; ``None`` if there is none."""
        name = next((name for name in names if name in arrays), "")
        column = arrays.pop(name, None)
        if isinstance(column, tuple):
            column = SourceArray.convert(column[1], column[0], self.path, self.scratch)
        self.columns += [column] if column is not None else []
        return name, column

    def take_ends(self, index: SourceArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return sources and destinations of edges of shape (2, E)."""
        array = index.array.astype(np.int64) if index.array.shape == (2, 0) else index.array
        if array.dtype.str not in ("<i4", "<i8") or array.ndim != 2 or array.shape[0] != 2:
            problem = f"expected edges of shape (2, E), int32 or int64, found {index.described}"
            raise InputError(f"{index.where}: {problem}; convert or transpose them")
        return array[0], array[1]

    def make_dataset(self, context: ImportContext) -> Dataset:
        """Return nodes and edges, checked; of the requested relations, by default of all."""
        wanted = context.options.relations
        known = {relation_key(edge.relation): (edge, arrays) for edge, arrays in self.edges}
        for name in wanted:
            if name not in known:
                raise MissingError(f"{self.where}: no relation {name}; the relations are {', '.join(known)}")
        chosen = [pair for key, pair in known.items() if not wanted or key in wanted]
        time = () if context.options.time is None else (context.options.time,)
        self._move_times(time)
        if not chosen and not self.nodes:
            raise InputError(f"{self.where}: the graph has neither nodes nor edges")
        for edge, arrays in chosen:
            for content, candidates in {**EDGE_VALUES, **({str(context.time_name): time} if time else {})}.items():
                _, column = self.take(arrays, candidates)
                if column is not None:
                    add_edge_values(edge, content, column, context)
        edges = [edge for edge, _ in chosen]
        ends = {node_type for edge in edges for node_type in edge.relation[::2]}
        types = sorted(ends if wanted else ends | set(self.nodes))
        named_nodes = {t: self.nodes.get(t, {}) for t in types}
        nodes = {t: self._take_nodes(t, named) for t, named in named_nodes.items()}
        for t, named in named_nodes.items():
            _, column = self.take(named, time)
            nodes[t].times = None if column is None else column_times(column, context)
        unread = [arrays for _, arrays in chosen] + list(named_nodes.values())
        values = (value for arrays in unread for value in arrays.values())
        self.ignored += [value[0] if isinstance(value, tuple) else value.where for value in values]
        if self.ignored:
            context.notes["ignored_arrays"] = self.ignored
            names = ", ".join(where.removeprefix(f"{self.where}: ") for where in self.ignored)
            note(
                f"note: {self.where}: not imported: {names}; the import reads x or feat, y or label, train_mask, "
                "val_mask and test_mask of nodes, and edge_attr or feat, edge_weight and edge_type of edges: rename an "
                "array that is one of these, and keep the others in your own files"
            )
        return make_dataset(self.name, nodes, edges, context)

    def _move_times(self, time: tuple[str, ...]) -> None:
        """Move times from the only node type to the only relation, if there are as many as edges and not as nodes."""
        if not time or len(self.nodes) != 1 or len(self.edges) != 1:
            return
        [(node_type, named)], [(edge, arrays)] = self.nodes.items(), self.edges
        name, column = self.take(named, time)
        if column is not None:
            features = [one[1] if isinstance(one, tuple) else one.array for one in map(named.get, FEATURES) if one]
            rows = [self.counts.get(node_type), *(one.shape[0] for one in features if hasattr(one, "shape"))]
            as_edges = column.array.shape[:1] == (edge.num_edges,) and edge.num_edges not in rows
            (arrays if as_edges else named)[name] = column

    def _take_nodes(self, node_type: str, named: Values) -> NodeArrays:
        arrays = NodeArrays()
        if node_type in self.counts:
            where = f"{self.where}: num_nodes of {node_type}"
            arrays.counts.append((where, node_count(self.counts[node_type], where)))
        _, features = self.take(named, FEATURES)
        if features is not None:
            arrays.features = features.features()
            arrays.counts.append((features.where, arrays.features.rows))
        _, labels = self.take(named, LABELS)
        if labels is not None:
            values = labels.labels()
            arrays.labels = LabelArray(labels.where, lambda _: values, values.shape[0], classes=self.classes)
        for split, names in SPLITS.items():
            name, column = self.take(named, names)
            if column is not None:
                arrays.splits |= read_split(split, column, "mask" in name)
        return arrays
