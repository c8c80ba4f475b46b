"""Format ``npz``: a square sparse matrix that ``scipy.sparse.save_npz`` wrote; entry (i, j) is edge i -> j.

The path is the file, or a directory with one such file and the nodes' files of format `npy` (``node_feat.npy``,
``node_label.npy``, ``train_idx.npy``...) and ``edge_weight.npy``, ``edge_type.npy``... in the order of the entries.
The matrix is a ``coo``, ``csr`` or ``csc``; its values are not read. Arrays are unpacked once, into memory or temporary
files.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.regular import entries, is_folder
from tiering.datasets.archives import open_npz, require_member
from tiering.datasets.edges import read_edge_values, require_room
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader
from tiering.datasets.nodes import NodeFiles, read_nodes
from tiering.datasets.options import RAW_OPTIONS, node_count, option_name
from tiering.datasets.readers.lists import checked_offsets
from tiering.datasets.readers.npy import LABEL_NAMES
from tiering.errors import InputError, MissingError
from tiering.formats.column_ids import ColumnIds
from tiering.formats.protocols import Dataset, EdgeData, NodeData

_LAYOUTS = ("coo", "csr", "csc")


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    folder = path if is_folder(path) else None
    matrices = _matrices(path) if folder else [path]
    if len(matrices) != 1:
        found = ", ".join(file.name for file in matrices) or "none"
        raise MissingError(f"{path}: expected one file of scipy.sparse.save_npz, found {found}; give the path of one")
    context.notes["node_types"] = [NODE]
    edges, count = _read_matrix(matrices[0], context)
    stated = f"{matrices[0]}: shape", count
    if folder:
        read_edge_values(folder, edges, context)
        nodes = read_nodes(NodeFiles(folder, NODE, LABEL_NAMES, stated_count=stated), [edges], context)
        context.ignored(entry for entry in entries(folder) if not entry.name.startswith("."))
    else:
        for name in sorted(RAW_OPTIONS & set(context.notes["options"])):  # it would be ignored
            raise InputError(f"{option_name(name)}: has no meaning for one file; give the directory with the features")
        asked = context.options.num_nodes.get(NODE)
        if asked not in (None, count):
            raise InputError(f"--num-nodes: expected {count} as in {path}, found {asked}; leave it out")
        require_room(NODE, count, f"{stated[0]}: says that there are {count} nodes", [edges], context)
        nodes = NodeData(count)
    return context.dataset(path.stem, {NODE: nodes}, [edges])


def _read_matrix(path: Path, context: ImportContext) -> tuple[EdgeData, int]:
    """Return the edges of a matrix, and the number of its rows, which are nodes."""
    members = open_npz(path, "a matrix of scipy.sparse.save_npz", context)
    layout = next(require_member(members, "format", path).flat())[0]
    layout = layout.decode(errors="replace") if isinstance(layout, bytes) else str(layout)
    shape = require_member(members, "shape", path).column("iu", "rows and columns", context).tolist()
    if layout not in _LAYOUTS:
        raise InputError(f"{path}: expected a matrix {', '.join(_LAYOUTS)}, found {layout[:20]!r}; save matrix.tocsr()")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(
            f"{path}: expected a square matrix, of which a row and a column are a node, found shape {shape}; write "
            "edges between two types of nodes as format igb or csr"
        )
    count = node_count(shape[0], f"{path}: shape")

    def ids(name: str) -> npt.NDArray[Any]:
        member = require_member(members, name, path)
        if member.dtype.str not in ("<i4", "<i8"):
            raise InputError(f"{member.where}: expected ids of dtype int32 or int64, found {member.described}")
        return member.column("i", "ids of nodes", context)

    if layout == "coo":
        src, dst = ids("row"), ids("col")
        if src.shape != dst.shape:
            raise InputError(f"{path}: expected as many rows as columns, found {src.size} and {dst.size}")
        return EdgeData(RELATION, src, dst, str(path)), count
    indices, where = ids("indices"), f"{path}: indptr"
    indptr = checked_offsets(ids("indptr"), where, indices.shape[0], f"{path}: indices", context)
    if indptr.shape[0] != count + 1:
        raise InputError(f"{where}: expected {count + 1} offsets, one more than rows, found {indptr.shape[0]}")
    listed = cast("npt.NDArray[np.int64]", ColumnIds(indptr, id_bytes(count), where))
    src, dst = (listed, indices) if layout == "csr" else (indices, listed)
    return EdgeData(RELATION, src, dst, str(path)), count


def _is_matrix(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _matrices(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.suffix == ".npz" and _is_matrix(path)]


READER = Reader(
    _open_matrix,
    takes=RAW_OPTIONS,
    directory=Detector("a file of scipy.sparse.save_npz (npz)", lambda path: bool(_matrices(path))),
    file=Detector("a file of scipy.sparse.save_npz (npz)", lambda path: path.suffix == ".npz" and _is_matrix(path)),
)
