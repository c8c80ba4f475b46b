"""What the core refuses of a graph, said with the names of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import FormatError, RefusedError
from tiering.formats.graph import Graph


@contextmanager
def graph_errors(graph: Graph, relation: Relation | None = None) -> Iterator[None]:
    """Say of which graph and relation the core refuses the adjacency: `FormatError` instead of `RefusedError`.

    Without `relation` all are read, in the order of `Graph.relations`.
    """
    try:
        yield
    except RefusedError as error:
        if error.relation >= 0:
            relation = graph.relations[error.relation]
        place = "" if relation is None else f"relation {relation_key(relation)}: "
        raise FormatError(f"{graph.path}: {place}{error}; {damaged(graph.path)}") from error


def of_ranks(
    values: np.ndarray[Any, Any], graph: Graph, node_type: str, begin: int = 0, end: int | None = None
) -> np.ndarray[Any, Any]:
    """`values` of original nodes, for the ranks [begin, end) of a reordered graph."""
    ids = graph.new_to_old(node_type)[begin:end]
    if (wrong := np.flatnonzero((ids < 0) | (ids >= values.shape[0]))).size:
        raise FormatError(
            f"{graph.path}: order of node type {node_type!r}: rank {begin + wrong[0]} holds id {ids[wrong[0]]}, "
            f"outside 0..{values.shape[0] - 1}; {damaged(graph.path)}"
        )
    ranked: np.ndarray[Any, Any] = values[ids]
    return ranked


def damaged(path: object) -> str:
    return f"the graph is damaged: run `tiering check {path} --full`"
