"""Nodes of one type, whatever the format: their number, features, labels, splits, checked against each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tiering.artifacts.regular import file_exists, require_file
from tiering.datasets.edges import LargestId, count_listed_nodes, find_largest_of_type, require_node_memory
from tiering.datasets.features import describe_features
from tiering.datasets.import_context import ImportContext
from tiering.datasets.labels import make_labels, open_headerless_labels
from tiering.datasets.options import node_count
from tiering.datasets.splits import SplitArray, check_splits, make_splits, makes_splits, read_split_files
from tiering.errors import InputError
from tiering.formats.dataset import EdgeData, FeatureStream, NodeData
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import is_npy, open_npy, read_start
from tiering.options import spell_flag

COUNT_FILE = "num_nodes.txt"


@dataclass(frozen=True)
class LabelArray:
    """Labels as a dataset has them: see `make_labels`."""

    where: str
    open: Callable[[int], npt.NDArray[Any]]  # function from the number of nodes to the values
    rows: int | None = None
    prefixes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Number of nodes -> numbers of rows that a shorter array may have."""


@dataclass
class NodeArrays:
    """Everything that a dataset says about the nodes of a type, unchecked."""

    features: FeatureTable | FeatureStream | None = None
    labels: LabelArray | None = None
    splits: dict[str, SplitArray] = field(default_factory=dict)
    counts: list[tuple[str, int]] = field(default_factory=list)  # (origin, number of nodes): all must agree
    largest: LargestId | None = None  # the largest id in the edges, where it is known already


def make_nodes(
    node_type: str, arrays: NodeArrays, edges: list[EdgeData], context: ImportContext, where: str
) -> NodeData:
    """Return the nodes of one type; `where` names the dataset for messages.

    The number of nodes is what the option, `NodeArrays.counts` and adjacency lists state, which must agree; else the
    rows of labels and masks; else the largest id in `edges` + 1, which is recorded.
    """
    asked, labels = context.options.num_nodes.get(node_type), arrays.labels
    counts = [] if asked is None else [("--num-nodes", asked)]
    counts += arrays.counts + count_listed_nodes(node_type, edges)
    if not counts:
        counts = [] if labels is None or labels.rows is None else [(labels.where, labels.rows)]
        counts += [
            (split.where, split.values.shape[0]) for split in arrays.splits.values() if split.values.dtype == bool
        ]
    count = _agree_on_count(node_type, counts, arrays.largest, edges, context)
    nodes = NodeData(count, arrays.features)
    if labels is not None:
        values, prefixes = labels.open(count), labels.prefixes.get(count, ())
        nodes.labels, nodes.num_classes = make_labels(values, labels.where, count, context, prefixes)
    nodes.splits = {name: split.ids(count) for name, split in arrays.splits.items()}
    if makes_splits(nodes.labels, context):
        if nodes.splits:
            context.notes["splits_replaced"] = sorted(split.name for split in arrays.splits.values())
        nodes.splits = make_splits(nodes.labels, count, context, where)
    elif "train" in nodes.splits and nodes.splits["train"].size == 0:
        raise InputError(
            f"{arrays.splits['train'].where}: the train set is empty; expected 1 or more nodes; correct it, or make "
            "splits with --split 0.6,0.2,0.2"
        )
    check_splits(nodes.splits, nodes.labels, count, node_type, context)
    return nodes


def _agree_on_count(
    node_type: str,
    counts: list[tuple[str, int]],
    largest: LargestId | None,
    edges: list[EdgeData],
    context: ImportContext,
) -> int:
    """Return the number of nodes that all of `counts` (origin, number) say, or the largest id + 1."""
    for origin, number in counts[1:]:
        if number != counts[0][1]:
            raise InputError(
                f"{origin}: expected {counts[0][1]} nodes of type {node_type} as in {counts[0][0]}, found "
                f"{number}; correct one of the two"
            )
    if counts:
        count = counts[0][1]
        origin = f"{counts[0][0]}: says that there are {count}; correct it if there are not"
    else:
        largest = largest or find_largest_of_type(node_type, edges)
        count = largest.id + 1
        origin = (
            f"{largest.place} is the largest, and no file and no --num-nodes says how many nodes there are; correct "
            "it, or make sparse ids dense first (text and parquet: --compact-ids)"
        )
        context.record_guess(f"{node_type} num_nodes", {"value": count, "from": "largest id + 1"})
    require_node_memory(node_type, count, origin, edges, context)
    return count


