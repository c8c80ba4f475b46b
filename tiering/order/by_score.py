"""Order nodes by falling score; ties by original id."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering import native
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.units import parse_threads


def order_nodes(graph: Graph, scores: Scores, threads: int | str | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Rank the nodes of every type.

    Returns
    -------
    dict of str to numpy.ndarray
        ``new_to_old`` per node type: original id of each rank, int32 below 2^31 nodes, else int64.

    Raises
    ------
    InputError
        If the scores are of another graph, or not numbers.
    """
    check_scores(graph, scores)
    workers = parse_threads(threads)
    orders = {}
    for node_type in graph.node_types:
        try:
            orders[node_type] = native.sort_by_score(scores.values(node_type), workers)
        except ValueError as error:
            raise InputError(
                f"{scores.path}: scores of node type {node_type!r}: {error}; score the graph again"
            ) from error
    return orders


def check_scores(graph: Graph, scores: Scores) -> None:
    """Refuse scores that were computed on another graph."""
    for node_type in graph.node_types:
        found = scores.values(node_type).size if node_type in scores.node_types else None
        if found != graph.num_nodes(node_type):
            held = "none" if found is None else f"{found}"
            raise InputError(
                f"{scores.path}: expected scores of the {graph.num_nodes(node_type)} nodes of type {node_type!r} of "
                f"{graph.path}, found {held}; run `tiering score {graph.path}`"
            )
    if scores.graph_digest != graph.digest:
        raise InputError(
            f"{scores.path}: these scores were computed on another graph than {graph.path} "
            f"(graph {scores.graph_digest}, expected {graph.digest}); run `tiering score {graph.path}`"
        )
