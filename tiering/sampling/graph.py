"""The graph interface of samplers, checks of its arrays, and fanouts by its relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tiering.artifacts.manifest import named_relations
from tiering.errors import InputError
from tiering.sampling.options import Fanouts
from tiering.text.units import parse_fanouts

Array = np.ndarray[Any, Any]
Relation = tuple[str, str, str]


class SampledGraph(Protocol):
    """The graph interface of samplers. `tiering.formats.graph.Graph` is one."""

    @property
    def node_types(self) -> list[str]:
        """Node types, in a fixed order."""

    @property
    def relations(self) -> list[Relation]:
        """Relations (source type, name, destination type), in a fixed order."""

    def num_nodes(self, node_type: str) -> int:
        """Return the nodes of a type."""

    def csc(self, relation: Relation) -> tuple[Array, Array]:
        """Return ``(indptr, indices)``: column = destination, indices = its in-neighbors."""


def _checked(array: Array, what: str, dtypes: str, size: int | None = None) -> Array:
    """Return a contiguous array; `InputError` unless it has one of `dtypes`, one dimension, and `size` if given."""
    if array.dtype not in dtypes.split(" or ") or array.ndim != 1 or size not in (None, array.size):
        shape = "one dimension" if size is None else f"shape ({size},)"
        raise InputError(f"{what}: expected {dtypes} of {shape}, found {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array)


def checked_csc(graph: SampledGraph, relation: Relation) -> tuple[Array, Array]:
    """Return a relation's ``(indptr, indices)``; `InputError` if dtypes or shapes are wrong."""
    (indptr, indices), name = graph.csc(relation), ":".join(relation)
    indptr = _checked(indptr, f"indptr of {name}", "int64", graph.num_nodes(relation[2]) + 1)
    return indptr, _checked(indices, f"indices of {name}", "int32 or int64")


def checked_node_keys(graph: SampledGraph, node_type: str) -> Array | None:
    """Return a type's keys of random numbers; ``None`` if the graph has none; `InputError` if they are malformed."""
    find = getattr(graph, "node_keys", None)
    keys = None if find is None else find(node_type)
    if keys is None:
        return None
    return _checked(keys, f"node keys of {node_type!r}", "int32 or int64", graph.num_nodes(node_type))


def checked_weights(graph: SampledGraph, relation: Relation) -> Array:
    """Return the weights along ``indices``, float32 or float64, from ``graph.edge_data(relation)["weight"]``."""
    name, path = ":".join(relation), getattr(graph, "path", "graph")
    find = getattr(graph, "edge_data", None)
    weights = None if find is None else find(relation).get("weight")
    if weights is None:
        raise InputError(
            f"{path}: relation {name} has no edge weights, which sampler 'weighted' needs; import the dataset with "
            "weights (edge_weight.npy next to the edges, or a column of that name), or use another sampler"
        )
    edges = graph.csc(relation)[1].size
    if weights.shape != (edges,) or weights.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: weights of {name}: expected numbers of shape ({edges},), found {weights.dtype} of shape "
            f"{weights.shape}"
        )
    return np.ascontiguousarray(weights, weights.dtype if weights.dtype in (np.float32, np.float64) else np.float64)


def resolve_fanouts(relations: Sequence[Relation], fanouts: Fanouts) -> list[list[int]]:
    """Return fanouts as hop x relation, checked: numbers in range, mappings that name every relation and no other."""
    return [
        _hop_fanouts(relations, hop, f"fanouts of hop {number}") if isinstance(hop, dict) else [hop] * len(relations)
        for number, hop in enumerate(parse_fanouts(fanouts))
    ]


def _hop_fanouts(relations: Sequence[Relation], fanouts: Mapping[str, int], what: str) -> list[int]:
    numbers: dict[Relation, int] = {}
    for key, number in fanouts.items():
        relation = match_relation(relations, key, what)
        if relation in numbers:
            raise InputError(f"{what}: relation {':'.join(relation)} is given twice")
        numbers[relation] = number
    if missing := [":".join(r) for r in relations if r not in numbers]:
        raise InputError(
            f"{what}: relations without a number: {', '.join(missing)}; give a number for each of {len(relations)} "
            "relations, 0 to skip a relation"
        )
    return [numbers[r] for r in relations]


def match_relation(relations: Sequence[Relation], key: Any, what: str) -> Relation:
    """Return the relation that `key` names, as in `tiering.artifacts.manifest.named_relations`; `what` holds it."""
    named = named_relations(relations, key)
    if len(named) != 1:
        known = ", ".join(":".join(r) for r in relations)
        raise InputError(f"{what}: no single relation {key!r}; relations: {known}")
    return named[0]
