"""Format ``ogb``: node datasets of the Open Graph Benchmark as they are downloaded, of one node type and relation.

Large ones (papers100M) have ``raw/data.npz`` with deflated arrays ``edge_index`` (2, E), ``node_feat`` (N, dim),
``num_nodes_list``, and ``raw/node-label.npz``; small ones ``raw/edge.csv.gz``, ``node-feat.csv.gz``,
``node-label.csv.gz``, ``num-node-list.csv.gz``. Either may have features of edges, ``edge_feat`` or
``edge-feat.csv.gz``. Labels of several columns, as those of proteins, are left out. Splits are in
``split/SCHEME/{train,valid,test}.csv.gz`` or ``split_dict.pt``.

Nothing of this can be mapped: edges, their features and labels are unpacked once, into memory or temporary files, and
features of nodes once, into the graph that is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.regular import entries, is_folder, is_there, require_file
from tiering.datasets.archives import STEP, Member, open_npz, require_member, require_rows, require_rows_first, rows_of
from tiering.datasets.edges import edge_rows, largest_id, require_room
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader
from tiering.datasets.labels import make_labels
from tiering.datasets.scratch import first_wrong
from tiering.datasets.splits import OGB_SPLITS, check_splits, make_splits, split_ids, torch_splits
from tiering.datasets.tables import one_line
from tiering.errors import InputError, MissingError
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.protocols import Dataset, EdgeData, FeatureStream, GraphSoFar, NodeData
from tiering.progress import note

DATA, LABELS, EDGES = "data.npz", "node-label.npz", "edge.csv.gz"
READ = frozenset({"num_nodes_list", "num_edges_list", "edge_index", "node_feat", "edge_feat"})
"""Arrays of `DATA` that are read."""
_OPTIONS = pa_csv.ReadOptions(autogenerate_column_names=True, block_size=STEP)


def _raw(path: Path) -> Path | None:
    raw = path / "raw"
    signs = (DATA, EDGES)
    return raw if is_folder(raw) and any(is_there(raw / name, "a graph") for name in signs) else None


def _open_ogb(path: Path, context: ImportContext) -> Dataset:
    raw = _raw(path)
    if raw is None:
        raise MissingError(f"{path}: expected raw/{DATA} or raw/{EDGES}, found neither; check the path")
    context.notes["node_types"] = [NODE]
    source = _archives(raw, context) if is_there(raw / DATA, "a graph") else _texts(raw, context)
    edges, nodes = source
    count = nodes.num_nodes
    require_room(NODE, count, f"{raw}: says that there are {count} nodes; check it", [edges], context)
    nodes.splits = _splits(path, count, nodes.labels, context)
    context.ignored(entry for entry in entries(raw) if not entry.name.startswith("."))
    return context.dataset(path.name, {NODE: nodes}, [edges])


def _archives(raw: Path, context: ImportContext) -> tuple[EdgeData, NodeData]:
    """From ``data.npz`` and ``node-label.npz``."""
    path = raw / DATA
    members = open_npz(path, "the graph", context)
    count = _one(require_member(members, "num_nodes_list", path))
    expected = _one(require_member(members, "num_edges_list", path))
    pairs = require_member(members, "edge_index", path)
    if pairs.shape != (2, expected) or pairs.dtype.kind not in "iu":
        raise InputError(
            f"{pairs.where}: expected whole numbers of shape (2, {expected}), as num_edges_list says, found "
            f"{pairs.described}; get the file again"
        )
    nodes = NodeData(count)
    if "node_feat" in members:
        nodes.features = rows_of(members["node_feat"], count)
    labels = raw / LABELS
    if is_there(labels, "labels"):
        member = require_member(open_npz(labels, "labels", context), "node_label", labels)
        require_rows(member.where, member.shape[:1], count)
        if _one_label(member.where, math.prod(member.shape[1:]), context):
            values = member.column("iuf", "labels as numbers", context)
            nodes.labels, nodes.num_classes = make_labels(values, member.where, count, context)
    src, dst = _stored_pairs(pairs, count, context)
    edges = EdgeData(RELATION, src, dst, pairs.where)
    if "edge_feat" in members:
        member = members["edge_feat"]
        require_rows_first(member)
        shape, stored = edge_rows(member.where, member.shape, member.dtype, edges.num_edges)
        edges.data[EDGE_FEATURES] = member.store(context, member.dtype).reshape(shape).view(stored)
    unread = [member.where for name, member in members.items() if name not in READ]
    if unread:
        context.notes["ignored_arrays"] = unread
        note(f"note: not imported: {', '.join(unread)}; keep in files of your own what you need of it")
    return edges, nodes


def _one_label(where: str, columns: int, context: ImportContext) -> bool:
    """Whether there is one column of labels: a graph holds one class per node."""
    if columns > 1:
        context.warn(
            f"{where}: has {columns} columns of labels; a graph holds one class per node, so they are left out"
        )
    return columns == 1


def _stored_pairs(pairs: Member, count: int, context: ImportContext) -> npt.NDArray[Any]:
    """The ids, unpacked once; each is checked on its way: one out of range might wrap to one that looks right.

    In Fortran order both ends of an edge lie together.
    """
    shape = pairs.shape[::-1] if pairs.fortran_order else pairs.shape
    out, at = context.scratch.array(shape, np.int32 if count < 2**31 else np.int64), 0
    flat, edges = out.reshape(-1), pairs.shape[1]
    for block in pairs.flat():
        wrong = first_wrong(block, lambda ids: (ids < 0) | (ids >= count))
        if wrong is not None:
            place = at + wrong
            end, edge = (place % 2, place // 2) if pairs.fortran_order else divmod(place, max(1, edges))
            raise InputError(
                f"{pairs.where}: edge {edge}: {('source', 'destination')[end]} id {int(block[wrong])}: expected ids in "
                f"0..{count - 1}, as the dataset says; get the file again"
            )
        flat[at : at + block.size] = block
        at += block.size
    return out.T if pairs.fortran_order else out


def _one(member: Member) -> int:
    """The only number of a member."""
    values = np.concatenate(list(member.flat())) if np.prod(member.shape) == 1 else np.empty(0)
    if values.size != 1 or values.dtype.kind not in "iu" or not 0 <= int(values[0]) < 2**48:
        raise InputError(f"{member.where}: expected one number, of one graph, found {member.described}; get it again")
    return int(values[0])


def _texts(raw: Path, context: ImportContext) -> tuple[EdgeData, NodeData]:
    """From packed text without names of columns."""
    counts = _numbers(raw / "num-node-list.csv.gz", "the number of nodes", context)
    if counts.shape != (1, 1):
        raise InputError(f"{raw / 'num-node-list.csv.gz'}: expected one number, of one graph, found {counts.shape}")
    count = int(counts[0, 0])
    listed, expected = raw / "num-edge-list.csv.gz", None
    if is_there(listed, "the number of edges"):
        expected = int(_numbers(listed, "the number of edges", context).sum())
    columns = [context.scratch.growing_file("<i8") for _ in range(2)]
    for block in _csv(raw / EDGES, "edges", "int64", context, width=2):
        for column, values in zip(columns, block.T, strict=True):
            column.append(values)
        if expected is not None and columns[0].count > expected:
            break
    src, dst = (column.finish() for column in columns)
    if expected not in (None, src.size):
        raise InputError(
            f"{raw / EDGES}: expected {expected} edges, as num-edge-list.csv.gz says, found "
            f"{'more' if src.size > (expected or 0) else src.size}; get the file again"
        )
    for name, ids in (("source", src), ("destination", dst)):
        largest = largest_id(ids, str(raw / EDGES), name)
        if largest.id >= count:
            raise InputError(f"{largest.place}: expected ids in 0..{count - 1}, as the dataset says; get it again")
    edges = EdgeData(RELATION, src, dst, str(raw / EDGES))
    if is_there(rows := raw / "edge-feat.csv.gz", "features of edges"):
        edges.data[EDGE_FEATURES] = _edge_rows_of_text(rows, edges.num_edges, context)
    return edges, _nodes_of_text(raw, count, context)


def _nodes_of_text(raw: Path, count: int, context: ImportContext) -> NodeData:
    nodes = NodeData(count)
    labels, features = raw / "node-label.csv.gz", raw / "node-feat.csv.gz"
    if is_there(labels, "labels"):
        context.used(labels)
        if _one_label(str(labels), len(_columns(labels, "labels")), context):
            values = _numbers(labels, "labels", context, most=count, kind="float64")
            require_rows(str(labels), values.shape[:1], count)
            nodes.labels, nodes.num_classes = make_labels(values[:, 0], str(labels), count, context)
    if is_there(features, "features"):
        context.used(features)
        dim = len(_columns(features, "features"))
        pieces = partial(_rows_of_text, features, count, context)
        nodes.features = FeatureStream(count, dim, "float32", pieces, "unpacked", 4 * STEP)
    return nodes


def _edge_rows_of_text(path: Path, count: int, context: ImportContext) -> npt.NDArray[Any]:
    """Features of edges, a row for each of `count`, in memory or a temporary file."""
    out, at = context.scratch.array((count, len(_columns(path, "features of edges"))), np.float32), 0
    for block in _csv(path, "features of edges", "float32", context):
        if at + block.shape[0] <= count:
            out[at : at + block.shape[0]] = block
        at += block.shape[0]
        if at > count:
            break
    if at != count:
        found = "more" if at > count else at
        raise InputError(f"{path}: expected one row of features for each of {count} edges, found {found}; get it again")
    return out


def _rows_of_text(
    path: Path, count: int, context: ImportContext, start: int, graph: GraphSoFar
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Feature rows from `start` on; as many as there are nodes in all."""
    at = 0
    for block in _csv(path, "features", "float32", context):
        rows, first = block[max(0, start - at) :], max(start, at)
        at += block.shape[0]
        if at > count:
            break
        if rows.shape[0]:
            yield first, rows
    if at != count:
        require_rows(str(path), (at,), count)


