"""Checks of a graph's arrays, and errors of the core that name the graph and the relation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from tiering import native
from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import FormatError, RefusedError
from tiering.formats.graph import Graph


@contextmanager
def graph_errors(graph: Graph, relation: Relation | None = None) -> Iterator[None]:
    """Turn the core's `RefusedError` into a `FormatError` that names the graph and the relation."""
    try:
        yield
    except RefusedError as error:
        if error.relation >= 0:
            relation = graph.relations[error.relation]
        place = "" if relation is None else f"relation {relation_key(relation)}: "
        raise FormatError(f"{graph.path}: {place}{error}; {damaged(graph.path)}") from error


def take_by_rank(
    values: np.ndarray[Any, Any], graph: Graph, node_type: str, begin: int = 0, end: int | None = None
) -> np.ndarray[Any, Any]:
    """Return `values` of original nodes by the ranks [begin, end) of a reordered graph."""
    order = f"order of node type {node_type!r}"
    ids = checked_range(graph.new_to_old(node_type)[begin:end], values.shape[0], graph, order, begin=begin)
    return cast("np.ndarray[Any, Any]", values[ids])


def checked_range(
    values: np.ndarray[Any, Any], end: int, graph: Graph, what: str, *, least: int = 0, begin: int = 0
) -> np.ndarray[Any, Any]:
    """Return values that a graph's file holds from entry `begin` on; `FormatError` if one is not in [least, end)."""
    if values.size and not least <= values.min() <= values.max() < end:
        at = np.flatnonzero((values < least) | (values >= end))[0]
        raise FormatError(
            f"{graph.path}: {what}: entry {begin + at} is {values[at]}, expected {least}..{end - 1}; "
            f"{damaged(graph.path)}"
        )
    return values


def checked_split(graph: Graph, split: str, node_type: str | None = None) -> np.ndarray[Any, Any]:
    """Return the ids of a split, each of them a node."""
    ids = graph.split(split, node_type)
    owner = node_type or next(owner for owner in graph.node_types if split in graph.splits(owner))
    return checked_range(ids, graph.num_nodes(owner), graph, f"split {split!r} of node type {owner!r}")


def checked_labels(graph: Graph, node_type: str) -> np.ndarray[Any, Any] | None:
    """Return the class of each node, -1 for none; ``None`` if the type has no labels."""
    labels, what = graph.labels(node_type), f"labels of node type {node_type!r}"
    return None if labels is None else checked_range(labels, graph.num_classes(node_type) or 0, graph, what, least=-1)


def checked_lists(graph: Graph, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return `Graph.csc`, the offsets in order; `FormatError` if they are not."""
    indptr, indices = graph.csc(relation)
    with graph_errors(graph, relation):
        native.check_indptr(indptr, indices.shape[0])
    return indptr, indices


def damaged(path: object) -> str:
    """Return the end of a message about a graph that is damaged."""
    return f"the graph is damaged: run `tiering check {path} --full`"
