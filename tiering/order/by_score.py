"""Order nodes by falling score; ties by original id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering import native
from tiering.errors import InputError
from tiering.execution import Budget, parse_memory
from tiering.formats.graph import INT32_NODES, Graph
from tiering.formats.scores import Scores
from tiering.units import format_count, parse_threads


def order_nodes(
    graph: Graph,
    scores: Scores,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
) -> Mapping[str, np.ndarray[Any, Any]]:
    """Rank the nodes of every type.

    Returns
    -------
    Mapping of str to numpy.ndarray
        ``new_to_old`` per node type: original id of each rank, int32 below 2^31 nodes, else int64. Each is computed
        when it is asked for, and not kept.

    Raises
    ------
    InputError
        If the scores are of another graph; when an order is asked for, if they are not numbers.
    BudgetError
        When an order is asked for, if `sort_bytes` of the node type are not left.
    """
    check_scores(graph, scores)
    return NodeOrders(graph, scores, parse_threads(threads), parse_memory(memory))


def sort_bytes(num_nodes: int) -> int:
    """Memory that ranking takes: score and id of each node, twice; 24 bytes a node, 32 from 2^31 nodes on."""
    return 2 * num_nodes * (16 if num_nodes >= INT32_NODES else 12)


@dataclass(frozen=True)
class NodeOrders(Mapping[str, "np.ndarray[Any, Any]"]):
    """Orders by falling score, computed one by one."""

    graph: Graph
    scores: Scores
    threads: int
    budget: Budget

    def __getitem__(self, node_type: str) -> np.ndarray[Any, Any]:
        if node_type not in self.graph.node_types:
            raise KeyError(node_type)
        count = self.graph.num_nodes(node_type)
        what = f"ranking {format_count(count)} nodes of type {node_type!r}, score and id of each, twice,"
        self.budget.require(sort_bytes(count), what)
        try:
            order: np.ndarray[Any, Any] = native.sort_by_score(self.scores.values(node_type), self.threads)
        except ValueError as error:
            raise InputError(
                f"{self.scores.path}: scores of node type {node_type!r}: {error}; score the graph again"
            ) from error
        return order

    def __iter__(self) -> Iterator[str]:
        return iter(self.graph.node_types)

    def __len__(self) -> int:
        return len(self.graph.node_types)


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