def _numbers(path: Path, what: str, context: ImportContext, most: int = 1, kind: str = "int64") -> npt.NDArray[Any]:
    """All rows of a text of at most so many."""
    out = context.scratch.array((most, 1), kind)
    at = 0
    for block in _csv(path, what, kind, context, width=1):
        if at + block.shape[0] > most:
            raise InputError(f"{path}: expected at most {most} rows, found more; get the file again")
        out[at : at + block.shape[0]] = block
        at += block.shape[0]
    return out[:at]


def _columns(path: Path, what: str) -> list[str]:
    """Made-up names of the columns of a packed text."""
    require_file(path, what)
    with _text_errors(path, what), pa_csv.open_csv(path, _OPTIONS) as file:
        names: list[str] = file.schema.names
    return names


def _csv(
    path: Path, what: str, kind: str, context: ImportContext, width: int | None = None
) -> Iterator[npt.NDArray[Any]]:
    """Blocks of rows of a packed text, each of shape (some, width)."""
    names, dtype = _columns(path, what), storage_dtype(kind)
    context.used(path)
    if width not in (None, len(names)):
        raise InputError(f"{path}: expected {what}, {width} in a line, found {len(names)}; get the file again")
    types = dict.fromkeys(names, pa.int64() if dtype.kind == "i" else pa.from_numpy_dtype(dtype))
    convert = pa_csv.ConvertOptions(column_types=types, null_values=["", "nan", "NaN"] if dtype.kind == "f" else [])
    with _text_errors(path, what), pa_csv.open_csv(path, _OPTIONS, convert_options=convert) as file:
        for batch in file:
            values = [batch.column(k).to_numpy(zero_copy_only=False) for k in range(len(names))]
            yield np.stack(values, axis=1).astype(dtype, copy=False)


