"""What text and parquet share: naming columns, and turning id columns into a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.edges import LargestId, check_weights, largest_id, require_room
from tiering.datasets.import_context import NODE, RELATION, ImportContext
from tiering.datasets.options import MAX_NODES, ImportOptions
from tiering.datasets.scratch import Scratch, changes, chunks
from tiering.errors import InputError, StorageError
from tiering.formats.protocols import Dataset, EdgeData, NodeData
from tiering.units import format_bytes

_NAMES = (("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("head", "tail"), ("u", "v"))
ENDS = {"src": "source", "dst": "destination"}
DTYPES = {"src": "<i8", "dst": "<i8", "weight": "<f8"}
"""What a column of a table of edges holds, and its dtype after it was read."""
_SPARSE = 8
_TABLE_FACTOR = 16


def choose_columns(columns: Sequence[str], options: ImportOptions, where: str) -> dict[str, int]:
    """Positions of the columns to read: ``src``, ``dst`` and, if asked for or a column has that name, ``weight``.

    Columns without names go by "0", "1"...
    """
    if len(columns) < 2:
        raise InputError(f"{where}: expected two or more columns (source, destination), found {len(columns)}")
    names = [name.strip().lower() for name in columns]
    wanted = {"src": options.src_column, "dst": options.dst_column, "weight": options.weight_column}
    chosen = {"src": 0, "dst": 1}
    if wanted["src"] is None or wanted["dst"] is None:
        pair = named_ends(names)
        if pair is not None:
            chosen = {end: _named(name, names, where) for end, name in zip(chosen, pair, strict=True)}
    if "weight" in names and wanted["weight"] is None:
        chosen["weight"] = _named("weight", names, where)
    chosen |= {end: _position(name, columns, end, where) for end, name in wanted.items() if name is not None}
    if chosen["src"] == chosen["dst"]:
        raise InputError(f"{where}: source and destination are the same column {chosen['src']}; name two")
    if chosen.get("weight") in (chosen["src"], chosen["dst"]):
        raise InputError(
            f"{where}: expected ids and weights in columns of their own, found column {chosen['weight']} to be both; "
            "name them with --src-column, --dst-column and --weight-column"
        )
    return chosen


def named_ends(columns: Sequence[str]) -> tuple[str, str] | None:
    """What the columns of sources and destinations are called, if they have names that such columns have."""
    names = [name.strip().lower() for name in columns]
    return next((pair for pair in _NAMES if pair[0] in names and pair[1] in names), None)


def _position(wanted: str, columns: Sequence[str], end: str, where: str) -> int:
    if wanted in columns:
        return _named(wanted, columns, where)
    if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(columns):
        return int(wanted)
    known = ", ".join(columns)
    raise InputError(f"{where}: --{end}-column {wanted[:80]}: no such column; there are: {known[:500]}")


def _named(name: str, columns: Sequence[str], where: str) -> int:
    require_once(name, columns, where)
    return list(columns).index(name)


def require_once(column: str, columns: Sequence[str], where: str) -> None:
    """Refuse a column whose name others have too."""
    times = list(columns).count(column)
    if times > 1:
        raise InputError(f"{where}: expected one column {column}, found it {times} times; give each its own name")


def one_line(error: BaseException) -> str:
    """What a library says, in one line that is not long."""
    return " ".join(str(error).split())[:200]


def check_values(values: npt.NDArray[Any], where: str, first: int, held: str) -> LargestId:
    """Refuse what no edge can have, in values of which the first has number `first`; the largest of them, if ids."""
    if held == "weight":
        check_weights(values, where, first)
        return LargestId()
    return largest_id(values, where, ENDS[held], first)


class TableSink:
    """Takes blocks of columns, checks them and ends as a dataset; the columns lie in temporary files."""

    def __init__(self, scratch: Scratch, weighted: bool) -> None:
        self._columns = {name: scratch.growing_file(DTYPES[name]) for name in DTYPES if name != "weight" or weighted}
        self._largest = LargestId()

    def rows(self, name: str = "src") -> int:
        """Rows of a column taken so far."""
        return self._columns[name].count

    def append(self, name: str, values: npt.NDArray[Any], where: str) -> None:
        """Add to a column; `where` the values come from, for messages."""
        column = self._columns[name]
        values = values.astype(column.dtype, copy=False)
        largest = check_values(values, where, column.count, name)
        self._largest = max(self._largest, largest, key=lambda one: one.id)
        try:
            column.append(values)
        except StorageError as error:
            raise StorageError(error.errno, f"{where}: after {self.rows()} edges: {error}") from error

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The columns, mapped; nothing can be appended afterwards."""
        return {name: column.finish() for name, column in self._columns.items()}

    def finish(self, path: Path, context: ImportContext, stated: int | None = None) -> Dataset:
        """What `described` says of the columns."""
        return described(path, self.arrays(), self._largest, context, stated)


