"""Format ``graphbolt``: directories of DGL's `OnDiskDataset`, before it has preprocessed them and after."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.regular import file_exists, require_file
from tiering.datasets.arrays import BLOCK_BYTES, SourceArray
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, one_line
from tiering.datasets.named_arrays import EDGE_NAMES, NAMED_OPTIONS, NamedArrays, NamedNodes
from tiering.datasets.options import node_count
from tiering.datasets.readers.edge_list import read_text
from tiering.datasets.readers.graphbolt_topology import read_topology
from tiering.datasets.scratch import chunks
from tiering.errors import CapabilityError, InputError, MissingError, quoted
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.npy_file import read_start
from tiering.formats.torch_file import read_torch

META, PREPROCESSED = "metadata.yaml", "preprocessed"
LONGEST = 1 << 22
SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}  # split -> its name in GraphBolt
LABELS = "labels"
SEEDS = ("seeds", "seed_nodes")  # GraphBolt's names of the nodes of a set, since 2.2 and before
FORMATS = ("csv", "numpy", "torch")


@dataclass(frozen=True)
class DataFile:
    """A file that the metadata names."""

    path: Path
    format: str
    name: str = ""

    def read(self, what: str, context: ImportContext) -> SourceArray:
        """Return the array in it, mapped; `what` names the content for messages."""
        if self.format == "numpy":
            return SourceArray.open_npy(self.path, what, context)
        value = read_torch(self.path, what)
        context.record_file(self.path)
        return SourceArray.convert(value, str(self.path), self.path, context.scratch)


@dataclass(frozen=True)
class NodeSet:
    """The part of a split that is of one node type."""

    split: str
    node_type: str
    files: dict[str, DataFile]  # seeds (in older versions seed_nodes), labels... -> file


@dataclass
class Metadata:
    """The content of a ``metadata.yaml``."""

    path: Path
    name: str
    nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[Relation, DataFile] = field(default_factory=dict)
    node_data: dict[str, dict[str, DataFile]] = field(default_factory=dict)
    edge_data: dict[Relation, dict[str, DataFile]] = field(default_factory=dict)
    tasks: list[list[NodeSet]] = field(default_factory=list)
    topology: DataFile | None = None


def _find_metadata(path: Path) -> tuple[Path, list[Path]]:
    """Return the directory of the dataset, and its metadata: its own before those of what was preprocessed."""
    root = path.parent if path.name == PREPROCESSED and file_exists(path / META, "metadata") else path
    return root, [file for file in (root / META, root / PREPROCESSED / META) if file_exists(file, "metadata")]


def _open_graphbolt(path: Path, context: ImportContext) -> Dataset:
    root, files = _find_metadata(path)
    if not files:
        raise MissingError(f"{path}: expected {META} of a GraphBolt OnDiskDataset, found none; check the path")
    metas = [_read_metadata(file, root) for file in files]
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
            if file.format == "csv":
                columns = read_text(file.path, context).finish_columns()
                src, dst = columns["src"], columns["dst"]
            else:
                src, dst = target.take_ends(file.read(f"edges of {relation_key(relation)}", context))
            arrays = _read_edge_data(relation, meta, context)
            target.edges.append((EdgeData(relation, src, dst, str(file.path)), arrays))
    elif meta.topology is not None:
        _add_topology(target, meta.topology.path, meta, context)
    for node_type, entries in meta.node_data.items():
        arrays = target.nodes.setdefault(node_type, NamedNodes()).arrays
        arrays |= {name: entry.read(f"{name} of {node_type}", context) for name, entry in entries.items()}
    _add_sets(target, meta, context)
    return target.make_dataset(context)


def _read_edge_data(relation: Relation, meta: Metadata, context: ImportContext) -> dict[str, SourceArray]:
    """Return edge data by the names of `tiering.datasets.named_arrays`, in the order of the dataset's own edges."""
    return {
        "edge_weight" if name == "weights" else name: file.read(f"{name} of {relation_key(relation)}", context)
        for name, file in meta.edge_data.get(relation, {}).items()
    }


def _add_topology(target: NamedArrays, path: Path, meta: Metadata, context: ImportContext) -> None:
    """Add the edges that GraphBolt has sorted; with the ids that it has kept, also their data."""
    nodes, relations = read_topology(path, context)
    for node_type, number in nodes.items():
        target.nodes.setdefault(node_type, NamedNodes(num_nodes=number))
    unused: list[str] = []
    for edges in relations:
        arrays = {}
        if edges.edge_ids is None:
            unused += meta.edge_data.get(edges.relation, {})
        else:
            arrays = {
                name: _reorder(column, edges.edge_ids, edges.where, context) if name in EDGE_NAMES else column
                for name, column in _read_edge_data(edges.relation, meta, context).items()
            }
        target.edges.append((edges, arrays))
    if unused:
        context.warn(
            f"{path}: its edges are in another order than the data of edges ({', '.join(unused)}), and have no ids "
            "(include_original_edge_id), so it is left out; import the dataset with its own edges to have it"
        )