@contextmanager
def _text_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{path}: expected {what} as packed text ({one_line(error)}); get the file again") from error


def _splits(path: Path, count: int, labels: Any, context: ImportContext) -> dict[str, npt.NDArray[np.int64]]:
    """The only scheme's splits, unless shares are asked for."""
    made = make_splits(labels, count, context, str(path))
    folder = path / "split"
    if made or not is_folder(folder):
        return made
    schemes = [entry for entry in entries(folder) if is_folder(entry)]
    if len(schemes) != 1:
        names = ", ".join(scheme.name for scheme in schemes) or "nothing"
        raise InputError(f"{folder}: expected the folder of one scheme, found {names}; leave one, or give --split")
    splits = {}
    packed = schemes[0] / "split_dict.pt"
    if is_there(packed, "splits"):
        context.used(packed)
        splits = torch_splits(packed, count)
    else:
        for theirs, ours in OGB_SPLITS.items():
            file = schemes[0] / f"{theirs}.csv.gz"
            ids = _numbers(file, f"node ids of {theirs}", context, most=count)
            splits[ours] = split_ids(ids[:, 0], str(file), count)
    check_splits(splits, labels, count, NODE, context)
    return splits


READER = Reader(
    _open_ogb,
    takes=frozenset(),
    directory=Detector(f"raw/{DATA} or raw/{EDGES} (ogb)", lambda path: _raw(path) is not None),
)
