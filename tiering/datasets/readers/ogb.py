"""Format ``ogb``: node datasets of the Open Graph Benchmark as they are downloaded, unpacked once.

Large ones (papers100M) have ``raw/data.npz`` and ``raw/node-label.npz``, small ones text (``raw/edge.csv.gz``...),
datasets of several types (ogbn-mag) in a folder for each type and relation, which ``raw/triplet-list.csv.gz`` lists.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import entries, file_exists, is_folder, require_file
from tiering.datasets.archives import PackedRows, open_npz, open_packed_text, require_member
from tiering.datasets.arrays import SourceArray
from tiering.datasets.edge_sink import EdgeSink
from tiering.datasets.edges import add_edge_values
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, first_wrong
from tiering.datasets.nodes import LabelArray, NodeArrays, make_dataset
from tiering.datasets.options import TIME_OPTIONS
from tiering.datasets.splits import OFFICIAL, OGB_SPLITS, SplitArray, read_torch_splits
from tiering.datasets.times import column_times, time_file
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.features import EDGE_FEATURES
from tiering.text.progress import note

DATA, LABELS, EDGES, TRIPLETS = "data.npz", "node-label.npz", "edge.csv.gz", "triplet-list.csv.gz"
READ = ("num_nodes_list", "num_edges_list", "edge_index", "node_feat", "edge_feat", "node_label")


def _has_raw(path: Path) -> bool:
    raw = path / "raw"
    return is_folder(raw) and any(file_exists(raw / name, "a graph") for name in (DATA, EDGES, TRIPLETS))


def _open_ogb(path: Path, context: ImportContext) -> Dataset:
    raw = path / "raw"
    if not _has_raw(path):
        raise MissingError(f"{path}: expected raw/{DATA} or raw/{EDGES}, found neither; check the path")
    if file_exists(raw / TRIPLETS, "a graph"):
        arrays, edges = _read_typed(path, raw, context)
    else:
        what, counts = "the number of nodes, of one graph", raw / "num-node-list.csv.gz"
        if file_exists(raw / DATA, "a graph"):
            files: _Archive | _Texts = _Archive(raw, context)
        else:
            files = _Texts(raw, context, int(_read_numbers(counts, what, 1, context).sum()))
        arrays, edges = {NODE: _read_nodes(path, raw, NODE, files, context)}, [_read_relation(raw, files, context)]
    context.record_ignored(entries(raw))
    return make_dataset(path.name, arrays, edges, context)


def _read_typed(path: Path, raw: Path, context: ImportContext) -> tuple[dict[str, NodeArrays], list[EdgeData]]:
    counts, triplets = (_read_table(raw / name, context) for name in ("num-node-dict.csv.gz", TRIPLETS))
    arrays, per_type = {}, [raw / "node-feat", raw / "node-label"]
    context.known |= {raw / "relations", *per_type}
    for node_type, number in zip(counts[0], counts[1], strict=True):
        arrays[node_type] = _read_nodes(path, raw, node_type, _Texts(raw, context, int(number), node_type), context)
        context.record_ignored(
            file for folder in per_type if is_folder(folder / node_type) for file in entries(folder / node_type)
        )
    edges = []
    for src, name, dst in triplets:
        folder = raw / "relations" / f"{src}___{name}___{dst}"
        edges.append(replace(_read_relation(folder, _Texts(folder, context), context), relation=(src, name, dst)))
        context.record_ignored(entries(folder))
    return arrays, edges


def _read_nodes(path: Path, raw: Path, node_type: str, files: _Archive | _Texts, context: ImportContext) -> NodeArrays:
    arrays = NodeArrays(counts=[(str(raw), files.num_nodes)])
    if (features := files.rows("node_feat")) is not None:
        arrays.features = features.stream(files.num_nodes)
    if (labels := files.rows("node_label")) is not None:
        rows = labels
        arrays.labels = LabelArray(rows.where, lambda count: rows.read(count, context.scratch))
    arrays.times = _read_times(files, "node", files.num_nodes, context)
    if context.options.split in (None, OFFICIAL):
        arrays.splits = _read_splits(path, node_type, files.num_nodes, context)
    return arrays


def _read_relation(raw: Path, files: _Archive | _Texts, context: ImportContext) -> EdgeData:
    edges = files.read_edges()
    if (values := files.rows("edge_feat")) is not None:
        table = values.read(edges.num_edges, context.scratch)
        column = SourceArray(values.where, table, str(table.dtype), raw, numpy_file=True)
        add_edge_values(edges, EDGE_FEATURES, column, context)
    if (times := _read_times(files, "edge", edges.num_edges, context)) is not None:
        edges.data[str(context.time_name)] = times
    return edges


def _read_times(files: _Archive | _Texts, kind: str, count: int, context: ImportContext) -> npt.NDArray[Any] | None:
    """Return the times that OGB calls ``node_year``, say, if the option names them, with or without the first word."""
    name = context.time_name
    rows = None if name is None else files.rows(time_file(Path(), kind, name).stem)
    if rows is None:
        return None
    return column_times(SourceArray(rows.where, rows.read(count, context.scratch), str(rows.dtype), Path()), context)


class _Archive:
    def __init__(self, raw: Path, context: ImportContext) -> None:
        self._context, self._path = context, raw / DATA
        self._members = open_npz(self._path, "the graph", context)
        self.num_nodes = self._number("num_nodes_list")
        if file_exists(labels := raw / LABELS, "labels"):
            members = open_npz(labels, "labels", context)
            self._members["node_label"] = require_member(members, "node_label", labels)
        times = {time_file(Path(), kind, str(context.time_name)).stem for kind in ("node", "edge")}
        unread = [member.where for name, member in self._members.items() if name not in {*READ, *times}]
        if unread:
            context.notes["ignored_arrays"] = unread
            note(f"note: not imported: {', '.join(unread)}; keep the arrays that you need in your own files")

    def _number(self, name: str) -> int:
        member = require_member(self._members, name, self._path)
        values = np.concatenate(list(member.flat())) if np.prod(member.shape) == 1 else np.empty(0)
        if values.size != 1 or values.dtype.kind not in "iu" or not 0 <= int(values[0]) < 2**48:
            what = f"expected one number, of one graph, found {member.described}"
            raise InputError(f"{member.where}: {what}; get it again")
        return int(values[0])

    def rows(self, name: str) -> PackedRows | None:
        return self._members[name].packed_rows() if name in self._members else None

    def read_edges(self) -> EdgeData:
        """Unpack the ids, each checked on its way: one out of range might wrap to one that looks right."""
        expected, count = self._number("num_edges_list"), self.num_nodes
        pairs = require_member(self._members, "edge_index", self._path)
        if pairs.shape != (2, expected) or pairs.dtype.kind not in "iu":
            raise InputError(
                f"{pairs.where}: expected whole numbers of shape (2, {expected}), as num_edges_list says, found "
                f"{pairs.described}; get the file again"
            )
        by_edge = pairs.fortran_order  # then both ends of an edge lie together
        shape = pairs.shape[::-1] if by_edge else pairs.shape
        out, at = self._context.scratch.array(shape, np.int32 if count < 2**31 else np.int64), 0
        flat = out.reshape(-1)
        for block in pairs.flat():
            wrong = first_wrong(block, lambda ids: (ids < 0) | (ids >= count))
            if wrong is not None:
                edge, end = divmod(at + wrong, 2) if by_edge else divmod(at + wrong, max(1, expected))[::-1]
                raise InputError(
                    f"{pairs.where}: edge {edge}: {('source', 'destination')[end]} id {int(block[wrong])}: expected "
                    f"ids in 0..{count - 1}, as the dataset says; get the file again"
                )
            flat[at : at + block.size] = block
            at += block.size
        src, dst = out.T if by_edge else out
        return EdgeData(RELATION, src, dst, pairs.where)


class _Texts:
    """Texts of a folder; texts of a type's nodes in ``node-feat/TYPE`` and the like, where there are several types."""

    def __init__(self, raw: Path, context: ImportContext, num_nodes: int = 2**62, node_type: str | None = None) -> None:
        self._context, self._raw, self._type, self.num_nodes = context, raw, node_type, num_nodes

    def rows(self, name: str) -> PackedRows | None:
        if name not in READ:  # times, whose files have the names that users give
            path = self._raw / ("" if self._type is None else f"{name}/{self._type}") / f"{name}.csv.gz"
            return open_packed_text(path, "times", "int64", self._context) if file_exists(path, "times") else None
        name = name.replace("_", "-")
        path = self._raw / ("" if self._type is None else f"{name}/{self._type}") / f"{name}.csv.gz"
        if not file_exists(path, what := {"node-label": "labels"}.get(name, "features")):
            return None
        rows = open_packed_text(path, what, "float64" if name == "node-label" else "float32", self._context)
        return rows if rows.dim == 1 else replace(rows, dtype=np.dtype(np.float32))  # float64 is for single labels

    def read_edges(self) -> EdgeData:
        path, listed = self._raw / EDGES, self._raw / "num-edge-list.csv.gz"
        pairs = open_packed_text(path, "edges", "int64", self._context)
        if pairs.dim != 2:
            raise InputError(f"{path}: expected edges, 2 in a line, found {pairs.dim}; get the file again")
        expected = None
        if file_exists(listed, "the number of edges"):
            expected = int(_read_numbers(listed, "the number of edges", 1, self._context).sum())
        sink = EdgeSink(path, self._context)
        for block in pairs.blocks(0):
            sink.append({"src": block[:, 0], "dst": block[:, 1]})
            if expected is not None and sink.rows > expected:
                break
        if expected not in (None, sink.rows):
            found = "more" if sink.rows > (expected or 0) else sink.rows
            what = f"expected {expected} edges, as num-edge-list.csv.gz says, found {found}"
            raise InputError(f"{path}: {what}; get the file again")
        if sink.largest.id >= self.num_nodes:
            what = f"expected ids in 0..{self.num_nodes - 1}, as the dataset says"
            raise InputError(f"{sink.largest.place}: {what}; get it again")
        columns = sink.finish_columns()
        return EdgeData(RELATION, columns["src"], columns["dst"], str(path))


