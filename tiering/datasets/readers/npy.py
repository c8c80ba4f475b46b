"""Formats ``npy``, ``csc``, ``csr``: numpy files in a directory; ``npz``: a square matrix of ``scipy.sparse.save_npz``.

``indices[indptr[k]:indptr[k + 1]]`` are, in a ``csc``, the sources of edges that end at k, in a ``csr`` destinations of
those that begin there; both also in a tree like `igb`'s.
"""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.storage import file_exists
from tiering.datasets.archives import open_npz, require_member
from tiering.datasets.arrays import SourceArray
from tiering.datasets.edges import EdgeReader, read_edge_folder
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, chunks, files_that
from tiering.datasets.nodes import make_dataset, read_arrays_beside
from tiering.datasets.options import RAW_OPTIONS, TREE_OPTIONS, node_count
from tiering.datasets.readers.igb import find_tree, open_tree
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import ColumnIds, Dataset, EdgeData
from tiering.text.options import spell_flag

Array = npt.NDArray[Any]
INDPTR, INDICES = "indptr.npy", "indices.npy"
_LAYOUTS = ("coo", "csr", "csc")  # of sparse matrices


def open_folder(path: Path, context: ImportContext, read_edges: EdgeReader) -> Dataset:
    """Return one graph of one node type and relation, whose edges `read_edges` reads from the folder."""
    context.folder, edges = path, read_edges(path, RELATION, context, False)
    return make_dataset(path.name, {NODE: read_arrays_beside(edges, context)}, [edges], context)


def find_lists(path: Path) -> Path | None:
    """Return the folder with the lists, or with the folders of relations that have them."""
    return path if file_exists(path / INDPTR, "offsets of lists") else find_tree(path, INDPTR)


def _open_lists(path: Path, context: ImportContext, *, by_source: bool) -> Dataset:
    folder = find_lists(path)
    read = partial(_read_lists, by_source=by_source)
    if folder is None:
        problem = f"expected {INDPTR} and {INDICES}, or folders SRC__NAME__DST with these files, found neither"
        raise MissingError(f"{path}: {problem}; check the path or choose another --format")
    if file_exists(folder / INDPTR, "offsets of lists"):
        if ignored := sorted(TREE_OPTIONS & set(context.notes["options"])):
            what = "does not apply to one relation in one directory"
            raise InputError(f"{spell_flag(ignored[0])}: {what}; omit it")
        return open_folder(folder, context, read)
    return open_tree(folder, context, INDPTR, read)


def _read_lists(folder: Path, relation: Relation, context: ImportContext, _: bool, *, by_source: bool) -> EdgeData:
    column = SourceArray.open_npy(path := folder / INDICES, what := "one id per edge", context)
    indices = column.numbers(what, "i", "ids of dtype int32 or int64")
    if indices.dtype.itemsize < 4:
        problem = f"expected ids of dtype int32 or int64, found {indices.dtype}"
        raise InputError(f"{path}: {problem}; convert with array.astype('int64')")
    offsets = SourceArray.open_npy(folder / INDPTR, what := "offsets of lists", context)
    indptr = offsets.numbers(what, "iu", "whole numbers")
    ends = list_ends(indptr, indices, folder / INDPTR, context, by_source=by_source)
    return EdgeData(relation, *ends, where=str(path))


