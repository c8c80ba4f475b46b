"""Formats ``csc`` and ``csr``: adjacency as compressed lists, as scipy, PyG and DGL hold it; numpy files.

``indptr.npy`` (nodes + 1,) and ``indices.npy`` (E,): the list of node k is ``indices[indptr[k]:indptr[k + 1]]``. In a
``csc`` it holds the sources of the edges that end at k, in a ``csr`` the destinations of those that begin there. Edge
values (``edge_weight.npy``...) run along the indices. Around them everything is as in the formats `npy` (one node type,
all files in one directory) and `igb` (``SRC__NAME__DST/indptr.npy``, ``TYPE/node_feat.npy``...).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.regular import is_there
from tiering.datasets.edges import read_edge_values
from tiering.datasets.import_context import ImportContext, Reader
from tiering.datasets.options import RAW_OPTIONS, TREE_OPTIONS, option_name
from tiering.datasets.readers.igb import find_tree, open_tree
from tiering.datasets.readers.npy import open_folder
from tiering.datasets.scratch import chunks
from tiering.errors import InputError, MissingError
from tiering.formats.column_ids import ColumnIds
from tiering.formats.protocols import Dataset, EdgeData

INDPTR, INDICES = "indptr.npy", "indices.npy"


def find_lists(path: Path) -> Path | None:
    """The folder with the lists, or with the folders of relations that have them."""
    return path if is_there(path / INDPTR, "offsets of lists") else find_tree(path, INDPTR)


def _open_lists(path: Path, context: ImportContext, *, by_source: bool) -> Dataset:
    folder = find_lists(path)
    read = partial(_read_lists, by_source=by_source)
    if folder is None:
        raise MissingError(
            f"{path}: expected {INDPTR} and {INDICES}, or folders SRC__NAME__DST that hold them, found neither; check "
            "the path or choose another --format"
        )
    if is_there(folder / INDPTR, "offsets of lists"):
        for name in sorted(TREE_OPTIONS & set(context.notes["options"])):  # it would be ignored
            raise InputError(f"{option_name(name)}: has no meaning for one relation in one directory; leave it out")
        return open_folder(folder, context, read)
    return open_tree(folder, context, INDPTR, read)


def _read_lists(
    folder: Path, relation: Relation, context: ImportContext, *, pairs: bool = False, by_source: bool = False
) -> EdgeData:
    """Edges of one relation: the ends that lists are kept by take no memory, the others are mapped."""
    indices = context.open_npy(folder / INDICES, "one id per edge").column("i", "ids of dtype int32 or int64")
    if indices.dtype.itemsize < 4:
        raise InputError(
            f"{folder / INDICES}: expected ids of dtype int32 or int64, found {indices.dtype}; convert with "
            "array.astype('int64')"
        )
    indptr = _offsets(folder / INDPTR, indices.shape[0], context)
    columns = ColumnIds(indptr, id_bytes(indptr.shape[0] - 1), str(folder / INDPTR))
    listed = cast("npt.NDArray[Any]", columns)
    ends = (listed, indices) if by_source else (indices, listed)
    edges = EdgeData(relation, *ends, where=str(folder / INDICES))
    read_edge_values(folder, edges, context)
    return edges


def _offsets(path: Path, num_indices: int, context: ImportContext) -> npt.NDArray[np.int64]:
    """Offsets of lists, mapped, checked in one pass; as int64 in a temporary file if they are not."""
    given = context.open_npy(path, "offsets of lists").column("iu", "whole numbers")
    return checked_offsets(given, str(path), num_indices, INDICES, context)


def checked_offsets(
    given: npt.NDArray[Any], path: str, num_indices: int, indices: str, context: ImportContext
) -> npt.NDArray[np.int64]:
    """Offsets from `path` of lists of so many ids in all, in `indices`, checked in one pass; as int64."""
    if given.shape[0] == 0:
        raise InputError(f"{path}: expected one offset more than there are nodes, found none; write it again")
    offsets = given if given.dtype == np.int64 else context.scratch.array(given.shape[0], np.int64)
    before = 0
    for part in chunks(given.shape[0]):
        block = given[part].astype(np.int64, copy=False)
        if part.start == 0 and block[0] != 0:
            raise InputError(f"{path}: expected offsets that begin with 0, found {given[0]}; write it again")
        falls = block < np.concatenate([[before], block[:-1]])
        if falls.any():
            at = int(np.argmax(falls))
            raise InputError(
                f"{path}: expected offsets that never fall, found {int(block[at])} after "
                f"{int(block[at - 1]) if at else before} at position {part.start + at}; write it again"
            )
        if offsets is not given:
            offsets[part] = block
        before = int(block[-1])
    if before != num_indices:
        raise InputError(
            f"{path}: expected the last offset to be the number of ids in {indices}, {num_indices}, found {before}; "
            "the two do not belong together"
        )
    return offsets


CSC_READER = Reader(partial(_open_lists, by_source=False), takes=RAW_OPTIONS | TREE_OPTIONS)
CSR_READER = Reader(partial(_open_lists, by_source=True), takes=RAW_OPTIONS | TREE_OPTIONS)