def _read_table(path: Path, context: ImportContext) -> list[list[str]]:
    require_file(path, "types")
    context.record_file(path)
    try:
        return [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().split()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected types as gzip text ({error}); get the file again") from error


def _read_numbers(path: Path, what: str, most: int, context: ImportContext) -> npt.NDArray[Any]:
    rows = open_packed_text(path, what, "int64", context)
    if rows.dim != 1:
        raise InputError(f"{path}: expected {what}, 1 in a line, found {rows.dim}; get the file again")
    parts, count = [np.empty(0, np.int64)], 0
    for block in rows.blocks(0):
        parts.append(block[:, 0])
        count += block.shape[0]
        if count > most:
            raise InputError(f"{path}: expected {what}, at most {most} rows, found more; get the file again")
    return np.concatenate(parts)


def _read_splits(path: Path, node_type: str, count: int, context: ImportContext) -> dict[str, SplitArray]:
    folder = path / "split"
    if not is_folder(folder):
        return {}
    schemes = [entry for entry in entries(folder) if is_folder(entry)]
    if len(schemes) != 1:
        names = ", ".join(scheme.name for scheme in schemes) or "nothing"
        raise InputError(f"{folder}: expected the folder of one scheme, found {names}; keep one, or give --split")
    if file_exists(packed := schemes[0] / "split_dict.pt", "splits"):
        return read_torch_splits(packed, context)
    of_type, splits = schemes[0] / node_type, {}
    if file_exists(schemes[0] / "nodetype-has-split.csv.gz", "splits") and not is_folder(of_type):
        return {}
    for theirs, ours in OGB_SPLITS.items():
        file = (of_type if is_folder(of_type) else schemes[0]) / f"{theirs}.csv.gz"
        splits[ours] = SplitArray(_read_numbers(file, f"node ids of {theirs}", count, context), str(file))
    return splits


READER = Reader(
    _open_ogb, TIME_OPTIONS, directory=Detector(f"raw/{DATA}, raw/{EDGES} or raw/{TRIPLETS} (ogb)", _has_raw)
)
