"""Datasets that come as named arrays by node type and relation, as PyG and DGL keep them: to nodes and edges.

The names are theirs: ``x`` or ``feat`` are features, ``y`` or ``label`` labels, ``train_mask`` or ``train_idx`` splits;
of edges ``edge_attr`` or ``feat`` are features, ``edge_weight`` or ``weight`` weights. Others are recorded as ignored,
and named on standard error. A value that is no dense array is made one when it is read (`tiering.datasets.dense`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key, storage_dtype
from tiering.artifacts.mapping import map_again
from tiering.datasets.dense import dense_array, widen_rows
from tiering.datasets.edges import check_weights, listed_counts
from tiering.datasets.features import feature_dtype
from tiering.datasets.import_context import ImportContext
from tiering.datasets.labels import make_labels
from tiering.datasets.nodes import agreed_count
from tiering.datasets.options import node_count
from tiering.datasets.scratch import Scratch, chunks
from tiering.datasets.splits import SPLIT_WORDS, are_made, as_mask, check_splits, make_splits, split_ids
from tiering.errors import InputError, MissingError
from tiering.formats.features import EDGE_FEATURES, FEATURE_DTYPES, FeatureTable
from tiering.formats.npy_file import as_column
from tiering.formats.protocols import Dataset, EdgeData, FeatureStream, GraphSoFar, NodeData
from tiering.progress import note

FEATURES, LABELS = ("x", "feat", "features"), ("y", "label", "labels")
SPLITS = {
    split: tuple(f"{name}_{kind}" for name in names for kind in ("mask", "idx"))
    for split, names in {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}.items()
}
EDGE_ROWS = ("edge_attr", "feat", "edge_feat")
EDGE_VALUES = {"weight": ("edge_weight", "weight"), "type": ("edge_type", "type")}
EDGE_NAMES = frozenset(EDGE_ROWS).union(*EDGE_VALUES.values())
"""Names of data of edges that are read."""
BLOCK_BYTES = 8 << 20
"""Rows that are copied together."""


@dataclass(frozen=True, eq=False)
class SourceArray:
    """An array of a dataset, and where its rows lie."""

    where: str
    """For messages."""
    array: npt.NDArray[Any]
    """``bfloat16`` as ``uint16``."""
    dtype: str
    path: Path
    """The file that holds it, or what stands for it."""
    offset: int | None = None
    """Bytes of the file before row 0, if the rows lie there one behind the other."""

    @classmethod
    def of(cls, value: Any, where: str, path: Path, scratch: Scratch) -> SourceArray:
        """A value of a file, or in memory, as a dense array; see `tiering.datasets.dense.dense_array`."""
        array, dtype = dense_array(value, where, scratch)
        array, offset = map_again(array, path)
        return cls(where, array, dtype, path, offset if array.flags.c_contiguous else None)

    def numbers(self, what: str, kinds: str, words: str) -> npt.NDArray[Any]:
        """Return the array as one column of numbers: see `tiering.formats.npy_file.as_column`."""
        return as_column(widen_rows(self.array, self.dtype), self.where, what, kinds, words)


class NamedValue(NamedTuple):
    """A value as the dataset holds it: a tensor, a sparse matrix, a list or anything else; its name for messages."""

    where: str
    value: Any


@dataclass
class NodeArrays:
    """What is known of the nodes of a type."""

    arrays: dict[str, Any] = field(default_factory=dict)
    """Name -> `SourceArray` or `NamedValue`; what is read is taken out."""
    num_nodes: Any = None
    """Stated by the dataset; ``None`` if it states none."""


@dataclass
class EdgeArrays:
    """The edges of a relation, one row of each array for each edge."""

    relation: Relation
    src: npt.NDArray[Any]
    dst: npt.NDArray[Any]
    where: str
    arrays: dict[str, Any] = field(default_factory=dict)
    edge_ids: npt.NDArray[np.int64] | None = None


@dataclass
class NamedArrays:
    """A dataset as named arrays."""

    name: str
    where: str
    """The file, or what the caller gave, for messages."""
    path: Path
    """The file, or what stands for it."""
    scratch: Scratch
    nodes: dict[str, NodeArrays] = field(default_factory=dict)
    edges: list[EdgeArrays] = field(default_factory=list)
    columns: list[SourceArray] = field(default_factory=list)
    """Those that were read."""
    ignored: list[str] = field(default_factory=list)
    """Names of values that are not read."""

    def named(self, values: Mapping[Any, Any], owner: str) -> dict[str, NamedValue]:
        """The values of a node type or relation, `owner`, by name; ``None`` is no value."""
        return {
            str(name): NamedValue(f"{self.where}: {name} of {owner}", value)
            for name, value in values.items()
            if value is not None
        }

    def take(self, arrays: dict[str, Any], names: tuple[str, ...]) -> tuple[str, SourceArray | None]:
        """Take the first of `names` out of `arrays`: its name and the column; ``None`` if there is none."""
        name = next((name for name in names if name in arrays), "")
        column = arrays.pop(name, None)
        if isinstance(column, NamedValue):
            column = SourceArray.of(column.value, column.where, self.path, self.scratch)
        self.columns += [column] if column is not None else []
        return name, column


def edge_ends(index: SourceArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Sources and destinations of edges of shape (2, E)."""
    array = index.array.astype(np.int64) if index.array.shape == (2, 0) else index.array
    if array.dtype.str not in ("<i4", "<i8") or array.ndim != 2 or array.shape[0] != 2:
        raise InputError(
            f"{index.where}: expected edges of shape (2, E), int32 or int64, found {index.dtype} {array.shape}; "
            "convert or transpose them"
        )
    return array[0], array[1]


