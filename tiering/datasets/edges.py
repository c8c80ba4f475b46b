"""Edges from numpy files in either orientation, and what is checked of edges from any file: weights, ids, room."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation
from tiering.artifacts.regular import is_there
from tiering.datasets.npy_file import read_header
from tiering.datasets.options import MOST_NODES
from tiering.datasets.reading import Reading, chunks
from tiering.errors import BudgetError, InputError
from tiering.formats.protocols import EdgeData
from tiering.units import format_bytes

SMALL_INDPTR = 64 * 1024 * 1024
"""Bytes that any machine has."""
ID_FILES = ("edge_id.npy", "edge_ids.npy")


def read_edge_folder(
    folder: Path, relation: Relation, reading: Reading, *, pairs: bool = False
) -> tuple[EdgeData, set[str]]:
    """Edges of one relation: ``edge_index.npy`` and, beside it, weights, types and ids.

    Parameters
    ----------
    pairs
        How to read a file of shape (2, 2): ``True`` as (E, 2), ``False`` as (2, E).

    Returns
    -------
    edges : EdgeData
        src and dst are views of the mapped file: nothing is copied.
    names : set of str
        File names used.

    Raises
    ------
    MissingError
        If there is no ``edge_index.npy``.
    InputError
        If dtype, shape or length of a file does not fit.
    """
    path = folder / "edge_index.npy"
    edges = EdgeData(relation, *_open_edge_index(path, reading, pairs), where=str(path))
    names = {path.name}
    for key, ids in (("weight", False), ("type", True)):
        path = folder / f"edge_{key}.npy"
        if is_there(path, "one value per edge"):
            edges.data[key] = _per_edge(path, edges.num_edges, reading, ids=ids)
            names.add(path.name)
    for name in ID_FILES:
        if is_there(folder / name, "one id per edge") and edges.edge_ids is None:
            edges.edge_ids = _per_edge(folder / name, edges.num_edges, reading, ids=True).astype(np.int64, copy=False)
            names.add(name)
    if "weight" in edges.data:
        check_weights(edges.data["weight"], str(folder / "edge_weight.npy"))
    return edges, names


def _open_edge_index(path: Path, reading: Reading, pairs: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    header = read_header(path, "edges of shape (2, E) or (E, 2)")
    reading.used(path)
    if header.dtype.str not in ("<i4", "<i8"):
        raise InputError(
            f"{path}: expected edges of dtype int32 or int64, found {header.dtype}; convert with array.astype('int64')"
        )
    shape = header.shape
    if len(shape) != 2 or 2 not in shape:
        raise InputError(f"{path}: expected edges of shape (2, E) or (E, 2), found {shape}; reshape them")
    by_pairs = pairs if shape == (2, 2) else shape[1] == 2
    if shape == (2, 2):
        reading.inferred(f"{path} orientation", "(E, 2)" if by_pairs else "(2, E)")
    src, dst = header.open().T if by_pairs else header.open()
    return src, dst


def _per_edge(path: Path, num_edges: int, reading: Reading, *, ids: bool) -> npt.NDArray[Any]:
    header = read_header(path, "one value per edge")
    reading.used(path)
    array = header.open_column()
    if array.shape != (num_edges,):
        raise InputError(
            f"{path}: expected one value per edge, shape ({num_edges},), found {header.described}; correct the file, "
            "or take it out of the directory"
        )
    kinds, words = ("iu", "whole numbers") if ids else ("iuf", "numbers")
    if header.dtype.kind not in kinds:
        raise InputError(f"{path}: expected {words}, found {header.dtype}; convert them")
    if header.dtype == np.uint64 and int(array.max(initial=0)) >= 2**63:
        edge = int(array.argmax())
        raise InputError(f"{path}: expected values below 2^63, found {array[edge]} at edge {edge}; correct it")
    return array


def check_weights(weights: npt.NDArray[Any], where: str, first: int = 0) -> None:
    """Refuse weights that are negative, infinite or NaN; names the edge, counted from `first`."""
    for part in chunks(weights.shape[0]):
        block = weights[part]
        wrong = ~(np.isfinite(block) & (block >= 0))
        if wrong.any():
            edge = int(np.argmax(wrong))
            raise InputError(
                f"{where}: expected finite weights of 0 or more, found {block[edge]} at edge "
                f"{first + part.start + edge}; correct it, or leave the weights out"
            )


@dataclass(frozen=True)
class LargestId:
    """The largest id of a node type, and where it stands."""

    id: int = -1
    edge: int = 0
    end: str = "source"
    """Which end of the edge."""
    where: str = ""

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.where}: edge {self.edge}: {self.end} id {self.id}"

    @staticmethod
    def of(candidates: Iterable[LargestId]) -> LargestId:
        """The first of the largest."""
        return max(candidates, key=lambda largest: largest.id, default=LargestId())


def largest_id(ids: npt.NDArray[Any], where: str, end: str, first: int = 0) -> LargestId:
    """Largest of the ids, -1 if there are none. Cost: one pass over the file.

    Parameters
    ----------
    ids
        One end of the edges.
    where
        Their file, for messages.
    end
        ``source`` or ``destination``.
    first
        Number of the first edge.

    Raises
    ------
    InputError
        If an id is negative; names the edge.
    """
    largest = LargestId(where=where, end=end)
    for part in chunks(ids.shape[0]):
        block = ids[part]
        if int(block.min()) < 0:
            edge = int(np.argmax(block < 0))
            raise InputError(
                f"{where}: edge {first + part.start + edge}: {end} id {int(block[edge])} is negative; expected ids "
                "from 0; correct the file"
            )
        if int(block.max()) > largest.id:
            largest = LargestId(int(block.max()), first + part.start + int(block.argmax()), end, where)
    return largest


def largest_of_type(node_type: str, edges: list[EdgeData]) -> LargestId:
    """Largest id of a type in any relation."""
    ends = [(edge, edge.src, "source") for edge in edges if edge.relation[0] == node_type]
    ends += [(edge, edge.dst, "destination") for edge in edges if edge.relation[2] == node_type]
    return LargestId.of([largest_id(ids, edge.where, end) for edge, ids, end in ends])


def require_room(node_type: str, count: int, origin: str, edges: list[EdgeData], reading: Reading) -> None:
    """Refuse a number of nodes that the memory cannot hold 8 bytes each of, which any adjacency needs.

    Parameters
    ----------
    origin
        What says that there are so many, and what to do if that is wrong, for messages.

    Raises
    ------
    BudgetError
        Says which number, from where, and how much memory.
    """
    needed, budget = 8 * (count + 1), reading.scratch.budget
    here = any(edge.relation[2] == node_type for edge in edges)
    # A budget that small is itself at fault: the graph's part says what it needs in all.
    if count > MOST_NODES or (here and needed > max(budget.left(), SMALL_INDPTR)):
        raise BudgetError(
            f"{origin}; the adjacency of {count} nodes of type {node_type} needs {format_bytes(needed)} of memory for "
            f"indptr (8 bytes each), found {budget.text} ({format_bytes(budget.limit)}); if there are so many, give "
            "more --memory"
        )
