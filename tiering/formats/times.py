"""Times of a graph: when each edge, or each node, came to be. See ``data_specs/graph.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Manifest, Problem, Relation, array_problems, body_problem
from tiering.errors import InputError, MissingError

if TYPE_CHECKING:
    from tiering.formats.graph import Graph

REQUIRES = "time"  # feature of the format that a reader of a graph with times must know
_STEP = 1 << 20  # entries that are checked together


class GraphTime(NamedTuple):
    """The times of a graph: one name, kind, dtype and unit in all of its relations and node types."""

    name: str  # name of the arrays
    along: str  # what has a time of its own: ``edges`` or ``nodes``
    dtype: str  # ``int64`` or ``float64``
    unit: str | None = None  # unit of dates, counted from 1970, as numpy spells it: ``s``, ``us``...

    @classmethod
    def of(cls, manifest: Manifest) -> GraphTime | None:
        """Return the times of the graph with this manifest; ``None`` if it was imported without."""
        return cls(**manifest.body["time"]) if "time" in manifest.body else None


def exact_array(values: Any, what: str) -> npt.NDArray[Any]:
    """Return a tensor, an array or a list as a NumPy array; `InputError`: a number would be rounded, a zone dropped."""
    kind = getattr(values, "dtype", getattr(values, "type", None))
    if zone := getattr(kind, "tz", getattr(kind, "time_zone", None)):  # of pandas and pyarrow, of polars
        raise InputError(f"{what}: expected no time zone, found {zone}; convert to the graph's zone and drop it")
    array = np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    if array.dtype.kind == "f" and isinstance(values, list | tuple):
        for value, made in zip(values, array.tolist(), strict=True):
            if isinstance(value, int | np.integer) and int(value) != made:
                raise InputError(f"{what}: {value} is rounded to {made} next to a fraction; give an array of one dtype")
    return array


def convert_exact(values: npt.NDArray[Any], target: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return numbers or dates in another dtype, and the positions of those that it does not hold exactly."""
    kinds = {values.dtype.kind, target.kind}
    with np.errstate(all="ignore"), suppress(OverflowError):  # between weeks and picoseconds
        made = values.astype(target)
        same = made.astype(values.dtype) == values  # what was rounded, or wrapped around, does not come back
        if kinds <= {*"iuf"}:
            same &= (made < 0) == (values < 0)  # unsigned numbers do come back
            if kinds > {"f"}:  # 2^63 is 2^63 - 1 on some processors
                real = (made if target.kind == "f" else values).astype(np.float64)
                same &= (real >= -(2.0**63)) & (real < 2.0**63)
        elif len({np.datetime_data(dtype)[0] in "YM" for dtype in (values.dtype, target)}) == 2 and target.kind == "m":
            same[:] = False  # a month has no length in days
        return made, np.flatnonzero(~same)
    return values, np.arange(values.size)


def require_time(graph: Artifact, name: str) -> GraphTime:
    """Return the times of a graph, which are to be of that name; `MissingError` says which there are."""
    found = GraphTime.of(graph.manifest)
    if found is None:
        raise MissingError(f"{graph.path}: the graph has no times named {name!r}; import it again with --time {name}")
    if found.name != name:
        raise MissingError(
            f"{graph.path}: the graph has times {found.name!r} of {found.along}, not {name!r}; give that name"
        )
    return found


def declared_time_problems(graph: Graph, folders: Sequence[str]) -> Iterator[Problem]:
    """Yield arrays of times that are missing or not as the manifest says; `folders` are the relations' folders."""
    if (time := graph.time) is None:
        return
    counts = {f"nodes/{t}/{time.name}": graph.num_nodes(t) for t in graph.node_types if time.along == "nodes"}
    found = {name: count for name, count in counts.items() if name in graph.manifest.files}
    for (source, *_), folder, entry in zip(graph.relations, folders, graph.manifest.body["relations"], strict=True):
        if time.name in entry["edge_data"] or f"nodes/{source}/{time.name}" in found:
            found[f"{folder}/{time.name}"] = entry["num_edges"]
    if not found:
        yield body_problem("body.time", f"no array {time.name} is listed")
    for name, count in found.items():
        yield from array_problems(graph.manifest, name, (count,), [time.dtype])


def time_problems(graph: Graph, relation: Relation, folder: str) -> Iterator[Problem]:
    """Yield the first time of a relation that is none, not its source's, or earlier than the one before."""
    times, of_nodes = graph.times(relation), graph.node_times(relation[0])
    if times is None or graph.time is None:
        return
    indptr, indices = graph.csc(relation)
    for begin in range(0, times.shape[0], _STEP):
        block, ids = times[begin : begin + _STEP], indices[begin : begin + _STEP]
        expected = block if of_nodes is None else of_nodes[ids]
        before = np.concatenate([times[max(0, begin - 1) : max(1, begin)], block[:-1]])
        late = np.flatnonzero(block < before) + begin
        late = late[indptr[np.searchsorted(indptr, late)] != late]
        if (wrong := ~(block == expected)).any():
            at = int(np.argmax(wrong))
            what = "a number" if of_nodes is None else f"{expected[at]}, as its source has,"
            at += begin
        elif late.size:
            at = int(late[0])
            what = f"{times[at - 1]} or later, as the entry before it in the list,"
        else:
            continue
        yield Problem(f"{folder}/{graph.time.name}", f"expected {what} found {times[at]} at entry {at}", "value")
        return
