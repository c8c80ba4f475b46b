"""What text and parquet share: naming columns, and turning id columns into a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.protocols import Dataset, EdgeData, NodeData
from tiering.sources.edges import check_weights, largest_id
from tiering.sources.options import SourceOptions, option_name
from tiering.sources.reading import Reading, chunks
from tiering.sources.scratch import Appender, Scratch
from tiering.sources.splits import make_splits

NODE = "node"
RELATION = (NODE, "to", NODE)
_NAMES = (("src", "dst"), ("source", "target"), ("source", "destination"), ("from", "to"), ("head", "tail"), ("u", "v"))
_SPARSE = 8
_TABLE_FACTOR = 16


def choose_columns(columns: Sequence[str] | int, options: SourceOptions, where: str) -> dict[str, int]:
    """Positions of the columns to read.

    Parameters
    ----------
    columns
        Their names, or their number if they have none.
    options
        ``src_column``, ``dst_column``, ``weight_column``: names or 0-based positions.
    where
        The file, for messages.

    Returns
    -------
    dict
        ``src``, ``dst`` and, if asked for or a column has that name, ``weight`` -> position.
    """
    names = [] if isinstance(columns, int) else [name.strip().lower() for name in columns]
    number = columns if isinstance(columns, int) else len(columns)
    if number < 2:
        raise InputError(f"{where}: expected two or more columns (source, destination), found {number}")
    pair = next((pair for pair in _NAMES if pair[0] in names and pair[1] in names), None)
    default = (names.index(pair[0]), names.index(pair[1])) if pair else (0, 1)
    chosen = {
        "src": _position(options.src_column, default[0], columns, "src_column", where),
        "dst": _position(options.dst_column, default[1], columns, "dst_column", where),
    }
    if chosen["src"] == chosen["dst"]:
        raise InputError(f"{where}: source and destination are the same column {chosen['src']}; name two")
    if options.weight_column is not None:
        chosen["weight"] = _position(options.weight_column, 0, columns, "weight_column", where)
    elif "weight" in names:
        chosen["weight"] = names.index("weight")
    return chosen


def _position(wanted: str | None, default: int, columns: Sequence[str] | int, option: str, where: str) -> int:
    if wanted is None:
        return default
    number = columns if isinstance(columns, int) else len(columns)
    if not isinstance(columns, int) and wanted in columns:
        return list(columns).index(wanted)
    if wanted.isdigit() and int(wanted) < number:
        return int(wanted)
    known = f"positions 0..{number - 1}" if isinstance(columns, int) else ", ".join(columns)
    raise InputError(f"{where}: {option_name(option)} {wanted}: no such column; there are: {known}")


class TableSink:
    """Takes blocks of columns and ends as a dataset; the columns lie in temporary files."""

    def __init__(self, scratch: Scratch, weighted: bool) -> None:
        self._columns: dict[str, Appender] = {"src": scratch.appender("<i8"), "dst": scratch.appender("<i8")}
        if weighted:
            self._columns["weight"] = scratch.appender("<f8")

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._columns["src"].count

    def append(self, name: str, values: npt.NDArray[Any]) -> None:
        """Add to a column."""
        self._columns[name].append(values)

    def finish(self, path: Path, format_name: str, reading: Reading) -> Dataset:
        """Count the nodes, make ids dense if asked to, and describe the result."""
        arrays = {name: column.finish() for name, column in self._columns.items()}
        edges = EdgeData(RELATION, arrays["src"], arrays["dst"], where=str(path))
        if "weight" in arrays:
            check_weights(arrays["weight"], str(path))
            edges.data["weight"] = arrays["weight"]
        nodes = _nodes(edges, reading)
        reading.notes["node_types"] = [NODE]
        nodes.splits = make_splits(None, nodes.num_nodes, reading, str(path))
        return Dataset(path.name.split(".")[0], format_name, {NODE: nodes}, [edges], reading.notes, reading.files)


def _nodes(edges: EdgeData, reading: Reading) -> NodeData:
    stated = reading.options.num_nodes.get(NODE)
    if reading.options.compact_ids:
        ids = _distinct_ids(edges, reading)
        if stated is not None and stated != ids.size:
            raise InputError(
                f"{edges.where}: --num-nodes says {stated}, but {ids.size} ids occur; with --compact-ids nodes without "
                "edges do not exist: leave --num-nodes out"
            )
        edges.src, edges.dst = (_positions(ids, column, reading) for column in (edges.src, edges.dst))
        reading.notes["compact_ids"] = {"nodes": int(ids.size), "largest": int(ids[-1]) if ids.size else None}
        return NodeData(int(ids.size), extra={"original_id": ids})
    largest = max(largest_id(edges.src, edges.where, "source"), largest_id(edges.dst, edges.where, "destination"))
    if stated is not None:
        if largest >= stated:
            raise InputError(
                f"{edges.where}: --num-nodes says {stated}, ids 0..{stated - 1}, but id {largest} occurs; correct "
                "--num-nodes, or make sparse ids dense with --compact-ids"
            )
        return NodeData(stated)
    reading.inferred(f"{NODE} num_nodes", {"value": largest + 1, "from": "largest id + 1"})
    if largest + 1 > _SPARSE * max(1, 2 * edges.num_edges):
        raise InputError(
            f"{edges.where}: the largest id is {largest}, but {edges.num_edges} edges touch at most "
            f"{2 * edges.num_edges} nodes: the ids are sparse; make them dense with --compact-ids, or say that the "
            f"other nodes exist with --num-nodes {largest + 1}"
        )
    return NodeData(largest + 1)


def _distinct_ids(edges: EdgeData, reading: Reading) -> npt.NDArray[np.int64]:
    """Ids that occur, ascending. Memory: 24 bytes per distinct id, and a quarter of what the budget leaves."""
    step = max(1 << 20, min(1 << 24, reading.scratch.budget.left() // 128))
    ids: npt.NDArray[np.int64] = np.empty(0, np.int64)
    for what, column in (("source", edges.src), ("destination", edges.dst)):
        largest_id(column, edges.where, what)
        for part in chunks(column.shape[0], step):
            # Sorting is 20 times faster here than numpy.unique, which hashes.
            merged = np.sort(np.concatenate([ids, _drop_repeats(np.sort(column[part]))]))
            ids = _drop_repeats(merged)
    return ids


def _drop_repeats(ordered: npt.NDArray[Any]) -> npt.NDArray[Any]:
    first = np.ones(ordered.shape[0], bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def _positions(ids: npt.NDArray[np.int64], column: npt.NDArray[Any], reading: Reading) -> npt.NDArray[Any]:
    """Position in `ids` of each value: by a table of 4 bytes per possible id, or by search if ids are too sparse."""
    out = reading.scratch.array(column.shape[0], np.int64)
    table = None
    if ids.size and int(ids[-1]) < _TABLE_FACTOR * ids.size < 2**31:
        table = np.zeros(int(ids[-1]) + 1, np.int32)
        table[ids] = np.arange(ids.size, dtype=np.int32)
    for part in chunks(column.shape[0]):
        out[part] = np.searchsorted(ids, column[part]) if table is None else table[column[part]]
    return out