def _reorder(column: SourceArray, ids: npt.NDArray[np.int64], where: str, context: ImportContext) -> SourceArray:
    """Return data of edges in the order of their positions `ids`."""
    rows = column.array
    if rows.shape[:1] != ids.shape:
        problem = f"expected one row for each of {ids.size} edges, found {column.described}"
        raise InputError(f"{column.where}: {problem}; correct it, or leave it out")
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
            problem = f"expected one label for each of {ids.shape[0]} seeds, found {values.described}"
            raise InputError(f"{values.where}: {problem}; correct it")
        if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < count):
            raise InputError(f"{seeds.where}: expected node ids in 0..{count - 1}, found others; correct it")
        labels[ids] = flat
    path = labelled[0][0].path
    nodes.arrays[LABELS] = SourceArray(str(path), labels, "float64", path)


def _read_metadata(path: Path, root: Path) -> Metadata:
    """Parse the metadata of a dataset at `root`, to which its paths are relative."""
    values = _parse(path)
    try:
        meta = Metadata(path, str(values.get("dataset_name") or root.name))
        graph = _mapping(values.get("graph"))
        for node in graph.get("nodes") or []:
            node_type = str(node.get("type") or NODE)
            meta.nodes[node_type] = node_count(node["num"], f"{path}: num of {node_type}")
        for edge in graph.get("edges") or []:
            meta.edges[_relation(edge.get("type"))] = _entry(edge, root)
        for data in (*(values.get("feature_data") or []), *(graph.get("feature_data") or [])):
            # GraphBolt lists arrays that sampling needs a second time: the first counts.
            entry = _entry(data, root)
            if data["domain"] == "node":
                meta.node_data.setdefault(str(data.get("type") or NODE), {}).setdefault(entry.name, entry)
            elif data["domain"] == "edge":
                meta.edge_data.setdefault(_relation(data.get("type")), {}).setdefault(entry.name, entry)
        for task in values.get("tasks") or []:
            sets = [(split, entry) for split, key in SETS.items() for entry in task.get(key) or []]
            meta.tasks.append([_read_set(split, entry, root) for split, entry in sets])
        if (topology := values.get("graph_topology")) is not None:
            if topology["type"] != "FusedCSCSamplingGraph":
                raise ValueError(f"a graph_topology of type {quoted(topology['type'])}")
            meta.topology = DataFile(root / str(topology["path"]), "torch")
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__} {str(error)[:120]}"
        raise InputError(
            f"{path}: expected the metadata of a GraphBolt OnDiskDataset, found others ({reason})"
        ) from error
    return meta


def _parse(path: Path) -> Mapping[str, Any]:
    require_file(path, "the metadata of a GraphBolt OnDiskDataset")
    text = read_start(path, LONGEST + 1)
    if len(text) > LONGEST:
        raise InputError(f"{path}: expected at most {LONGEST} bytes of metadata, found more; check the path")
    if text.lstrip()[:1] == b"{":  # JSON, which YAML contains
        try:
            return _mapping(json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"expected metadata, found damaged JSON ({one_line(error)})"
            raise InputError(f"{path}: {problem}; correct it") from error
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise CapabilityError(f"{path}: reading YAML needs PyYAML: pip install 'tiering[graphbolt]'") from error
    try:
        return _mapping(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: expected metadata, found damaged YAML ({one_line(error)}); correct it") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} in place of keys and values")
    return value or {}


def _relation(text: Any) -> Relation:
    """Return ``src:name:dst``; that of homogeneous graphs if there is none."""
    if text is None:
        return RELATION
    parts = str(text).split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"an edge type {quoted(text)}, expected src:name:dst")
    return (parts[0], parts[1], parts[2])


def _entry(values: Mapping[str, Any], root: Path) -> DataFile:
    format_ = values["format"]
    if format_ not in FORMATS:
        raise ValueError(f"format {quoted(format_)}, expected {', '.join(FORMATS)}")
    return DataFile(root / str(values["path"]), format_, str(values.get("name") or ""))


def _read_set(split: str, values: Mapping[str, Any], root: Path) -> NodeSet:
    files = [_entry(data, root) for data in values["data"]]
    return NodeSet(split, str(values.get("type") or NODE), {file.name: file for file in files})


READER = Reader(
    _open_graphbolt,
    NAMED_OPTIONS | {"delimiter", "header", "quoted_newlines", "comment"},
    directory=Detector(f"{META} (graphbolt)", lambda path: bool(_find_metadata(path)[1])),
)
