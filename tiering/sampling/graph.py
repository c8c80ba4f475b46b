"""The graph interface of samplers, and checks of its arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tiering.errors import InputError

Relation = tuple[str, str, str]


class SampledGraph(Protocol):
    """The graph interface of samplers. `tiering.formats.graph.Graph` is one."""

    @property
    def node_types(self) -> list[str]:
        """In a fixed order."""

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type), in a fixed order."""

    def num_nodes(self, node_type: str) -> int:
        """Return the nodes of a type."""

    def csc(self, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return ``(indptr, indices)``: column = destination, indices = its in-neighbours."""


def checked_csc(graph: SampledGraph, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a relation's ``(indptr, indices)``; `InputError` if dtypes or shapes are wrong."""
    indptr, indices = graph.csc(relation)
    name = ":".join(relation)
    if indptr.dtype != np.int64 or indptr.shape != (graph.num_nodes(relation[2]) + 1,):
        raise InputError(
            f"indptr of {name}: expected int64 of shape ({graph.num_nodes(relation[2]) + 1},), "
            f"found {indptr.dtype} of shape {indptr.shape}"
        )
    if indices.dtype not in (np.int32, np.int64) or indices.ndim != 1:
        raise InputError(
            f"indices of {name}: expected a 1-D array of int32 or int64, found {indices.dtype} of shape {indices.shape}"
        )
    return np.ascontiguousarray(indptr), np.ascontiguousarray(indices)


def checked_node_keys(graph: SampledGraph, node_type: str) -> np.ndarray[Any, Any] | None:
    """Return a type's keys of random numbers; ``None`` if the graph has none; `InputError` if they are malformed."""
    find = getattr(graph, "node_keys", None)
    keys = None if find is None else find(node_type)
    if keys is None:
        return None
    if keys.dtype not in (np.int32, np.int64) or keys.shape != (graph.num_nodes(node_type),):
        raise InputError(
            f"node keys of {node_type!r}: expected int32 or int64 of shape ({graph.num_nodes(node_type)},), "
            f"found {keys.dtype} of shape {keys.shape}"
        )
    return np.ascontiguousarray(keys)


def checked_weights(graph: SampledGraph, relation: Relation) -> np.ndarray[Any, Any]:
    """Return the weights along ``indices``, float32 or float64, from ``graph.edge_data(relation)["weight"]``."""
    name, path = ":".join(relation), getattr(graph, "path", "graph")
    find = getattr(graph, "edge_data", None)
    weights = None if find is None else find(relation).get("weight")
    if weights is None:
        raise InputError(
            f"{path}: relation {name} has no edge weights, which sampler 'weighted' draws by; import the dataset with "
            "weights (edge_weight.npy next to the edges, or a column of that name), or use another sampler"
        )
    edges = graph.csc(relation)[1].size
    if weights.shape != (edges,) or weights.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: weights of {name}: expected numbers of shape ({edges},), found {weights.dtype} of shape "
            f"{weights.shape}"
        )
    return np.ascontiguousarray(weights, weights.dtype if weights.dtype in (np.float32, np.float64) else np.float64)
