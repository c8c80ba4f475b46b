"""The reader: edges of the dataset itself or of what GraphBolt made of them, features, and the sets of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.regular import is_there
from tiering.datasets.import_context import Detector, ImportContext, Reader
from tiering.datasets.named_arrays import (
    BLOCK_BYTES,
    EDGE_NAMES,
    EdgeArrays,
    NamedArrays,
    NodeArrays,
    SourceArray,
    edge_ends,
    make_dataset,
)
from tiering.datasets.readers.edge_list import read_text
from tiering.datasets.readers.graphbolt.metadata import META, PREPROCESSED, FileEntry, Metadata, SetEntry, read_metadata
from tiering.datasets.readers.graphbolt.topology import read_topology
from tiering.datasets.scratch import chunks
from tiering.datasets.tables import TableSink
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset

LABELS = "labels"
SEEDS = ("seeds", "seed_nodes")
"""What GraphBolt calls the nodes of a set, since 2.2 and before."""


def _places(path: Path) -> tuple[Path, list[Path]]:
    """The directory of the dataset, and its metadata: its own before that of what was preprocessed."""
    root = path.parent if path.name == PREPROCESSED and is_there(path / META, "metadata") else path
    return root, [file for file in (root / META, root / PREPROCESSED / META) if is_there(file, "metadata")]


def _open_graphbolt(path: Path, context: ImportContext) -> Dataset:
    root, files = _places(path)
    if not files:
        raise MissingError(f"{path}: expected {META} of a GraphBolt OnDiskDataset, found none; check the path")
    metas = [read_metadata(file, root) for file in files]
    meta = next((meta for meta in metas if meta.edges and _all_there(meta)), None)
    if meta is None:
        meta = next((meta for meta in metas if meta.topology is not None), None)
    if meta is None:
        missing = next((str(e.path) for m in metas for e in m.edges.values() if not e.path.exists()), "any edges")
        raise MissingError(f"{root}: expected {missing} as {files[0]} says, found nothing; get the dataset again")
    context.used(meta.path)
    target = NamedArrays(meta.name, str(root), root, context.scratch)
    for node_type, number in meta.nodes.items():
        target.nodes[node_type] = NodeArrays(num_nodes=number)
    if meta.edges:
        _put_edges(target, meta, context)
    elif meta.topology is not None:
        _put_topology(target, meta.topology.path, meta, context)
    for node_type, entries in meta.node_data.items():
        store = target.nodes.setdefault(node_type, NodeArrays())
        for entry in entries:
            store.arrays[entry.name] = entry.column(f"{entry.name} of {node_type}", context)
    _put_sets(target, meta, context)
    return make_dataset(target, context)


def _all_there(meta: Metadata) -> bool:
    return all(is_there(entry.path, "edges") for entry in meta.edges.values())


def _put_edges(target: NamedArrays, meta: Metadata, context: ImportContext) -> None:
    for relation, entry in meta.edges.items():
        src, dst = _ends(entry, relation_key(relation), context)
        target.edges.append(EdgeArrays(relation, src, dst, str(entry.path), _edge_data(relation, meta, context)))


def _edge_data(relation: Relation, meta: Metadata, context: ImportContext) -> dict[str, SourceArray]:
    """Data of edges by the names of `tiering.datasets.named_arrays`, in the order of the dataset's own edges."""
    arrays = {}
    for data in meta.edge_data.get(relation, []):
        name = "edge_weight" if data.name == "weights" else data.name
        arrays[name] = data.column(f"{data.name} of {relation_key(relation)}", context)
    return arrays


def _put_topology(target: NamedArrays, path: Path, meta: Metadata, context: ImportContext) -> None:
    """The edges that GraphBolt has sorted; with the ids that it has kept, also what belongs to them."""
    topology = read_topology(path, context)
    for node_type, number in topology.nodes.items():
        target.nodes.setdefault(node_type, NodeArrays(num_nodes=number))
    unused = []
    for edges in topology.edges:
        arrays = {}
        if edges.edge_ids is None:
            unused += [entry.name for entry in meta.edge_data.get(edges.relation, [])]
        else:
            data = _edge_data(edges.relation, meta, context)
            arrays = {
                name: _in_order(column, edges.edge_ids, edges.where, context) if name in EDGE_NAMES else column
                for name, column in data.items()
            }
        target.edges.append(EdgeArrays(edges.relation, edges.src, edges.dst, edges.where, arrays, edges.edge_ids))
    if unused:
        context.warn(
            f"{path}: its edges are in another order than the data of edges ({', '.join(unused)}), and have no ids "
            "(include_original_edge_id), so it is left out; import the dataset with its own edges to have it"
        )


