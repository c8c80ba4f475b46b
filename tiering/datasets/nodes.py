"""Nodes of one type, whatever the format: their number, features, labels, splits, checked against each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.remote_path import as_path
from tiering.artifacts.storage import entries, file_exists, open_raw, require_file
from tiering.datasets.arrays import SourceArray
from tiering.datasets.edges import EDGE_FILES, LargestId, find_largest_id, read_edge_values, require_node_memory
from tiering.datasets.import_context import NODE, ImportContext, chunks, first_wrong, rows_of_chunk
from tiering.datasets.options import RAW_OPTIONS, TIME_OPTIONS, node_count
from tiering.datasets.splits import OFFICIAL, SPLIT_FILES, SplitArray, check_splits, make_splits, read_split_files
from tiering.datasets.table_specs import TIME
from tiering.datasets.times import column_times, read_times
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData, FeatureStream, NodeData, as_lists
from tiering.formats.features import LABEL_VALUES, FeatureTable
from tiering.formats.npy_file import is_npy, read_start
from tiering.text.options import spell_flag
from tiering.text.progress import note

COUNT_FILE = "num_nodes.txt"
LABEL_NAMES = ("node_label.npy", "node_labels.npy")


@dataclass(frozen=True)
class LabelArray:
    """Labels as a dataset has them."""

    where: str
    open: Callable[[int], npt.NDArray[Any]]  # function from the number of nodes to the values
    rows: int | None = None
    prefixes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # nodes -> rows that a shorter array may have
    classes: str = "whole"  # labels that are classes: "all"; "whole" numbers; "integer": by dtype, or with NaN for none


@dataclass
class NodeArrays:
    """Everything that a dataset says about the nodes of a type, unchecked."""

    features: FeatureTable | FeatureStream | None = None
    labels: LabelArray | None = None
    splits: dict[str, SplitArray] = field(default_factory=dict)
    counts: list[tuple[str, int]] = field(default_factory=list)  # (origin, number of nodes): all must agree
    times: npt.NDArray[Any] | None = None
    largest: LargestId | None = None  # the largest id in the edges, where it is known already


def make_dataset(name: str, arrays: Mapping[str, NodeArrays], edges: list[EdgeData], context: ImportContext) -> Dataset:
    """Return the dataset of a reader: the checked arrays of its node types and edges, and the record."""
    context.notes["node_types"] = list(arrays)
    nodes = {node_type: _make_nodes(node_type, own, edges, context) for node_type, own in arrays.items()}
    return Dataset(name, context.format, nodes, edges, context.notes, context.files)


def _make_nodes(node_type: str, arrays: NodeArrays, edges: list[EdgeData], context: ImportContext) -> NodeData:
    count, counted_by = _count_nodes(node_type, arrays, edges, context)
    times = {} if arrays.times is None else {context.time_name or TIME: arrays.times}
    nodes = NodeData(count, arrays.features, counted_by=counted_by, extra=times)
    if arrays.labels is not None:
        _add_labels(nodes, node_type, arrays.labels, context)
    labeled = _mark_labeled(nodes, context)
    nodes.splits = {name: split.ids(count, nodes.counted_by) for name, split in arrays.splits.items()}
    asked = context.options.split not in (None, OFFICIAL)
    if asked and (labeled is not None or len(context.notes["node_types"]) == 1):
        if nodes.splits:
            context.notes["splits_replaced"] = sorted(Path(split.where).name for split in arrays.splits.values())
        nodes.splits = make_splits(labeled, count, context)
    elif empty := [name for name, ids in nodes.splits.items() if name.startswith("train") and ids.size == 0]:
        raise InputError(
            f"{arrays.splits[empty[0]].where}: the train set is empty; expected 1 or more nodes; correct it, or make "
            "splits with --split 0.6,0.2,0.2"
        )
    check_splits(nodes.splits, labeled, count, node_type, context)
    return nodes


def _count_nodes(node_type: str, arrays: NodeArrays, edges: list[EdgeData], context: ImportContext) -> tuple[int, str]:
    """Return the number of nodes, and its source: all statements, else labels and masks, else the largest id + 1."""
    asked, labels = context.options.num_nodes.get(node_type), arrays.labels
    counts = [] if asked is None else [("--num-nodes", asked)]
    ends = [(edge, edge.src, "source") for edge in edges if edge.relation[0] == node_type]
    ends += [(edge, edge.dst, "destination") for edge in edges if edge.relation[2] == node_type]
    lists = [as_lists(ids) for _, ids, _ in ends]
    counts += arrays.counts + [(one.where, one.num_columns) for one in lists if one is not None]
    if not counts:
        counts = [] if labels is None or labels.rows is None else [(labels.where, labels.rows)]
        masks = [split for split in arrays.splits.values() if split.values.dtype == bool]
        counts += [(mask.where, mask.values.shape[0]) for mask in masks]
    for origin, number in counts[1:]:
        if number != counts[0][1]:
            problem = f"expected {counts[0][1]} nodes of type {node_type} as in {counts[0][0]}, found {number}"
            raise InputError(f"{origin}: {problem}; correct one of the two")
    if counts:
        (stated_by, count), largest = counts[0], arrays.largest or LargestId()
        if largest.id >= count:
            cure = "correct one of the two, or make sparse ids dense with --compact-ids"
            cure = "give --first-id 1 if the ids begin at 1" if (largest.smallest, largest.id) == (1, count) else cure
            problem = f"{stated_by} says {count} nodes, ids 0..{count - 1}, but id {largest.id} occurs"
            raise InputError(f"{largest.where}: {problem}; {cure}")
        if (first := context.options.first_id) and asked is None and 0 <= largest.id < count - first:
            problem = f"{stated_by}: the {count} rows may belong to ids {first}..{count + first - 1} or 0..{count - 1}"
            raise InputError(f"{problem}; give --num-nodes {count} for the first, omit --first-id for the second")
        origin = f"{stated_by}: the number of nodes is {count}; correct it if it is wrong"
    else:
        each = (find_largest_id(ids, edge.where, end) for edge, ids, end in ends)
        largest = arrays.largest or reduce(LargestId.merge, each)
        count, begin = largest.id + 1, largest.smallest
        stated_by = f"the largest id of the edges, {largest.id},"
        if count and begin:
            cure = f"if the ids begin there, give --first-id {begin} (text and parquet), or subtract {begin} from them"
            context.warn(f"{largest.where}: the smallest id is {begin}, node 0 has no edges; {cure}")
        origin = (
            f"{largest.place} is the largest id, and neither a file nor --num-nodes gives the number of nodes; correct "
            "the id, or make sparse ids dense first (text and parquet: --compact-ids)"
        )
        context.record_guess(f"{node_type} num_nodes", {"value": count, "from": "largest id + 1"})
    require_node_memory(node_type, count, origin, edges, context)
    return count, stated_by


@dataclass(frozen=True)
class NodeFiles:
    """The folder of one node type, and what its dataset family says about it."""

    folder: Path
    node_type: str
    label_names: Sequence[str]  # file names labels may have; the first one that exists counts
    usual_dim: int | None = None  # values per row, in a family where files without numpy header are usual
    known_rows: Mapping[str, int] = field(default_factory=dict)  # origin -> possible rows of headerless features
    label_prefixes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # see LabelArray.prefixes
    stated_count: tuple[str, int] | None = None  # origin and number of nodes that the dataset itself states


def read_node_folder(files: NodeFiles, context: ImportContext) -> NodeArrays:
    """Return the arrays of numpy files in the folder of one node type."""
    arrays = NodeArrays(labels=_find_labels(files, context), splits=read_split_files(files.folder, context))
    stated, path, what = files.stated_count, files.folder / COUNT_FILE, f"the number of {files.node_type} nodes"
    if file_exists(path, what):
        context.record_file(path)
        text = read_start(path, 100).decode(errors="replace").strip()
        if not re.fullmatch("[0-9]+", text):
            raise InputError(f"{path}: expected {what}, found {text!r}; correct the file")
        stated = str(path), node_count(text, str(path))
    path = files.folder / "node_feat.npy"
    if file_exists(path, "a feature table"):
        known = {**files.known_rows, **dict([stated] if stated else [])}
        if arrays.labels is not None:
            label_file, rows = as_path(arrays.labels.where), arrays.labels.rows
            size = label_file.stat().st_size
            if rows is not None:
                known[label_file.name] = rows
            elif size % 4 == 0:
                known[f"{label_file.name} as float32"] = size // 4
        arrays.features = _describe_features(path, files, known, context)
        arrays.counts.append((str(path), arrays.features.rows))
    for option in ("feature_dim", "feature_dtype"):
        if files.node_type in getattr(context.options, option).by_type:
            require_file(path, f"features, because {spell_flag(option)} is given for {files.node_type}")
    arrays.counts += [] if stated is None else [stated]
    if (times := read_times(files.folder, "node", context)) is not None:
        arrays.times = column_times(times, context)
    return arrays


def read_arrays_beside(edges: EdgeData | None, context: ImportContext) -> NodeArrays:
    """Return the node arrays in the directory of a file of edges, and read those along them; next to a file say so."""
    if (folder := context.folder) is not None:
        if edges is not None:  # of one relation
            read_edge_values(folder, edges, context)
        arrays = read_node_folder(NodeFiles(folder, NODE, LABEL_NAMES), context)
        context.record_ignored(entries(folder))
        return arrays
    if ignored := sorted((RAW_OPTIONS - TIME_OPTIONS) & set(context.notes["options"])):
        raise InputError(f"{spell_flag(ignored[0])}: does not apply to a file; give the directory with the features")
    file = as_path(context.notes["source"])
    names = ("node_feat.npy", *LABEL_NAMES, *chain(*SPLIT_FILES.values()), *EDGE_FILES)
    if present := [name for name in names if file.exists() and (file.parent / name).exists()]:
        note(f"note: {file}: not imported: {', '.join(present)} next to it; give the directory to import them")
    return NodeArrays()


def _find_labels(files: NodeFiles, context: ImportContext) -> LabelArray | None:
    """Return the first label file that exists; one without numpy header is opened when the nodes are counted."""
    path = next((files.folder / name for name in files.label_names if file_exists(files.folder / name, "labels")), None)
    if path is None:
        return None
    if is_npy(path) or files.usual_dim is None:
        column = SourceArray.open_npy(path, "one label per node", context)
        rows = column.array.shape[0] if column.array.ndim else None
        classes = "all" if path.name.startswith("node_label_") else "whole"  # IGB's own files hold classes
        return LabelArray(str(path), lambda _: column.labels(), rows, files.label_prefixes, classes)
    context.record_file(path)

    def open_values(count: int) -> npt.NDArray[Any]:
        """Map the file as float32 or int64: its size says which, of one of the numbers of rows that it may have."""
        rows = (count, *files.label_prefixes.get(count, ()), *filter(None, [context.options.num_labelled]))
        size = path.stat().st_size
        for number, dtype in product(rows, map(np.dtype, ("<f4", "<i8"))):
            if size == number * dtype.itemsize:
                return open_raw(path, dtype, (number,))
        raise InputError(
            f"{path}: has no numpy header, and its {size} bytes are not {count} labels of float32 "
            f"({count * 4} bytes) or int64 ({count * 8} bytes); get the file again, or give --num-labelled if only "
            "the first nodes have labels"
        )

    return LabelArray(str(path), open_values, None, files.label_prefixes, "all")


def _add_labels(nodes: NodeData, node_type: str, labels: LabelArray, context: ImportContext) -> None:
    """Add classes, int64 of shape (num_nodes,), -1 for none; or the values of labels that are no classes, as they are.

    There is one for each node, or for the first `LabelArray.prefixes` or ``num_labelled`` alone.
    """
    num_nodes = nodes.num_nodes
    values, where, prefixes = labels.open(num_nodes), labels.where, labels.prefixes.get(num_nodes, ())
    labeled = context.options.num_labelled
    if labeled is not None:
        prefixes = (*prefixes, labeled)
    elif prefixes:
        labeled = prefixes[0]
    if values.shape[0] not in (num_nodes, *prefixes):
        raise InputError(
            f"{where}: expected {num_nodes} labels, one per node, found {values.shape[0]}; correct the file, or give "
            "--num-labelled if only the first nodes have labels"
        )
    used = values.shape[0] if labeled is None else min(labeled, values.shape[0])
    if used < num_nodes:
        context.notes["num_labelled"] = used

    column = values[:used, 0] if values.ndim == 2 and values.shape[1] == 1 else values[:used]
    row = first_wrong(column, _are_no_classes) if column.ndim == 1 else 0
    numbers = column.ndim == 2 or (
        column.dtype.kind == "f"
        and (row is not None or (labels.classes == "integer" and first_wrong(column, np.isnan) is None))
    )
    if numbers and labels.classes != "all" and used == num_nodes:
        infinite = first_wrong(values, lambda block: np.isinf(block).reshape(len(block), -1).any(1))
        if infinite is not None:
            found = f"expected finite labels, or NaN for none, found inf at row {infinite}"
            raise InputError(f"{where}: {found}; correct it, or write NaN there")
        unsigned = values.dtype.kind == "u" and values.dtype.itemsize > 1  # torch has few of these
        nodes.extra[LABEL_VALUES] = context.scratch.compact(values, np.int64 if unsigned else None)
        context.notes.setdefault("label_values", {})[node_type] = f"{values.dtype} {values.shape}"
        if labels.classes == "whole" and column.ndim == 1:
            found = f"{column[row]} at row {row} is not a class (0, 1, 2..., NaN or -1 for none)"
            note(f"note: {where}: {found}: the labels are read as values")
        return
    if row is not None:
        problem = f"expected labels 0, 1, 2... (NaN or -1 for none), found {column[row]} at row {row}"
        raise InputError(f"{where}: {problem}; correct it, or write -1 there")
    out = context.scratch.array(num_nodes, np.int64)
    out[used:] = -1
    for part in chunks(used):
        out[part] = _replace_nan(column[part])
    nodes.labels, nodes.num_classes = out, int(out.max(initial=-1)) + 1
    seen = context.scratch.array(nodes.num_classes + 1, bool)  # the last is -1's
    seen[:] = False
    for part in chunks(used):
        seen[out[part]] = True
    if (have := int(np.count_nonzero(seen[:-1]))) < nodes.num_classes:
        found = f"labels {np.argmax(seen)} to {seen.size - 2} make {seen.size - 1} classes, of which {have} have nodes"
        note(f"note: {where}: {found}; number the labels 0, 1, 2... to have {have} classes")


def _are_no_classes(block: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    block = _replace_nan(block)
    wrong: npt.NDArray[np.bool_] = (block < -1) | (block > 2**31 - 1) | (block != np.floor(block))
    return wrong


def _mark_labeled(nodes: NodeData, context: ImportContext) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the nodes with a class, or a value that is not NaN; ``None`` without labels."""
    values = nodes.extra.get(LABEL_VALUES, nodes.labels)
    if values is None:
        return None
    marks = context.scratch.array(nodes.num_nodes, bool)
    for part in chunks(nodes.num_nodes, rows_of_chunk(values)):
        known = values[part] >= 0 if nodes.labels is not None else values[part] == values[part]
        marks[part] = known.reshape(len(known), -1).any(1)
    return marks


