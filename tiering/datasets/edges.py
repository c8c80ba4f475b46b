"""Edges of one relation, with checks that hold for any format: values along the edges, weights, ids, memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import file_exists
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import ImportContext, chunks, first_wrong
from tiering.datasets.options import MAX_NODES
from tiering.datasets.times import column_times, read_times
from tiering.errors import BudgetError, InputError
from tiering.formats.dataset import EdgeData
from tiering.formats.features import EDGE_FEATURES
from tiering.text.units import format_bytes

SMALL_INDPTR = 64 * 1024 * 1024  # bytes that any machine has
EDGE_FILES = {  # files with one value or row per edge -> what they hold; of two that hold ids, the first counts
    "edge_weight.npy": "weight",
    "edge_type.npy": "type",
    "edge_id.npy": "id",
    "edge_ids.npy": "id",
    "edge_feat.npy": EDGE_FEATURES,
}

# Function that reads the edges of a relation from its folder; if the last is true, an array of shape (2, 2) is (E, 2).
EdgeReader = Callable[[Path, Relation, ImportContext, bool], EdgeData]


def read_edge_folder(folder: Path, relation: Relation, context: ImportContext, pairs: bool) -> EdgeData:
    """Map ``edge_index.npy``, (2, E) or (E, 2); shape (2, 2) is (E, 2) with `pairs`."""
    index = SourceArray.open_npy(path := folder / "edge_index.npy", "edges of shape (2, E) or (E, 2)", context)
    array = index.array
    if array.dtype.str not in ("<i4", "<i8"):
        problem = f"expected edges of dtype int32 or int64, found {array.dtype}"
        raise InputError(f"{path}: {problem}; convert with array.astype('int64')")
    if array.ndim != 2 or 2 not in array.shape:
        raise InputError(f"{path}: expected edges of shape (2, E) or (E, 2), found {array.shape}; reshape them")
    if array.shape == (2, 2):
        context.record_guess(f"{path} orientation", "(E, 2)" if pairs else "(2, E)")
    else:
        pairs = array.shape[1] == 2
    src, dst = array.T if pairs else array
    return EdgeData(relation, src, dst, where=str(path))


def read_edge_values(folder: Path, edges: EdgeData, context: ImportContext) -> None:
    """Map the `EDGE_FILES` of a relation, and its times."""
    for name, content in EDGE_FILES.items():
        path = folder / name
        if file_exists(path, "one value per edge") and not (content == "id" and edges.edge_ids is not None):
            add_edge_values(edges, content, SourceArray.open_npy(path, "one value per edge", context), context)
    if (times := read_times(folder, "edge", context)) is not None:
        add_edge_values(edges, str(context.time_name), times, context)


def add_edge_values(edges: EdgeData, content: str, column: SourceArray, context: ImportContext) -> None:
    """Check an array along the edges, ``weight``, ``type``, ``id``, `EDGE_FEATURES` or their times, and add it."""
    if content == EDGE_FEATURES:
        values = context.scratch.compact(column.rows()[0].reshape(column.array.shape))
    elif content == context.time_name:
        values = column_times(column, context)
    else:
        kinds = ("iuf", "numbers") if content == "weight" else ("iu", "whole numbers")
        values = column.numbers("one value per edge", *kinds)
    if values.shape[0] != edges.num_edges:
        raise InputError(
            f"{column.where}: expected one {'row' if content == EDGE_FEATURES else 'value'} for each of "
            f"{edges.num_edges} edges, found {column.described}; correct the array, or omit it"
        )
    if values.dtype == np.uint64 and int(values.max(initial=0)) >= 2**63:
        edge = int(values.argmax())
        raise InputError(f"{column.where}: expected values below 2^63, found {values[edge]} at edge {edge}; correct it")
    if content == "weight":
        check_weights(values, column.where)
    if content == "id":
        edges.edge_ids = values.astype(np.int64, copy=False)
    elif content in edges.data:
        raise InputError(f"{column.where}: the edges already have a {content}; omit one of the two")
    else:
        edges.data[content] = values


def check_weights(weights: npt.NDArray[Any], where: str, first: int = 0) -> None:
    """Refuse weights that are negative, infinite or NaN; names the edge, counted from `first`."""
    edge = first_wrong(weights, lambda block: ~(np.isfinite(block) & (block >= 0)))
    if edge is not None:
        problem = f"expected finite weights of 0 or more, found {weights[edge]} at edge {first + edge}"
        raise InputError(f"{where}: {problem}; correct it, or omit the weights")


class LargestId(NamedTuple):
    """The largest id of a node type, -1 if there are none, its place for messages, and the smallest."""

    id: int = -1
    place: str = ""
    smallest: int = 2**63 - 1

    @property
    def where(self) -> str:
        """The file of the largest id."""
        return self.place.partition(": ")[0]

    def merge(self, other: LargestId) -> LargestId:
        """Return the larger of both ids; of equal ids the first."""
        return (self if self.id >= other.id else other)._replace(smallest=min(self.smallest, other.smallest))


def find_largest_id(ids: npt.NDArray[Any], where: str, end: str, first: int = 0, least: int = 0) -> LargestId:
    """Return the largest id of one end of edges, of which the first has number `first`; refuse one below `least`."""
    largest, edge, smallest = -1, 0, 2**63 - 1
    for part in chunks(ids.shape[0]):
        block = ids[part]
        if (smallest := min(smallest, int(block.min()))) < least:
            wrong = int(np.argmax(block < least))
            problem = f"is below --first-id {least}" if least else "is negative"
            problem = f"edge {first + part.start + wrong}: {end} id {int(block[wrong])} {problem}"
            dense = "" if least else ", or make ids dense with --compact-ids (text and parquet)"
            raise InputError(f"{where}: {problem}; expected ids from {least}; correct the file{dense}")
        if int(block.max()) > largest:
            largest, edge = int(block.max()), first + part.start + int(block.argmax())
    return LargestId(largest, f"{where}: edge {edge}: {end} id {largest}", smallest)


def require_node_memory(node_type: str, count: int, origin: str, edges: list[EdgeData], context: ImportContext) -> None:
    """Refuse a number of nodes, from `origin`, if the memory cannot hold 8 bytes each: any adjacency needs that."""
    needed, budget = 8 * (count + 1), context.scratch.budget
    here = any(edge.relation[2] == node_type for edge in edges)
    # A budget that small is itself at fault: the graph's part says what it needs in all.
    if count > MAX_NODES or (here and needed > max(budget.left(), SMALL_INDPTR)):
        raise BudgetError(
            f"{origin}; the adjacency of {count} nodes of type {node_type} needs {format_bytes(needed)} of memory for "
            f"indptr (8 bytes each), found {budget.text} ({format_bytes(budget.limit)}); if the number is right, give "
            f"--memory {budget.advised(needed)} or more"
        )
