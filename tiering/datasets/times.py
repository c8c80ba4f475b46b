"""Times of edges or nodes: checked, as int64 or float64; the time of an edge is its own, or else its source's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.artifacts.storage import file_exists
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import ImportContext, chunks, first_wrong
from tiering.datasets.table_specs import TIME
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.times import GraphTime

Array = npt.NDArray[Any]


def check_times(values: Array, where: str, context: ImportContext, first: int = 0, zoned: bool = False) -> Array:
    """Return times as int64, or float64 of floats; dates as numbers, in their own unit. `first`: number of the first.

    `InputError` names the first that is NaN, NaT or 2^63 and more; dates of another unit than those before are refused,
    and those with a zone (`zoned`) next to those without.
    """
    kind, wrong, unit = values.dtype.kind, None, None
    if kind == "f":
        wrong = first_wrong(values, np.isnan)
    elif values.dtype == np.uint64:
        wrong = first_wrong(values, lambda block: block >= np.uint64(2**63))
    elif kind == "M":
        wrong, (unit, step) = first_wrong(values, np.isnat), np.datetime_data(values.dtype)
        if unit == "generic" or step != 1:
            raise InputError(f"{where}: expected dates in one of numpy's units, found {values.dtype}; convert them")
    if wrong is not None:
        problem = f"expected numbers below 2^63 or dates, found {values[wrong]} at position {first + wrong}"
        raise InputError(f"{where}: {problem}; correct or remove it")
    place, known = next(iter(context.time_units.items()), (where, (unit, zoned)))
    if known != (unit, zoned):
        zones = {True: " with a zone", False: ""}
        before, now = ((name or "numbers without one") + zones[zone] for name, zone in (known, (unit, zoned)))
        found = f"{before} in {place}, {now} here at position {first}"
        raise InputError(f"{where}: expected times in one unit, all with a zone or none, found {found}; convert them")
    context.time_units[where] = unit, zoned
    return context.scratch.compact(values.view(np.int64) if kind == "M" else values, f"{'f' if kind == 'f' else 'i'}8")


def column_times(column: SourceArray, context: ImportContext) -> Array:
    """Return the times in an array; `InputError` if it holds none."""
    return check_times(column.numbers("one time each", "iufM", "times as numbers or dates"), column.where, context)


def read_times(folder: Path, kind: str, context: ImportContext) -> SourceArray | None:
    """Map ``KIND_NAME.npy`` of a folder, times along its edges or nodes, where the option names it."""
    path = None if context.time_name is None else time_file(folder, kind, context.time_name)
    if path is None or not file_exists(path, "times"):
        return None
    return SourceArray.open_npy(path, "one time each", context, dates=True)


def time_file(folder: Path, kind: str, name: str) -> Path:
    """Return the file for times of that name: ``edge_time.npy`` for ``time`` as well as for ``edge_time``."""
    return folder / f"{kind}_{name.removeprefix(f'{kind}_')}.npy"


def add_times(dataset: Dataset, context: ImportContext) -> None:
    """Set the times of a dataset, found under their name along its edges or its nodes.

    Cost of times of nodes: 8 bytes of memory or temporary disk for each edge.
    """
    options, name = context.options, context.time_name or (TIME if context.time_units else None)
    if name is None:
        if options.time_sorted:
            raise InputError("--time-sorted: no times are named; add --time")
        return
    edges = {relation_key(edge.relation): edge for edge in dataset.edges if name in edge.data}
    nodes = {node_type: data for node_type, data in dataset.nodes.items() if name in data.extra}
    dtype = _check_found(name, edges, nodes, context)
    if options.self_loops == "add" and any(edge.relation[0] == edge.relation[2] for edge in edges.values()):
        raise InputError(f"--self-loops add: the new edges have no {name}; omit it, or add them with their times")
    for edge in dataset.edges:
        if (source := nodes.get(edge.relation[0])) is not None:
            out = context.scratch.array(edge.num_edges, source.extra[name].dtype)
            for part in chunks(edge.num_edges if source.num_nodes else 0):  # an id out of range is refused later on
                out[part] = source.extra[name].take(edge.src[part], mode="clip")
            edge.data[name] = out
        if name in edge.data:
            edge.time, edge.is_sorted = name, options.time_sorted
    unit, _ = next(iter(context.time_units.values()), (None, False))
    dataset.time = GraphTime(name, "edges" if edges else "nodes", dtype, unit)


def _check_found(
    name: str, edges: Mapping[str, EdgeData], nodes: Mapping[str, NodeData], context: ImportContext
) -> str:
    """Return the dtype of the times that were found; `InputError` unless they are of one kind, dtype and length."""
    times = {k: e.data[name] for k, e in edges.items()} | {t: data.extra[name] for t, data in nodes.items()}
    if edges and nodes:
        places = f"edges of {next(iter(edges))} and nodes of {next(iter(nodes))}"
        raise InputError(f"--time {name}: expected times of edges or of nodes, found both: of {places}; rename one")
    if not times:
        unread = [*context.notes.get("ignored_arrays", ()), *context.notes.get("ignored_files", ())]
        names = f"unread arrays are {', '.join(map(str, unread[:8]))}" if unread else "there are no other arrays"
        raise MissingError(
            f"--time {name}: {context.notes['source']} has no array of that name along its edges or nodes (a numpy "
            f"file is called edge_NAME.npy or node_NAME.npy); {names}"
        )
    if len(kinds := {array.dtype.name: key for key, array in times.items()}) > 1:
        found = ", ".join(f"{dtype} of {key}" for dtype, key in kinds.items())
        raise InputError(f"--time {name}: expected times of one dtype, found {found}; convert them")
    for node_type, data in nodes.items():
        if data.extra[name].shape[0] != data.num_nodes:
            found = f"expected one time for each of {data.describe_count()}, found {data.extra[name].shape[0]}"
            raise InputError(f"--time {name}: nodes of {node_type}: {found}; correct one of the two")
    return str(next(iter(kinds)))