def make_dataset(target: NamedArrays, context: ImportContext) -> Dataset:
    """Nodes and edges of named arrays, checked; of the relations asked for, all if none is."""
    chosen = _chosen(target, context.options.relations)
    if not chosen and not target.nodes:
        raise InputError(f"{target.where}: expected a graph, found neither nodes nor edges")
    edges = [_edges(store, target, context) for store in chosen]
    ends = {t for store in chosen for t in (store.relation[0], store.relation[2])}
    types = sorted(ends if context.options.relations else ends | set(target.nodes))
    context.notes["node_types"] = types
    nodes = {t: _nodes(t, target.nodes.get(t, NodeArrays()), edges, target, context) for t in types}
    target.ignored += [value.where for store in chosen for value in store.arrays.values()]
    target.ignored += [value.where for t in types if t in target.nodes for value in target.nodes[t].arrays.values()]
    if target.ignored:
        context.notes["ignored_arrays"] = target.ignored
        names = ", ".join(where.removeprefix(f"{target.where}: ") for where in target.ignored)
        note(
            f"note: {target.where}: not imported: {names}; a graph takes x or feat, y or label, train_mask, val_mask, "
            "test_mask of nodes, edge_attr or feat, edge_weight, edge_type of edges: rename what is one of these, and "
            "keep the rest in files of your own"
        )
    return context.dataset(target.name, nodes, edges)


def _chosen(target: NamedArrays, wanted: tuple[str, ...]) -> list[EdgeArrays]:
    known = {relation_key(store.relation): store for store in target.edges}
    for name in wanted:
        if name not in known:
            raise MissingError(f"{target.where}: no relation {name}; there are: {', '.join(known)}")
    return [store for key, store in known.items() if not wanted or key in wanted]


def _edges(store: EdgeArrays, target: NamedArrays, context: ImportContext) -> EdgeData:
    edges = EdgeData(store.relation, store.src, store.dst, store.where, edge_ids=store.edge_ids)
    count = edges.num_edges
    for held, names in {EDGE_FEATURES: EDGE_ROWS, **EDGE_VALUES}.items():
        _, column = target.take(store.arrays, names)
        if column is None:
            continue
        if column.array.shape[:1] != (count,):
            raise InputError(
                f"{column.where}: expected one row for each of {count} edges, found {column.dtype} "
                f"{column.array.shape}; correct it, or leave it out"
            )
        if held == EDGE_FEATURES:
            rows, _ = _rows(column)
            edges.data[held] = _compact(rows.view(storage_dtype(_dtype(column))), context)
        else:
            kinds = ("iuf", "numbers") if held == "weight" else ("iu", "whole numbers")
            edges.data[held] = column.numbers("one value per edge", *kinds)
        if held == "weight":
            check_weights(edges.data[held], column.where)
    return edges