def described(
    path: Path, columns: dict[str, Any], largest: LargestId, context: ImportContext, stated: int | None = None
) -> Dataset:
    """Count the nodes, of which the file may have `stated` the number, make ids dense if asked to, and describe the
    result.
    """
    edges = EdgeData(RELATION, columns.pop("src"), columns.pop("dst"), where=str(path), data=columns)
    if stated is not None:
        nodes = _stated(edges, stated, context)
    elif context.options.compact_ids:
        nodes = _compacted(edges, context)
    else:
        nodes = _counted(edges, largest, context)
    context.notes["node_types"] = [NODE]
    return context.dataset(path.name.split(".")[0], {NODE: nodes}, [edges])


def _stated(edges: EdgeData, count: int, context: ImportContext) -> NodeData:
    """As many nodes as the file says."""
    asked = context.options.num_nodes.get(NODE)
    if asked is not None and asked != count:
        raise InputError(f"{edges.where}: --num-nodes says {asked}, the file {count}; leave --num-nodes out")
    require_room(NODE, count, f"{edges.where}: says that there are {count} nodes", [edges], context)
    return NodeData(count)


def _counted(edges: EdgeData, largest: LargestId, context: ImportContext) -> NodeData:
    """As many nodes as option ``num_nodes`` says, or the largest id + 1."""
    stated = context.options.num_nodes.get(NODE)
    count = largest.id + 1 if stated is None else stated
    if stated is not None:
        origin = f"--num-nodes: says that there are {stated}"
        if largest.id >= stated:
            raise InputError(
                f"{edges.where}: --num-nodes says {stated}, ids 0..{stated - 1}, but id {largest.id} occurs; correct "
                "--num-nodes, or make sparse ids dense with --compact-ids"
            )
    else:
        origin = f"{largest.place} is the largest; make ids dense with --compact-ids if others do not occur"
        context.inferred(f"{NODE} num_nodes", {"value": count, "from": "largest id + 1"})
        if count > _SPARSE * max(1, 2 * edges.num_edges):
            others = f", or say that the other nodes exist with --num-nodes {count}"
            raise InputError(
                f"{largest.place} is the largest id, but {edges.num_edges} edges touch at most {2 * edges.num_edges} "
                f"nodes: the ids are sparse, indptr would take {format_bytes(8 * (count + 1))} of memory; correct the "
                f"id, make ids dense with --compact-ids{others if largest.id < MAX_NODES else ''}"
            )
    require_room(NODE, count, origin, [edges], context)
    return NodeData(count)


def _compacted(edges: EdgeData, context: ImportContext) -> NodeData:
    """The ids that occur become 0..n-1."""
    ids, stated = _distinct_ids(edges, context), context.options.num_nodes.get(NODE)
    if stated is not None and stated != ids.size:
        raise InputError(
            f"{edges.where}: --num-nodes says {stated}, but {ids.size} ids occur; with --compact-ids nodes without "
            "edges do not exist: leave --num-nodes out"
        )
    edges.src, edges.dst = (_positions(ids, column, context) for column in (edges.src, edges.dst))
    context.notes["compact_ids"] = {"nodes": int(ids.size), "largest": int(ids[-1]) if ids.size else None}
    return NodeData(int(ids.size), extra={"original_id": ids})


def _distinct_ids(edges: EdgeData, context: ImportContext) -> npt.NDArray[np.int64]:
    """Ids that occur, ascending. Memory: 24 bytes per distinct id, and a quarter of what the budget leaves."""
    step = max(1 << 20, min(1 << 24, context.scratch.budget.left() // 128))
    ids: npt.NDArray[np.int64] = np.empty(0, np.int64)
    for column in (edges.src, edges.dst):
        for part in chunks(column.shape[0], step):
            # Sorting is 20 times faster here than numpy.unique, which hashes.
            new = np.sort(column[part])
            both = np.sort(np.concatenate([ids, new[changes(new)]]))
            ids = both[changes(both)]
    return ids


def _positions(ids: npt.NDArray[np.int64], column: npt.NDArray[Any], context: ImportContext) -> npt.NDArray[Any]:
    """Position in `ids` of each value: by a table of 4 bytes per possible id, or by search if ids are too sparse."""
    out = context.scratch.array(column.shape[0], np.int64)
    table = None
    if ids.size and int(ids[-1]) < _TABLE_FACTOR * ids.size < 2**31:
        table = np.zeros(int(ids[-1]) + 1, np.int32)
        table[ids] = np.arange(ids.size, dtype=np.int32)
    for part in chunks(column.shape[0]):
        out[part] = np.searchsorted(ids, column[part]) if table is None else table[column[part]]
    return out
