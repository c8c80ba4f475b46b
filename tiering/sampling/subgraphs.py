"""Times that samplers go by, and edges in both directions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import relation_key
from tiering.errors import InputError, quoted
from tiering.formats.times import GraphTime, convert_exact, exact_array, require_time
from tiering.sampling.graph import Array, Relation, SampledGraph

Edges = tuple[Array, Array, Array | None]  # sources, destinations, and positions in ``indices``


class SampledTimes:
    """The times that a sampler goes by, as the 64-bit words of the core: int64, or the bits of float64."""

    def __init__(self, graph: SampledGraph, relations: Sequence[Relation], name: str) -> None:
        find: Any = graph
        times: GraphTime = require_time(graph, name) if isinstance(graph, Artifact) else find.time
        self._node_times, self._unit = find.node_times, times.unit
        self.dtype = np.dtype(times.dtype)
        """Dtype of all times, int64 or float64."""
        self.words = [self._words_of(relation, find.times(relation), graph) for relation in relations]
        """Words along the ``indices`` of each relation; ``None``: its edges are always visible."""

    def window(self, window: Any) -> int:
        """Return the word of a window; -1 for none."""
        if isinstance(window, list) and isinstance(window[-1], str):  # a duration as options are recorded
            window = np.timedelta64(*window)
        if window is None or (isinstance(window, float | np.floating) and window == math.inf):
            return -1
        if np.ndim(window) or (exact := self.exact([window], "time_window", dates="m"))[0] < 0:
            raise InputError(f"time_window: expected one number, 0 or more, found {window}")
        return int(exact.view(np.int64)[0])

    def of_seeds(self, node_type: str, ids: Array, times: Any) -> Array:
        """Return the time of each seed of a type: as given, else the node's own."""
        what = f"seed_time of type {node_type!r}"
        if times is None and ids.size:
            own = self._node_times(node_type)
            if own is None:
                raise InputError(f"{what}: these nodes have no times; give a time for each seed")
            return np.ascontiguousarray(own[ids])
        return self.exact([] if times is None else times, what, ids.size)

    def exact(self, times: Any, what: str, count: int = 1, dates: str = "M") -> Array:
        """Return numbers, or dates of kind `dates`, in the dtype and unit of the times; `InputError` unless exact."""
        values, target = exact_array(times, what), self.dtype
        if values.shape != (count,):
            who = f"{count} {what.partition('_')[0]}s"
            raise InputError(f"{what}: expected one for each of {who}, found shape {values.shape}")
        if values.dtype.kind == dates and self._unit is not None:
            target = np.dtype(f"{dates}8[{self._unit}]")
        elif values.size and values.dtype.kind not in "iuf":
            form = "datetime64 without a zone" if dates == "M" else "timedelta64"
            unit = f", or numpy.{form}: the times are in {self._unit}" if self._unit else ""
            found = quoted(values[0]) if values.dtype == object else values.dtype
            raise InputError(f"{what}: expected numbers of 64 bits{unit}, found {found}; convert them")
        exact, wrong = convert_exact(values, target)
        if wrong.size:  # NaN and NaT, too
            found = f"entry {wrong[0]} is {values[wrong[0]]}; the graph's times are {target} and cannot represent it"
            raise InputError(f"{what}: {found} exactly; give a value in this unit and range")
        return np.ascontiguousarray(exact.view(np.int64) if exact.dtype.kind == dates else exact)

    def _words_of(self, relation: Relation, times: Any, graph: SampledGraph) -> Array | None:
        if times is None:
            return None
        count = graph.csc(relation)[1].size
        if times.dtype != self.dtype or times.shape != (count,):
            raise InputError(
                f"times of {relation_key(relation)}: expected {self.dtype} of shape ({count},), found {times.dtype} of "
                f"shape {times.shape}"
            )
        return np.ascontiguousarray(times).view(np.int64)


def both_ways(relations: Sequence[Relation], hops: Sequence[Mapping[Relation, Edges]]) -> dict[Relation, Edges]:
    """Return edges and their mirrors by relation as PyG's ``to_bidirectional``: each pair once, by destination, source.

    Edges are sources, destinations and positions or ``None``. With one relation within one type, the position of a
    pair is the position of its first own edge, else of its first mirrored one. With several, positions are ``None``,
    and a relation is joined with the mirrored edges of its reverse: ``rev_`` and its name, which becomes its mirror;
    without one itself, if it is within a type, else the only relation of the opposite types; else, and if its own name
    begins with ``rev_``, it stays as it is. Cost: a sort of the edges.
    """
    drawn = {r: tuple(_concatenated([hop[r][i] for hop in hops]) for i in range(3)) for r in relations}
    if len(relations) == 1 and relations[0][0] == relations[0][2]:
        src, dst, positions = drawn[relations[0]]
        rows, cols, first = _pairs(src, dst, dst, src)
        return {
            relations[0]: (rows, cols, None if positions is None else np.concatenate((positions, positions))[first])
        }
    made: dict[Relation, Edges] = {r: (src, dst, None) for r, (src, dst, _) in drawn.items()}
    for relation in relations:
        src_type, name, dst_type = relation
        reverse = dst_type, f"rev_{name}", src_type
        opposite = [r for r in relations if (r[0], r[2]) == (dst_type, src_type)]
        if name.startswith("rev_"):
            continue
        if reverse not in drawn and src_type != dst_type and len(opposite) != 1:
            warnings.warn(
                f"subgraph_type='bidirectional': {relation_key(relation)} is not mirrored, because "
                f"{len(opposite)} relations lead back; name the reverse relation rev_{name}", stacklevel=2,
            )  # fmt: skip
            continue
        back = reverse if reverse in drawn else relation if src_type == dst_type else opposite[0]
        (src, dst, _), (back_src, back_dst, _) = drawn[relation], drawn[back]
        made[relation] = (*_pairs(src, dst, back_dst, back_src)[:2], None)
        if back == reverse:
            made[reverse] = (made[relation][1], made[relation][0], None)
    return made


def _concatenated(parts: Sequence[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def _pairs(src: Array, dst: Array, more_src: Array, more_dst: Array) -> tuple[Array, Array, Array]:
    """Return the different pairs of both lists by destination and source, and the place of the first of each."""
    rows, cols = np.concatenate((src, more_src)), np.concatenate((dst, more_dst))
    first = np.unique(cols.astype(np.int64) << 32 | rows, return_index=True)[1]
    return rows[first], cols[first], first