def _nodes(
    node_type: str, store: NodeArrays, edges: list[EdgeData], target: NamedArrays, context: ImportContext
) -> NodeData:
    _, features = target.take(store.arrays, FEATURES)
    _, labels = target.take(store.arrays, LABELS)
    masks: dict[str, SourceArray] = {}
    for split, names in SPLITS.items():
        name, column = target.take(store.arrays, names)
        if column is not None:
            values = column.numbers("node ids or a mask", "biu", SPLIT_WORDS)
            masks[split] = replace(
                column, array=as_mask(values, column.where, values.size) if "mask" in name else values
            )
    count = _count(node_type, store, [c for c in (features, labels) if c is not None], masks, edges, target, context)
    nodes = NodeData(count, None if features is None else _features(features))
    if labels is not None:
        values = labels.numbers("one label per node", "iufb", "labels as whole numbers")
        nodes.labels, nodes.num_classes = make_labels(values, labels.where, count, context)
    for split, column in masks.items():
        nodes.splits[split] = split_ids(column.array, column.where, count)
    if are_made(nodes.labels, context):
        if nodes.splits:
            context.notes["splits_replaced"] = sorted(column.where for column in masks.values())
        nodes.splits = make_splits(nodes.labels, count, context, target.where)
    elif nodes.splits.get("train", np.ones(1)).size == 0:
        raise InputError(
            f"{masks['train'].where}: the train set is empty; expected 1 or more nodes; correct it, or make splits "
            "with --split 0.6,0.2,0.2"
        )
    check_splits(nodes.splits, nodes.labels, count, node_type, context)
    return nodes


def _count(
    node_type: str,
    store: NodeArrays,
    rows: list[SourceArray],
    masks: dict[str, SourceArray],
    edges: list[EdgeData],
    target: NamedArrays,
    context: ImportContext,
) -> int:
    """The number of nodes that all say, or the largest id + 1."""
    asked = context.options.num_nodes.get(node_type)
    counts = [] if asked is None else [("--num-nodes", asked)]
    if store.num_nodes is not None:
        where = f"{target.where}: num_nodes of {node_type}"
        counts.append((where, node_count(store.num_nodes, where)))
    counts += [(column.where, int(column.array.shape[0])) for column in rows if column.array.ndim]
    counts += [(c.where, int(c.array.shape[0])) for c in masks.values() if c.array.dtype == np.bool_]
    counts += listed_counts(node_type, edges)
    return agreed_count(node_type, counts, edges, context)


def _dtype(column: SourceArray) -> str:
    """Name of the element type of features; what torch calls uint16 is no bfloat16."""
    if column.dtype in ("uint16", "uint32", "uint64"):
        raise InputError(f"{column.where}: expected features of {', '.join(FEATURE_DTYPES)}, found {column.dtype}")
    return column.dtype if column.dtype == "bfloat16" else feature_dtype(column.where, column.array.dtype)


def _rows(column: SourceArray) -> tuple[npt.NDArray[Any], int]:
    """The array as rows, and values per row."""
    array = column.array
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise InputError(
            f"{column.where}: expected features of shape (rows, dim), found {column.dtype} {array.shape}; reshape "
            "them, or leave them out"
        )
    dim = array.shape[1] if array.ndim == 2 else 1
    return (array if array.ndim == 2 else array[:, None]), dim


def _features(column: SourceArray) -> FeatureTable | FeatureStream:
    """Features where they lie, or rows that are copied into the graph."""
    dtype = _dtype(column)
    rows, dim = _rows(column)
    if column.offset is not None:
        return FeatureTable(column.path, rows.shape[0], dim, dtype, column.offset)
    step = max(1, BLOCK_BYTES // (rows.dtype.itemsize * dim))

    def pieces(begin: int, _: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        for part in chunks(rows.shape[0] - begin, step):
            piece = rows[begin + part.start : begin + part.stop]
            yield begin + part.start, np.ascontiguousarray(piece).view(storage_dtype(dtype))

    return FeatureStream(rows.shape[0], dim, dtype, pieces, "copied", min(rows.nbytes, BLOCK_BYTES), rows.nbytes)


def _compact(rows: npt.NDArray[Any], context: ImportContext) -> npt.NDArray[Any]:
    """The same rows, one behind the other."""
    if rows.flags.c_contiguous:
        return rows
    out = context.scratch.array(rows.shape, rows.dtype)
    for part in chunks(rows.shape[0]):
        out[part] = rows[part]
    return out
