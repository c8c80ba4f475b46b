"""Edges from numpy files in either orientation, and what is checked of edges from any file: weights, ids, room."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, storage_dtype
from tiering.artifacts.regular import is_there
from tiering.datasets.features import feature_dtype
from tiering.datasets.import_context import ImportContext
from tiering.datasets.options import MAX_NODES
from tiering.datasets.scratch import chunks, first_wrong
from tiering.errors import BudgetError, InputError
from tiering.formats.column_ids import as_lists
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.protocols import EdgeData
from tiering.units import format_bytes

SMALL_INDPTR = 64 * 1024 * 1024
"""Bytes that any machine has."""
EDGE_FILES = {"edge_weight.npy": "weight", "edge_type.npy": "type", "edge_id.npy": "id", "edge_ids.npy": "id"}
"""Files with one value per edge -> what they hold; of two that hold ids, the first counts."""
FEATURE_FILE = "edge_feat.npy"
"""File with one row of features per edge."""


def read_edge_folder(folder: Path, relation: Relation, context: ImportContext, *, pairs: bool = False) -> EdgeData:
    """Edges of one relation: ``edge_index.npy`` and `EDGE_FILES` beside it, mapped.

    A file of shape (2, 2) is read as (E, 2) with `pairs`, else as (2, E).
    """
    path = folder / "edge_index.npy"
    edges = EdgeData(relation, *_open_edge_index(path, context, pairs), where=str(path))
    read_edge_values(folder, edges, context)
    return edges


def read_edge_values(folder: Path, edges: EdgeData, context: ImportContext) -> None:
    """The files of `EDGE_FILES` and the `FEATURE_FILE` beside the edges of a relation, mapped."""
    for name, held in EDGE_FILES.items():
        path = folder / name
        if not is_there(path, "one value per edge") or (held == "id" and edges.edge_ids is not None):
            continue
        values = _per_edge(path, edges.num_edges, context, "iuf" if held == "weight" else "iu")
        if held == "id":
            edges.edge_ids = values.astype(np.int64, copy=False)
        else:
            edges.data[held] = values
    if "weight" in edges.data:
        check_weights(edges.data["weight"], str(folder / "edge_weight.npy"))
    if is_there(path := folder / FEATURE_FILE, "one row of features per edge"):
        edges.data[EDGE_FEATURES] = _edge_features(path, edges.num_edges, context)


def _edge_features(path: Path, num_edges: int, context: ImportContext) -> npt.NDArray[Any]:
    array = context.open_npy(path, "edge features of shape (edges, dim)").array()
    if not array.flags.c_contiguous:
        raise InputError(
            f"{path}: expected rows that lie together (C order), found Fortran order; save it again with "
            "numpy.save(path, numpy.ascontiguousarray(array))"
        )
    shape, stored = edge_rows(str(path), array.shape, array.dtype, num_edges)
    return array.reshape(shape).view(stored)


def edge_rows(
    where: str, shape: tuple[int, ...], dtype: np.dtype[Any], num_edges: int
) -> tuple[tuple[int, int], np.dtype[Any]]:
    """What an array of features of edges is as rows, (edges, dim), and as it is stored: ``bfloat16`` as ``uint16``."""
    described = f"{dtype} {shape}"
    if len(shape) not in (1, 2) or shape[0] != num_edges:
        raise InputError(
            f"{where}: expected one row of features per edge, shape ({num_edges}, dim), found {described}; correct the "
            "file, or take it out of the directory"
        )
    dim = shape[1] if len(shape) == 2 else 1
    if dim == 0:
        raise InputError(f"{where}: expected 1 or more values per row, found {described}; leave it out")
    return (num_edges, dim), storage_dtype(feature_dtype(where, dtype))


def _open_edge_index(path: Path, context: ImportContext, pairs: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    array = context.open_npy(path, "edges of shape (2, E) or (E, 2)").array()
    if array.dtype.str not in ("<i4", "<i8"):
        raise InputError(
            f"{path}: expected edges of dtype int32 or int64, found {array.dtype}; convert with array.astype('int64')"
        )
    if array.ndim != 2 or 2 not in array.shape:
        raise InputError(f"{path}: expected edges of shape (2, E) or (E, 2), found {array.shape}; reshape them")
    if array.shape == (2, 2):
        context.inferred(f"{path} orientation", "(E, 2)" if pairs else "(2, E)")
    else:
        pairs = array.shape[1] == 2
    src, dst = array.T if pairs else array
    return src, dst


def _per_edge(path: Path, num_edges: int, context: ImportContext, kinds: str) -> npt.NDArray[Any]:
    words = "whole numbers" if kinds == "iu" else "numbers"
    array = context.open_npy(path, "one value per edge").column(kinds, words)
    if array.shape[0] != num_edges:
        raise InputError(
            f"{path}: expected one value per edge, shape ({num_edges},), found {array.dtype} {array.shape}; correct "
            "the file, or take it out of the directory"
        )
    if array.dtype == np.uint64 and int(array.max(initial=0)) >= 2**63:
        edge = int(array.argmax())
        raise InputError(f"{path}: expected values below 2^63, found {array[edge]} at edge {edge}; correct it")
    return array


def check_weights(weights: npt.NDArray[Any], where: str, first: int = 0) -> None:
    """Refuse weights that are negative, infinite or NaN; names the edge, counted from `first`."""
    edge = first_wrong(weights, lambda block: ~(np.isfinite(block) & (block >= 0)))
    if edge is not None:
        raise InputError(
            f"{where}: expected finite weights of 0 or more, found {weights[edge]} at edge {first + edge}; correct it, "
            "or leave the weights out"
        )


class EdgeReader(Protocol):
    """Reads the edges of one relation from its folder, as `read_edge_folder` does."""

    def __call__(
        self, folder: Path, relation: Relation, context: ImportContext, *, pairs: bool = False
    ) -> EdgeData: ...


class LargestId(NamedTuple):
    """The largest id of a node type, -1 if there are none, and where it stands, for messages."""

    id: int = -1
    place: str = ""


def largest_id(ids: npt.NDArray[Any], where: str, end: str, first: int = 0) -> LargestId:
    """Largest id of one end (``source``, ``destination``) of edges, of which the first has number `first`.

    Cost: one pass over the file. A negative id is refused.
    """
    largest, edge = -1, 0
    for part in chunks(ids.shape[0]):
        block = ids[part]
        if int(block.min()) < 0:
            wrong = int(np.argmax(block < 0))
            raise InputError(
                f"{where}: edge {first + part.start + wrong}: {end} id {int(block[wrong])} is negative; expected ids "
                "from 0; correct the file"
            )
        if int(block.max()) > largest:
            largest, edge = int(block.max()), first + part.start + int(block.argmax())
    return LargestId(largest, f"{where}: edge {edge}: {end} id {largest}")


def largest_of_type(node_type: str, edges: list[EdgeData]) -> LargestId:
    """Largest id of a type in any relation; the first of the largest."""
    ends = [(edge, edge.src, "source") for edge in edges if edge.relation[0] == node_type]
    ends += [(edge, edge.dst, "destination") for edge in edges if edge.relation[2] == node_type]
    return max((largest_id(ids, edge.where, end) for edge, ids, end in ends), key=lambda one: one.id)


def listed_counts(node_type: str, edges: list[EdgeData]) -> list[tuple[str, int]]:
    """What lists of edges by one end say of the number of nodes of its type: the files, and the numbers."""
    ends = [(edge.relation[end], as_lists(ids)) for edge in edges for end, ids in ((0, edge.src), (2, edge.dst))]
    return [(lists.where, lists.num_columns) for name, lists in ends if lists is not None and name == node_type]


def require_room(node_type: str, count: int, origin: str, edges: list[EdgeData], context: ImportContext) -> None:
    """Refuse a number of nodes that the memory cannot hold 8 bytes each of, which any adjacency needs.

    `origin` is what says that there are so many, and what to do if that is wrong, for messages.
    """
    needed, budget = 8 * (count + 1), context.scratch.budget
    here = any(edge.relation[2] == node_type for edge in edges)
    # A budget that small is itself at fault: the graph's part says what it needs in all.
    if count > MAX_NODES or (here and needed > max(budget.left(), SMALL_INDPTR)):
        raise BudgetError(
            f"{origin}; the adjacency of {count} nodes of type {node_type} needs {format_bytes(needed)} of memory for "
            f"indptr (8 bytes each), found {budget.text} ({format_bytes(budget.limit)}); if there are so many, give "
            f"--memory {budget.advised(needed)} or more"
        )
