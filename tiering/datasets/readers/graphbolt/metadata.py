"""``metadata.yaml``: the files of a dataset and their content."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import Relation
from tiering.artifacts.regular import require_file
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import NODE, RELATION, ImportContext
from tiering.datasets.options import node_count
from tiering.errors import CapabilityError, InputError, quoted
from tiering.formats.npy_file import read_start
from tiering.formats.torch_file import read_torch

META, PREPROCESSED = "metadata.yaml", "preprocessed"
LONGEST = 1 << 22
SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}  # split -> its name in GraphBolt
_READ = {"csv": "edges", "numpy": "a numpy array", "torch": "a tensor"}


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
    node_data: dict[str, list[DataFile]] = field(default_factory=dict)
    edge_data: dict[Relation, list[DataFile]] = field(default_factory=dict)
    tasks: list[list[NodeSet]] = field(default_factory=list)
    topology: DataFile | None = None


def read_metadata(path: Path, root: Path) -> Metadata:
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
            if data["domain"] == "node":
                _put(meta.node_data.setdefault(str(data.get("type") or NODE), []), _entry(data, root))
            elif data["domain"] == "edge":
                _put(meta.edge_data.setdefault(_relation(data.get("type")), []), _entry(data, root))
        for task in values.get("tasks") or []:
            meta.tasks.append(
                [_set(split, entry, root) for split, key in SETS.items() for entry in task.get(key) or []]
            )
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
            raise InputError(
                f"{path}: expected metadata, found damaged JSON ({str(error)[:120]}); correct it"
            ) from error
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise CapabilityError(f"{path}: reading YAML needs PyYAML: pip install 'tiering[graphbolt]'") from error
    try:
        return _mapping(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: expected metadata, found damaged YAML ({reason}); correct it") from error


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
    if format_ not in _READ:
        raise ValueError(f"format {quoted(format_)}, expected {', '.join(_READ)}")
    return DataFile(root / str(values["path"]), format_, str(values.get("name") or ""))


def _put(entries: list[DataFile], entry: DataFile) -> None:
    """Add an array, once: GraphBolt has those that sampling needs in a list of their own."""
    if entry.name not in [other.name for other in entries]:
        entries.append(entry)


def _set(split: str, values: Mapping[str, Any], root: Path) -> NodeSet:
    files = [_entry(data, root) for data in values["data"]]
    return NodeSet(split, str(values.get("type") or NODE), {file.name: file for file in files})