@dataclass(frozen=True)
class NodeFiles:
    """The folder of one node type, and what its dataset family says about it."""

    folder: Path
    node_type: str
    label_names: Sequence[str]  # file names labels may have; the first one that exists counts
    usual_dim: int | None = None
    """Values per feature row, in a family where features and labels without numpy header are usual."""
    known_rows: Mapping[str, int] = field(default_factory=dict)
    """Origin -> number of rows that a headerless feature file may have."""
    label_prefixes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # see LabelArray.prefixes
    stated_count: tuple[str, int] | None = None
    """Origin and value of the number of nodes that the dataset itself states."""


def read_node_folder(files: NodeFiles, context: ImportContext) -> NodeArrays:
    """Return the arrays of numpy files in the folder of one node type."""
    stated = _read_count(files, context)
    labels = _find_labels(files, context)
    arrays = NodeArrays(_find_features(files, labels, stated, context), labels)
    arrays.splits = read_split_files(files.folder, context)
    if arrays.features is not None:
        arrays.counts.append((str(files.folder / "node_feat.npy"), arrays.features.rows))
    arrays.counts += [] if stated is None else [stated]
    return arrays


def _read_count(files: NodeFiles, context: ImportContext) -> tuple[str, int] | None:
    path, what = files.folder / COUNT_FILE, f"the number of {files.node_type} nodes"
    if not file_exists(path, what):
        return files.stated_count
    context.known.add(path)
    text = read_start(path, 100).decode(errors="replace").strip()
    if not re.fullmatch("[0-9]+", text):
        raise InputError(f"{path}: expected {what}, found {text!r}; correct the file")
    return str(path), node_count(text, str(path))


def _find_labels(files: NodeFiles, context: ImportContext) -> LabelArray | None:
    """Return the first label file that exists; one without numpy header is opened when the nodes are counted."""
    path = next((files.folder / name for name in files.label_names if file_exists(files.folder / name, "labels")), None)
    if path is None:
        return None
    context.record_file(path)
    if not is_npy(path) and files.usual_dim is not None:
        said = context.options.num_labelled
        shorter = () if said is None else (said,)

        def open_values(count: int) -> npt.NDArray[Any]:
            return open_headerless_labels(path, (count, *files.label_prefixes.get(count, ()), *shorter))

        return LabelArray(str(path), open_values, None, files.label_prefixes)
    file = open_npy(path, "one label per node")
    rows = file.shape[0] if file.shape else None
    return LabelArray(str(path), lambda _: file.column("iufb", "labels as whole numbers"), rows, files.label_prefixes)


def _find_features(
    files: NodeFiles, labels: LabelArray | None, stated: tuple[str, int] | None, context: ImportContext
) -> FeatureTable | None:
    path = files.folder / "node_feat.npy"
    if not file_exists(path, "a feature table"):
        for option in ("feature_dim", "feature_dtype"):
            if files.node_type in getattr(context.options, option).by_type:
                require_file(path, f"features, because {spell_flag(option)} is given for {files.node_type}")
        return None
    known = {**files.known_rows, **dict([stated] if stated else [])}
    if labels is not None:
        label_file = Path(labels.where)
        if labels.rows is not None:
            known[label_file.name] = labels.rows
        elif label_file.stat().st_size % 4 == 0:
            known[f"{label_file.name} as float32"] = label_file.stat().st_size // 4
    return describe_features(path, files.node_type, context, known, files.usual_dim)
