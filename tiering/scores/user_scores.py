"""Scores that the user has computed: taken as they are, checked, and written as any other."""

from __future__ import annotations

import numpy as np

from tiering.artifacts.reader import chunks
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray, UserValues, featured_types, read_user_arrays
from tiering.scores.request import HUGE_PAGE, SLACK, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.units import format_count

CHUNK = 1 << 20  # scores read and checked together
OPTION = "--from"


def read_user_scores(graph: SizedGraph, values: UserValues) -> tuple[dict[str, UserArray], list[str]]:
    """Return arrays of scores by node type, lengths checked, and notes; types without features may be left out."""
    arrays = read_user_arrays(graph, values, "one score per node", OPTION, "iuf")
    for node_type, array in arrays.items():
        if array.values.size != graph.num_nodes(node_type):
            raise InputError(
                f"{array.where}: expected {graph.num_nodes(node_type)} scores, one for each node of type "
                f"{node_type!r} in original ids, found {array.values.size}; compute them for this graph"
            )
    missing = [node_type for node_type in featured_types(graph) if node_type not in arrays]
    if missing:
        raise InputError(
            f"{OPTION}: expected scores of every node type with features, found none of {', '.join(missing)}; give "
            f"{' '.join(f'{OPTION} {node_type}=FILE' for node_type in missing)}"
        )
    others = [node_type for node_type in graph.node_types if node_type not in arrays]
    notes = [f"no scores were given of {', '.join(others)}, without features: all 0"] if others else []
    return {node_type: arrays[node_type] for node_type in graph.node_types if node_type in arrays}, notes


def user_scores(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Return the user's scores as float64; `InputError` for one that is negative or not finite. One pass over them."""
    return ScoreColumns({t: _checked(request.user_scores.get(t), graph.num_nodes(t)) for t in graph.node_types})


def user_scores_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N, and two chunks of what is read."""
    need = 8 * graph.num_nodes() + 4 * 8 * CHUNK + len(graph.node_types) * HUGE_PAGE + SLACK
    return MemoryNeed(need, need, f"given scores: 8 bytes for each of {format_count(graph.num_nodes())} nodes")


def _checked(array: UserArray | None, count: int) -> Float64Array:
    scores = np.zeros(count)
    for first, end, (part,) in chunks([array.values], CHUNK) if array is not None else ():
        own = scores[first:end]
        own[:] = part
        wrong = np.flatnonzero(~(own >= 0) | np.isinf(own))
        if wrong.size and array is not None:
            raise InputError(
                f"{array.where}: expected finite scores of 0 or more, found {own[wrong[0]]} at node "
                f"{first + wrong[0]}; correct it"
            )
    return scores


USER_SCORES = Method("your own scores.", user_scores, user_scores_need, edges=False)
"""Takes the place of a method where the user has computed the scores."""