def list_ends(
    indptr: Array, indices: Array, path: Path, context: ImportContext, *,
    by_source: bool = False, count: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return both ends of edges in lists of `indices`, one as `ColumnIds`; `path` is the offsets' file."""
    where = str(path) if path.name == INDPTR else f"{path}: indptr"
    if indptr.shape[0] == 0 or count not in (None, indptr.shape[0] - 1):
        expected = "one offset more than there are nodes" if count is None else f"{count + 1} offsets"
        raise InputError(f"{where}: expected {expected}, found {indptr.shape[0] or 'none'}; write it again")
    offsets = indptr if indptr.dtype == np.int64 else context.scratch.array(indptr.shape[0], np.int64)
    before = 0
    for part in chunks(indptr.shape[0]):
        block = indptr[part].astype(np.int64, copy=False)
        if part.start == 0 and block[0] != 0:
            raise InputError(f"{where}: expected offsets that begin with 0, found {indptr[0]}; write it again")
        falls = block < np.concatenate([[before], block[:-1]])
        if falls.any():
            at = int(np.argmax(falls))
            raise InputError(
                f"{where}: expected offsets that never decrease, found {int(block[at])} after "
                f"{int(block[at - 1]) if at else before} at position {part.start + at}; write it again"
            )
        if offsets is not indptr:
            offsets[part] = block
        before = int(block[-1])
    if before != indices.shape[0]:
        problem = f"expected the last offset to be the number of ids in indices, {indices.shape[0]}, found {before}"
        raise InputError(f"{where}: {problem}; the two files do not belong together")
    columns = cast("Array", ColumnIds(offsets, id_bytes(offsets.shape[0] - 1), where))
    return (columns, indices) if by_source else (indices, columns)


CSC_READER = Reader(partial(_open_lists, by_source=False), takes=RAW_OPTIONS | TREE_OPTIONS)
CSR_READER = Reader(partial(_open_lists, by_source=True), takes=RAW_OPTIONS | TREE_OPTIONS)
READER = Reader(
    lambda path, context: open_folder(path, context, read_edge_folder),
    RAW_OPTIONS,
    directory=Detector("edge_index.npy (npy)", lambda path: file_exists(path / "edge_index.npy", "edges")),
)


def _open_matrix(path: Path, context: ImportContext) -> Dataset:
    file = context.choose_file(path, files_that(_is_matrix), "scipy.sparse.save_npz")
    name, path = path.stem if file == path else path.name, file
    members = open_npz(path, "a matrix of scipy.sparse.save_npz", context)
    layout = next(require_member(members, "format", path).flat())[0]
    layout = layout.decode(errors="replace") if isinstance(layout, bytes) else str(layout)
    shape = require_member(members, "shape", path).column("iu", "rows and columns", context).tolist()
    if layout not in _LAYOUTS:
        raise InputError(f"{path}: expected a matrix {', '.join(_LAYOUTS)}, found {layout[:20]!r}; save matrix.tocsr()")
    if len(shape) != 2 or shape[0] != shape[1]:
        problem = f"expected a square matrix, one row and column per node, found shape {shape}"
        raise InputError(f"{path}: {problem}; write edges between two types of nodes as format igb or csr")
    count = node_count(shape[0], f"{path}: shape")

    def ids(array: str) -> Array:
        member = require_member(members, array, path)
        if member.dtype.str not in ("<i4", "<i8"):
            raise InputError(f"{member.where}: expected ids of dtype int32 or int64, found {member.described}")
        return member.column("i", "ids of nodes", context)

    if layout == "coo":
        src, dst = ids("row"), ids("col")
        if src.shape != dst.shape:
            raise InputError(f"{path}: expected as many rows as columns, found {src.size} and {dst.size}")
    else:
        src, dst = list_ends(ids("indptr"), ids("indices"), path, context, by_source=layout == "csr", count=count)
    edges = EdgeData(RELATION, src, dst, str(path))
    arrays = read_arrays_beside(edges, context)
    arrays.counts.append((f"{path}: shape", count))
    return make_dataset(name, {NODE: arrays}, [edges], context)


def _is_matrix(path: Path) -> bool:
    if path.suffix != ".npz":
        return False
    try:
        with path.open("rb", 0) as file, zipfile.ZipFile(file) as archive:
            return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


_NPZ = "a file of scipy.sparse.save_npz (npz)"
NPZ_READER = Reader(
    _open_matrix, RAW_OPTIONS, directory=Detector(_NPZ, files_that(_is_matrix)), file=Detector(_NPZ, _is_matrix)
)
