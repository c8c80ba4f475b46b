"""The nodes of one type from the files of one folder: how many, features, labels, splits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tiering.artifacts.regular import is_there, require_file
from tiering.datasets.edges import largest_of_type, listed_counts, require_room
from tiering.datasets.features import describe_features
from tiering.datasets.import_context import ImportContext
from tiering.datasets.labels import read_labels
from tiering.datasets.options import node_count, option_name
from tiering.datasets.splits import are_made, check_splits, make_splits, read_splits
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import is_npy, open_npy, read_start
from tiering.formats.protocols import EdgeData, NodeData

COUNT_FILE = "num_nodes.txt"


@dataclass(frozen=True)
class NodeFiles:
    """Where to look for the nodes of one type, and what their dataset family says about them."""

    folder: Path
    node_type: str
    label_names: Sequence[str]
    """File names labels may have; the first found counts."""
    usual_dim: int | None = None
    """Values per feature row, in a family where features and labels without numpy header are usual."""
    known_rows: Mapping[str, int] = field(default_factory=dict)
    """Origin -> number of rows that a headerless feature file may have."""
    label_prefixes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Number of nodes -> numbers of rows that a shorter label file may have."""
    stated_count: tuple[str, int] | None = None
    """Where the dataset itself states the number of nodes, and the number."""


def read_nodes(files: NodeFiles, edges: list[EdgeData], context: ImportContext) -> NodeData:
    """The nodes of one type.

    The number of nodes comes from what is known of: option, features, the dataset's own statement, lists of edges by
    node, labels. Those that exist must agree. If none does, it is the largest id in `edges` + 1, which is recorded.
    """
    folder, options, headerless = files.folder, context.options, files.usual_dim is not None
    labels = next((folder / name for name in files.label_names if is_there(folder / name, "labels")), None)
    label_file = None
    if labels is not None and (is_npy(labels) or not headerless):
        label_file = open_npy(labels, "one label per node")
    rows = label_file.shape[0] if label_file is not None and label_file.shape else None
    stated = _stated_count(files, context)
    features = _features(files, labels, rows, stated, context)
    asked = options.num_nodes.get(files.node_type)
    counts = [] if asked is None else [("--num-nodes", asked)]
    if features is not None:
        counts.append((str(features.path), features.rows))
    if stated is not None:
        counts.append(stated)
    counts += listed_counts(files.node_type, edges)
    if not counts and rows is not None:
        counts = [(str(labels), rows)]
    num_nodes = agreed_count(files.node_type, counts, edges, context)
    nodes = NodeData(num_nodes, features)
    if labels is not None:
        prefixes = files.label_prefixes.get(num_nodes, ())
        nodes.labels, nodes.num_classes = read_labels(labels, label_file, num_nodes, context, prefixes)
    known = set(context.known)
    nodes.splits = read_splits(folder, num_nodes, context)
    if are_made(nodes.labels, context):
        if nodes.splits:
            context.notes["splits_replaced"] = sorted(path.name for path in context.known - known)
        nodes.splits = make_splits(nodes.labels, num_nodes, context, str(folder))
    check_splits(nodes.splits, nodes.labels, num_nodes, files.node_type, context)
    return nodes


def _stated_count(files: NodeFiles, context: ImportContext) -> tuple[str, int] | None:
    path, what = files.folder / COUNT_FILE, f"the number of {files.node_type} nodes"
    if not is_there(path, what):
        return files.stated_count
    context.known.add(path)
    text = read_start(path, 100).decode(errors="replace").strip()
    if not re.fullmatch("[0-9]+", text):
        raise InputError(f"{path}: expected {what}, found {text!r}; correct the file")
    return str(path), node_count(text, str(path))


def _features(
    files: NodeFiles,
    labels: Path | None,
    label_count: int | None,
    stated: tuple[str, int] | None,
    context: ImportContext,
) -> FeatureTable | None:
    path = files.folder / "node_feat.npy"
    if not is_there(path, "a feature table"):
        for option in ("feature_dim", "feature_dtype"):
            if files.node_type in getattr(context.options, option).by_type:
                require_file(path, f"features, because {option_name(option)} is given for {files.node_type}")
        return None
    known = {**files.known_rows, **dict([stated] if stated else [])}
    if labels is not None and label_count is not None:
        known[labels.name] = label_count
    elif labels is not None and labels.stat().st_size % 4 == 0:
        known[f"{labels.name} as float32"] = labels.stat().st_size // 4
    return describe_features(path, files.node_type, context, known, files.usual_dim)


def agreed_count(node_type: str, counts: list[tuple[str, int]], edges: list[EdgeData], context: ImportContext) -> int:
    """The number of nodes that all of `counts` (origin, number) say, or the largest id + 1; there is memory for it."""
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
        largest = largest_of_type(node_type, edges)
        count = largest.id + 1
        origin = (
            f"{largest.place} is the largest, and no file and no --num-nodes says how many nodes there are; correct "
            "it, or make sparse ids 0, 1, 2... first"
        )
        context.inferred(f"{node_type} num_nodes", {"value": count, "from": "largest id + 1"})
    require_room(node_type, count, origin, edges, context)
    return count
