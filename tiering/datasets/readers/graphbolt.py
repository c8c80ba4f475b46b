"""Format ``graphbolt``: directories of DGL's `OnDiskDataset`, without what GraphBolt has preprocessed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.artifacts.storage import file_exists, require_file
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, one_line
from tiering.datasets.named_arrays import NAMED_OPTIONS, NamedArrays, Values
from tiering.datasets.options import node_count
from tiering.datasets.readers.edge_list import read_text
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


Owner = str | Relation  # a node type or a relation
NodeSet = tuple[str, str, dict[str, DataFile]]
"""A split, a node type, and the files of its nodes: seeds (in older versions seed_nodes), labels..."""
Tasks = list[list[NodeSet]]


def _find_metadata(path: Path) -> Path:
    return (path.parent if path.name == PREPROCESSED else path) / META


def _open_graphbolt(path: Path, context: ImportContext) -> Dataset:
    file = _find_metadata(path)
    if not file_exists(file, "metadata"):
        raise MissingError(f"{path}: expected {META} of a GraphBolt OnDiskDataset, found none; check the path")
    root, (name, counts, edges, data, tasks) = file.parent, _read_metadata(file)
    lacking = [str(edge_file.path) for edge_file in edges.values() if not file_exists(edge_file.path, "edges")]
    if lacking or not edges:
        missing = (lacking or ["any edges"])[0]
        raise MissingError(
            f"{root}: {missing}, which {file} names, is missing; get the dataset again (files that GraphBolt has "
            "preprocessed are not read)"
        )
    context.record_file(file)
    target = NamedArrays(
        name, str(root), root, context.scratch, "whole", {node_type: {} for node_type in counts}, counts
    )
    for relation, edge_file in edges.items():
        if edge_file.format == "csv":
            columns = read_text(edge_file.path, context).finish_columns()
            src, dst = columns["src"], columns["dst"]
        else:
            src, dst = target.take_ends(edge_file.read(f"edges of {relation_key(relation)}", context))
        target.edges.append((EdgeData(relation, src, dst, str(edge_file.path)), {}))
    arrays: dict[Owner, dict[str, Any]] = {edge.relation: values for edge, values in target.edges}
    for owner, files in data.items():
        values = arrays[owner] if owner in arrays else target.nodes.setdefault(str(owner), {})
        described = owner if isinstance(owner, str) else relation_key(owner)
        values |= {
            "edge_weight" if n == "weights" and owner in arrays else n: f.read(f"{n} of {described}", context)
            for n, f in files.items()
        }
    _add_sets(target, file, tasks, context)
    return target.make_dataset(context)


def _add_sets(target: NamedArrays, path: Path, tasks: Tasks, context: ImportContext) -> None:
    """Add splits and labels of the first task whose seeds are nodes; a node outside all sets has no label."""
    for number, task in enumerate(tasks):
        chosen = []
        for split, node_type, files in task:
            file = next((files[name] for name in SEEDS if name in files), None)
            column = None if file is None else file.read(f"the {split} nodes of {node_type}", context)
            if column is not None and column.array.ndim == 1:
                column.numbers("node ids", "iu", "node ids as whole numbers")
                target.nodes.setdefault(node_type, {})[f"{split}_idx"] = column
                chosen.append((node_type, files.get(LABELS), column))
        if not chosen:
            continue
        if ignored := [other for other in range(len(tasks)) if other != number]:
            context.notes["ignored_tasks"] = ignored
        for node_type in {node_type for node_type, *_ in chosen}:
            labeled = [(file, seeds) for other, file, seeds in chosen if other == node_type and file is not None]
            _add_labels(target.nodes[node_type], target.counts.get(node_type), labeled, context)
        return
    if tasks:
        context.warn(f"{path}: none of its {len(tasks)} tasks has nodes as seeds; there are no splits")


def _add_labels(
    nodes: Values, count: int | None, labeled: list[tuple[DataFile, SourceArray]], context: ImportContext
) -> None:
    """Add the labels in files of the nodes of sets, -1 for the others; labels among the features come first."""
    if not labeled or any(name in nodes for name in ("y", "label", LABELS)):
        return
    highest = max((int(seeds.array.max(initial=-1)) for _, seeds in labeled), default=-1)
    rows = [int(column.array.shape[0]) for column in nodes.values() if column.array.ndim == 2]
    count = max([highest + 1, *rows]) if count is None else count
    arrays = [(values := file.read("labels", context), values.labels(), seeds) for file, seeds in labeled]
    dtype = np.result_type(np.int8, *(part.dtype for _, part, _ in arrays))
    labels = context.scratch.array((count, *arrays[0][1].shape[1:]), dtype)
    labels[:] = np.nan if dtype.kind == "f" else -1
    for values, part, seeds in arrays:
        ids = seeds.array
        if part.shape != (*ids.shape, *labels.shape[1:]):
            problem = f"expected one label for each of {ids.shape[0]} seeds, found {values.described}"
            raise InputError(f"{values.where}: {problem}; correct it")
        if ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < count):
            raise InputError(f"{seeds.where}: expected node ids in 0..{count - 1}, found ids outside; correct it")
        labels[ids] = part
    path = labeled[0][0].path
    nodes[LABELS] = SourceArray(str(path), labels, dtype.name, path)


def _read_metadata(
    path: Path,
) -> tuple[str, dict[str, int], dict[Relation, DataFile], dict[Owner, dict[str, DataFile]], Tasks]:
    """Return the name, numbers of nodes, files of edges, of other arrays, and of tasks, as the metadata says."""
    counts: dict[str, int] = {}
    edges: dict[Relation, DataFile] = {}
    data: dict[Owner, dict[str, DataFile]] = {}
    tasks: Tasks = []
    values, root = _parse(path), path.parent
    try:
        graph = _mapping(values.get("graph"))
        for node in graph.get("nodes") or []:
            node_type = str(node.get("type") or NODE)
            counts[node_type] = node_count(node["num"], f"{path}: num of {node_type}")
        for edge in graph.get("edges") or []:
            edges[_relation(edge.get("type"))] = _entry(edge, root)
        for array in (*(values.get("feature_data") or []), *(graph.get("feature_data") or [])):
            # GraphBolt lists arrays that sampling needs a second time: the first counts.
            file, domain = _entry(array, root), array["domain"]
            owner = _relation(array.get("type")) if domain == "edge" else str(array.get("type") or NODE)
            if domain == "node" or owner in edges:
                data.setdefault(owner, {}).setdefault(file.name, file)
        for task in values.get("tasks") or []:
            tasks.append([])
            for split, part in [(split, part) for split, key in SETS.items() for part in task.get(key) or []]:
                files = {file.name: file for file in (_entry(array, root) for array in part["data"])}
                tasks[-1].append((split, str(part.get("type") or NODE), files))
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__} {str(error)[:120]}"
        raise InputError(f"{path}: not the metadata of a GraphBolt OnDiskDataset ({reason})") from error
    return str(values.get("dataset_name") or root.name), counts, edges, data, tasks


def _parse(path: Path) -> Mapping[str, Any]:
    require_file(path, "the metadata of a GraphBolt OnDiskDataset")
    text = read_start(path, LONGEST + 1)
    if len(text) > LONGEST:
        raise InputError(f"{path}: expected at most {LONGEST} bytes of metadata, found more; check the path")
    language = "JSON" if text.lstrip()[:1] == b"{" else "YAML"  # which contains JSON
    try:
        parse = json.loads if language == "JSON" else importlib.import_module("yaml").safe_load
    except ImportError as error:
        raise CapabilityError(f"{path}: reading YAML needs PyYAML: pip install 'tiering[graphbolt]'") from error
    try:
        return _mapping(parse(text))
    except Exception as error:  # of either language
        problem = f"expected metadata, found damaged {language} ({one_line(error)})"
        raise InputError(f"{path}: {problem}; correct it") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} in place of keys and values")
    return value or {}


def _relation(text: Any) -> Relation:
    """Return ``src:name:dst``; the relation of homogeneous graphs if there is none."""
    parts = RELATION if text is None else str(text).split(":")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"an edge type {quoted(text)} instead of src:name:dst")
    return (parts[0], parts[1], parts[2])


def _entry(values: Mapping[str, Any], root: Path) -> DataFile:
    format_ = values["format"]
    if format_ not in FORMATS:
        raise ValueError(f"format {quoted(format_)} instead of {', '.join(FORMATS)}")
    return DataFile(root / str(values["path"]), format_, str(values.get("name") or ""))


READER = Reader(
    _open_graphbolt,
    NAMED_OPTIONS | {"delimiter", "header", "quoted_newlines", "comment"},
    directory=Detector(f"{META} (graphbolt)", lambda path: file_exists(_find_metadata(path), "metadata")),
)
