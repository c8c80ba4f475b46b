"""The reader: edges of the dataset itself or those that GraphBolt has sorted, features, and the sets of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.regular import file_exists
from tiering.datasets.arrays import BLOCK_BYTES, SourceArray
from tiering.datasets.import_context import Detector, ImportContext, Reader
from tiering.datasets.named_arrays import EDGE_NAMES, NAMED_OPTIONS, NamedArrays, NamedEdges, NamedNodes
from tiering.datasets.readers.edge_list import read_text
from tiering.datasets.readers.graphbolt.metadata import META, PREPROCESSED, DataFile, Metadata, NodeSet, read_metadata
from tiering.datasets.readers.graphbolt.topology import read_topology
from tiering.datasets.scratch import chunks
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset

LABELS = "labels"
SEEDS = ("seeds", "seed_nodes")  # GraphBolt's names of the nodes of a set, since 2.2 and before


def _find_metadata(path: Path) -> tuple[Path, list[Path]]:
    """Return the directory of the dataset, and its metadata: its own before those of what was preprocessed."""
    root = path.parent if path.name == PREPROCESSED and file_exists(path / META, "metadata") else path
    return root, [file for file in (root / META, root / PREPROCESSED / META) if file_exists(file, "metadata")]


def _open_graphbolt(path: Path, context: ImportContext) -> Dataset:
    root, files = _find_metadata(path)
    if not files:
        raise MissingError(f"{path}: expected {META} of a GraphBolt OnDiskDataset, found none; check the path")
    metas = [read_metadata(file, root) for file in files]
    own = [meta for meta in metas if meta.edges and all(file_exists(e.path, "edges") for e in meta.edges.values())]
    usable = own + [meta for meta in metas if meta.topology is not None]
    if not usable:
        missing = next((str(e.path) for m in metas for e in m.edges.values() if not e.path.exists()), "any edges")
        raise MissingError(f"{root}: expected {missing} as {files[0]} says, found nothing; get the dataset again")
    meta = usable[0]
    context.record_file(meta.path)
    target = NamedArrays(meta.name, str(root), root, context.scratch)
    target.nodes = {node_type: NamedNodes(num_nodes=number) for node_type, number in meta.nodes.items()}
    if meta.edges:
        for relation, file in meta.edges.items():
            src, dst = _read_ends(file, relation_key(relation), target, context)
            arrays = _read_edge_data(relation, meta, context)
            target.edges.append(NamedEdges(relation, src, dst, str(file.path), arrays))
    elif meta.topology is not None:
        _add_topology(target, meta.topology.path, meta, context)
    for node_type, entries in meta.node_data.items():
        arrays = target.nodes.setdefault(node_type, NamedNodes()).arrays
        for entry in entries:
            arrays[entry.name] = entry.read(f"{entry.name} of {node_type}", context)
    _add_sets(target, meta, context)
    return target.make_dataset(context)


def _read_ends(
    file: DataFile, key: str, target: NamedArrays, context: ImportContext
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if file.format != "csv":
        return target.take_ends(file.read(f"edges of {key}", context))
    columns = read_text(file.path, context).finish_columns()
    return columns["src"], columns["dst"]


def _read_edge_data(relation: Relation, meta: Metadata, context: ImportContext) -> dict[str, SourceArray]:
    """Return edge data by the names of `tiering.datasets.named_arrays`, in the order of the dataset's own edges."""
    files = {"edge_weight" if file.name == "weights" else file.name: file for file in meta.edge_data.get(relation, [])}
    return {name: file.read(f"{file.name} of {relation_key(relation)}", context) for name, file in files.items()}


def _add_topology(target: NamedArrays, path: Path, meta: Metadata, context: ImportContext) -> None:
    """Add the edges that GraphBolt has sorted; with the ids that it has kept, also their data."""
    topology = read_topology(path, context)
    for node_type, number in topology.nodes.items():
        target.nodes.setdefault(node_type, NamedNodes(num_nodes=number))
    unused = []
    for edges in topology.edges:
        arrays = {}
        if edges.edge_ids is None:
            unused += [entry.name for entry in meta.edge_data.get(edges.relation, [])]
        else:
            arrays = {
                name: _reorder(column, edges.edge_ids, edges.where, context) if name in EDGE_NAMES else column
                for name, column in _read_edge_data(edges.relation, meta, context).items()
            }
        target.edges.append(NamedEdges(edges.relation, edges.src, edges.dst, edges.where, arrays, edges.edge_ids))
    if unused:
        context.warn(
            f"{path}: its edges are in another order than the data of edges ({', '.join(unused)}), and have no ids "
            "(include_original_edge_id), so it is left out; import the dataset with its own edges to have it"
        )