def _replace_nan(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return -1 for NaN; floats as float64, since float16 cannot be compared with the largest label."""
    return block if block.dtype.kind != "f" else np.where(np.isnan(block), -1.0, block.astype(np.float64))


def _describe_features(path: Path, files: NodeFiles, known: dict[str, int], context: ImportContext) -> FeatureTable:
    """Describe a feature file; one without numpy's magic bytes is headerless, of as many rows as one of `known`."""
    context.record_file(path)
    options, node_type = context.options, files.node_type
    if not is_npy(path):
        return _describe_headerless(path, files, known, context)
    column = SourceArray.open_npy(path, "a feature table (rows, dim)", context, is_table=True)
    if column.offset is None:
        problem = "expected rows in C order, found Fortran order"
        raise InputError(f"{path}: {problem}; save it again with numpy.save(path, numpy.ascontiguousarray(array))")
    rows, dtype = column.rows()
    for option, wanted, has, unit in (
        ("--feature-dim", options.feature_dim.get(node_type), rows.shape[1], " values per row"),
        ("--feature-dtype", options.feature_dtype.get(node_type), dtype, ""),
    ):
        if wanted not in (None, has):
            problem = f"{option} says {wanted}{unit}, but the file has a numpy header that says {column.described}"
            raise InputError(f"{path}: {problem}; omit the option")
    return FeatureTable(path, rows.shape[0], rows.shape[1], dtype, column.offset, ndim=column.array.ndim)


def _describe_headerless(path: Path, files: NodeFiles, known: dict[str, int], context: ImportContext) -> FeatureTable:
    options, node_type, size = context.options, files.node_type, path.stat().st_size
    dim, rows = options.feature_dim.get(node_type), options.num_nodes.get(node_type)
    dtype = options.feature_dtype.get(node_type) or "float32"
    item = storage_dtype(dtype).itemsize
    if size == 0:
        raise InputError(f"{path}: expected features, found an empty file (0 bytes); get the file again")
    if dim is None and rows:
        dim = _divide(path, size, rows * item, f"{rows} rows (--num-nodes) of {dtype}", "dim")
        context.record_guess(f"{node_type} feature_dim", dim)
    elif dim is None and files.usual_dim and size in (n * files.usual_dim * item for n in known.values()):
        dim = files.usual_dim
        context.record_guess(f"{node_type} feature shape", [size // (dim * item), dim, dtype])
    if dim is None:
        fits = [
            f"{rows} rows ({origin}) x {size // (rows * item)} x {dtype}"
            for origin, rows in known.items()
            if rows and size % (rows * item) == 0
        ]
        hint = f"its {size} bytes match {' or '.join(fits)}" if fits else f"it has {size} bytes"
        raise InputError(
            f"{path}: expected a numpy file, found no numpy header; if it is headerless (raw rows), {hint}: "
            "give --feature-dim (and --feature-dtype, --num-nodes); otherwise get the file again"
        )
    counted = _divide(path, size, dim * item, f"rows of {dim} x {dtype}", "rows")
    if rows not in (None, counted):
        raise InputError(
            f"{path}: expected {rows} rows (--num-nodes) x {dim} x {dtype} = {rows * dim * item} bytes, found {size} "
            f"bytes = {counted} rows; correct --num-nodes, --feature-dim or --feature-dtype, or get the file again"
        )
    return FeatureTable(path, counted, dim, dtype)


def _divide(path: Path, size: int, by: int, unit: str, result: str) -> int:
    if size % by:
        raise InputError(
            f"{path}: has no numpy header, and its {size} bytes are no whole number of {result}: expected a multiple "
            f"of {by} bytes ({unit}), {size % by} bytes remain; correct --feature-dim, --feature-dtype or --num-nodes, "
            "or get the file again if it is truncated"
        )
    return size // by
