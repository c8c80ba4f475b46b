"""Format ``npz``: a square sparse matrix that ``scipy.sparse.save_npz`` wrote; entry (i, j) is edge i -> j.

The path is the file, or a directory with it and the files of nodes and edges of format `npy`. The matrix is a ``coo``,
``csr`` or ``csc``; its values are not read. Arrays are unpacked once, into memory or temporary files.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tiering.artifacts.regular import entries, is_folder
from tiering.datasets.archives import open_npz, require_member
from tiering.datasets.edges import read_edge_values
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader
from tiering.datasets.nodes import NodeArrays, make_nodes
from tiering.datasets.options import RAW_OPTIONS, node_count
from tiering.datasets.readers.npy import list_ends, open_folder
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData
from tiering.options import spell_flag

_LAYOUTS = ("coo", "csr", "csc")


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    folder = path if is_folder(path) else None
    matrices = _find_matrices(path) if folder else [path]
    if len(matrices) != 1:
        names = ", ".join(file.name for file in matrices) or "none"
        raise MissingError(f"{path}: expected one file of scipy.sparse.save_npz, found {names}; give the path of one")
    edges, count = _read_matrix(matrices[0], context)
    stated = f"{matrices[0]}: shape", count
    if folder:
        read_edge_values(folder, edges, context)
        return open_folder(folder, context, lambda *_: edges, stated)
    if ignored := sorted(RAW_OPTIONS & set(context.notes["options"])):
        raise InputError(f"{spell_flag(ignored[0])}: has no meaning for one file; give the directory with the features")
    context.notes["node_types"] = [NODE]
    nodes = make_nodes(NODE, NodeArrays(counts=[stated]), [edges], context)
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
        problem = f"expected a square matrix, of which a row and a column are a node, found shape {shape}"
        raise InputError(f"{path}: {problem}; write edges between two types of nodes as format igb or csr")
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
    else:
        src, dst = list_ends(ids("indptr"), ids("indices"), path, context, by_source=layout == "csr", count=count)
    return EdgeData(RELATION, src, dst, str(path)), count


def _is_matrix(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _find_matrices(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.suffix == ".npz" and _is_matrix(path)]


_WHAT = "a file of scipy.sparse.save_npz (npz)"
READER = Reader(
    _open_matrix,
    RAW_OPTIONS,
    directory=Detector(_WHAT, lambda path: bool(_find_matrices(path))),
    file=Detector(_WHAT, lambda path: path.suffix == ".npz" and _is_matrix(path)),
)