def _reorder(column: SourceArray, ids: npt.NDArray[np.int64], where: str, context: ImportContext) -> SourceArray:
    """Return data of edges in the order of their positions `ids`."""
    rows = column.array
    if rows.shape[:1] != ids.shape:
        raise InputError(
            f"{column.where}: expected one row for each of {ids.size} edges, found {column.described}; correct it, or "
            "leave it out"
        )
    out = context.scratch.array(rows.shape, rows.dtype)
    for part in chunks(ids.size, max(1, BLOCK_BYTES // max(8, rows.nbytes // max(1, ids.size)))):
        positions = ids[part]
        if int(positions.min()) < 0 or int(positions.max()) >= ids.size:
            raise InputError(f"{where}: expected ids of edges in 0..{ids.size - 1}, found others; preprocess it again")
        out[part] = rows[positions]
    return SourceArray(column.where, out, column.dtype, column.path, numpy_file=column.numpy_file)


def _add_sets(target: NamedArrays, meta: Metadata, context: ImportContext) -> None:
    """Add splits and labels of the first task whose seeds are nodes; a node outside all sets has no label."""
    for number, task in enumerate(meta.tasks):
        seeds = [(entry, _read_seeds(entry, context)) for entry in task]
        chosen = [(entry, column) for entry, column in seeds if column is not None]
        if not chosen:
            continue
        if ignored := [other for other in range(len(meta.tasks)) if other != number]:
            context.notes["ignored_tasks"] = ignored
        for entry, column in chosen:
            target.nodes.setdefault(entry.node_type, NamedNodes()).arrays[f"{entry.split}_idx"] = column
        for node_type in {entry.node_type for entry, _ in chosen}:
            _add_labels(target.nodes[node_type], [pair for pair in chosen if pair[0].node_type == node_type], context)
        return
    if meta.tasks:
        context.warn(f"{meta.path}: none of its {len(meta.tasks)} tasks has nodes as seeds; there are no splits")


def _read_seeds(entry: NodeSet, context: ImportContext) -> SourceArray | None:
    """Return node ids; ``None`` if the set is of edges."""
    file = next((entry.files[name] for name in SEEDS if name in entry.files), None)
    if file is None:
        return None
    column = file.read(f"the {entry.split} nodes of {entry.node_type}", context)
    if column.array.ndim == 1:
        column.numbers("node ids", "iu", "node ids as whole numbers")
    return column if column.array.ndim == 1 else None


def _add_labels(nodes: NamedNodes, sets: list[tuple[NodeSet, SourceArray]], context: ImportContext) -> None:
    """Add labels of the nodes of all sets, -1 for the others; labels among the features come first."""
    labelled = [(entry.files[LABELS], seeds) for entry, seeds in sets if LABELS in entry.files]
    if not labelled or any(name in nodes.arrays for name in ("y", "label", LABELS)):
        return
    highest = max((int(seeds.array.max(initial=-1)) for _, seeds in labelled), default=-1)
    rows = [int(column.array.shape[0]) for column in nodes.arrays.values() if column.array.ndim == 2]
    count = nodes.num_nodes if nodes.num_nodes is not None else max([highest + 1, *rows])
    labels = context.scratch.array(count, np.float64)
    labels[:] = np.nan
    for file, seeds in labelled:
        values, ids = file.read("labels", context), seeds.array
        flat = values.numbers("one label for each seed", "iufb", "labels as whole numbers")
        if flat.shape != ids.shape:
            raise InputError(
                f"{values.where}: expected one label for each of {ids.shape[0]} seeds, found {values.described}; "
                "correct it"
            )
        if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < count):
            raise InputError(f"{seeds.where}: expected node ids in 0..{count - 1}, found others; correct it")
        labels[ids] = flat
    path = labelled[0][0].path
    nodes.arrays[LABELS] = SourceArray(str(path), labels, "float64", path)


READER = Reader(
    _open_graphbolt,
    NAMED_OPTIONS | {"delimiter", "header", "quoted_newlines", "comment"},
    directory=Detector(f"{META} (graphbolt)", lambda path: bool(_find_metadata(path)[1])),
)