def _in_order(column: SourceArray, ids: npt.NDArray[np.int64], where: str, context: ImportContext) -> SourceArray:
    """Data of edges in the order of `ids`, its places."""
    rows = column.array
    if rows.shape[:1] != ids.shape:
        raise InputError(
            f"{column.where}: expected one row for each of {ids.size} edges, found {column.dtype} {rows.shape}; "
            "correct it, or leave it out"
        )
    out = context.scratch.array(rows.shape, rows.dtype)
    for part in chunks(ids.size, max(1, BLOCK_BYTES // max(8, rows.nbytes // max(1, ids.size)))):
        places = ids[part]
        if int(places.min()) < 0 or int(places.max()) >= ids.size:
            raise InputError(f"{where}: expected ids of edges in 0..{ids.size - 1}, found others; preprocess it again")
        out[part] = rows[places]
    return SourceArray(column.where, out, column.dtype, column.path)


def _ends(entry: FileEntry, key: str, context: ImportContext) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if entry.format != "csv":
        return edge_ends(entry.column(f"edges of {key}", context))
    sink = read_text(entry.path, context)
    if not isinstance(sink, TableSink):
        raise InputError(f"{entry.path}: expected numbers as ids, as GraphBolt has them; leave --string-ids out")
    arrays = sink.arrays()
    return arrays["src"], arrays["dst"]


def _put_sets(target: NamedArrays, meta: Metadata, context: ImportContext) -> None:
    """Splits and labels of the first task whose seeds are nodes; a node outside all sets has no label."""
    for number, task in enumerate(meta.tasks):
        seeds = [(entry, _seeds(entry, context)) for entry in task]
        chosen = [(entry, column) for entry, column in seeds if column is not None]
        if not chosen:
            continue
        for other in range(len(meta.tasks)):
            if other != number:
                context.notes.setdefault("ignored_tasks", []).append(other)
        for entry, column in chosen:
            store = target.nodes.setdefault(entry.node_type, NodeArrays())
            store.arrays[f"{entry.split}_idx"] = column
        for node_type in {entry.node_type for entry, _ in chosen}:
            _put_labels(target.nodes[node_type], [pair for pair in chosen if pair[0].node_type == node_type], context)
        return
    if meta.tasks:
        context.warn(f"{meta.path}: none of its {len(meta.tasks)} tasks has nodes as seeds; there are no splits")


def _seeds(entry: SetEntry, context: ImportContext) -> SourceArray | None:
    """Node ids; ``None`` if the set is of edges."""
    file = next((entry.files[name] for name in SEEDS if name in entry.files), None)
    if file is None:
        return None
    column = file.column(f"the {entry.split} nodes of {entry.node_type}", context)
    if column.array.ndim == 1:
        column.numbers("node ids", "iu", "node ids as whole numbers")
    return column if column.array.ndim == 1 else None


def _put_labels(store: NodeArrays, sets: list[tuple[SetEntry, SourceArray]], context: ImportContext) -> None:
    """Labels of the nodes of all sets, -1 for the others; labels among the features come first."""
    labelled = [(entry.files[LABELS], seeds) for entry, seeds in sets if LABELS in entry.files]
    if not labelled or any(name in store.arrays for name in ("y", "label", LABELS)):
        return
    highest = max((int(seeds.array.max(initial=-1)) for _, seeds in labelled), default=-1)
    rows = [int(column.array.shape[0]) for column in store.arrays.values() if column.array.ndim == 2]
    count = store.num_nodes if store.num_nodes is not None else max([highest + 1, *rows])
    labels = context.scratch.array(count, np.float64)
    labels[:] = np.nan
    for file, seeds in labelled:
        values, ids = file.column("labels", context), seeds.array
        flat = values.numbers("one label for each seed", "iufb", "labels as whole numbers")
        if flat.shape != ids.shape:
            raise InputError(
                f"{values.where}: expected one label for each of {ids.shape[0]} seeds, found {values.dtype} "
                f"{values.array.shape}; correct it"
            )
        if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < count):
            raise InputError(f"{seeds.where}: expected node ids in 0..{count - 1}, found others; correct it")
        labels[ids] = flat
    path = labelled[0][0].path
    store.arrays[LABELS] = SourceArray(str(path), labels, "float64", path)


READER = Reader(
    _open_graphbolt,
    takes=frozenset({"relations", "delimiter", "header", "quoted_newlines", "comment"}),
    directory=Detector(f"{META} (graphbolt)", lambda path: bool(_places(path)[1])),
)
