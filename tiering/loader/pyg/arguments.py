"""Arguments of PyG's loaders, as options of a `Loader`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.loader.adapters import choose_sampler
from tiering.loader.original_ids import NodeIds
from tiering.sampling import Negatives


def sampling_keywords(
    graph: Graph, num_neighbors: Any, replace: bool, weight_attr: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Return the keywords of `SamplingOptions` that say how PyG draws neighbours: a node samples once."""
    if hasattr(num_neighbors, "get_values"):  # torch_geometric.sampler.NumNeighbors
        num_neighbors = num_neighbors.get_values(graph.relations)
    sampler = choose_sampler(options, replace, weight_attr, "weight_attr")
    return {"fanouts": num_neighbors, "frontier": "new", "sampler": sampler}


def find_input_nodes(graph: Graph, nodes: Any, node_type: str | None) -> tuple[str, npt.NDArray[np.int64]]:
    """Return type and ranks of ``input_nodes``: original ids, a mask over them, or a type, alone or before these."""
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        node_type, nodes = nodes
    elif isinstance(nodes, str):
        node_type, nodes = nodes, None
    node_type = find_input_type(graph, node_type)
    nodes = np.arange(graph.num_nodes(node_type)) if nodes is None else nodes
    return node_type, NodeIds(graph).ranks(node_type, nodes, "input_nodes")


def find_input_type(graph: Graph, node_type: str | None) -> str:
    """Return the node type given, or the only one."""
    types = graph.node_types
    if node_type is None and len(types) != 1:
        raise InputError(f"input_nodes: say which type they are of, as (type, ids); types: {', '.join(types)}")
    return types[0] if node_type is None else node_type


def find_links(graph: Graph, links: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Return relation and ranks of ``edge_label_index``, which has original ids; no ranks: all edges."""
    relation = None
    if isinstance(links, str) or (isinstance(links, tuple) and len(links) == 3 and isinstance(links[0], str)):
        relation, links = links, None
    elif isinstance(links, Sequence) and len(links) == 2 and isinstance(links[0], (str, tuple)):
        relation, links = links
    resolved = graph.relation(relation)
    if links is None:
        return resolved, None
    src, dst = links
    ends = ((resolved[0], src, "sources"), (resolved[2], dst, "destinations"))
    return resolved, np.stack([NodeIds(graph).ranks(t, ids, f"edge_label_index: {what}") for t, ids, what in ends])


def make_negatives(sampling: Any) -> Negatives | None:
    """Return the negatives of PyG's ``NegativeSampling``, its mode, or a mapping of its arguments."""
    if sampling is None:
        return None
    if isinstance(sampling, str):
        return Negatives(sampling)
    if isinstance(sampling, Mapping):
        return Negatives(**sampling)
    weights = [None if weight is None else np.asarray(weight) for weight in (sampling.src_weight, sampling.dst_weight)]
    return Negatives(sampling.mode.value, float(sampling.amount), *weights)


def label_links(labels: Any, pairs: npt.NDArray[np.int64] | None, negatives: Negatives | None) -> Any:
    """Return ``edge_label`` as a tensor; with negatives, classes from 0 on become 1 and more, as in PyG."""
    import torch

    if labels is None:
        return None
    if pairs is None:
        raise InputError("edge_label: give the links that it labels, edge_label_index, in the same order")
    if negatives is not None and negatives.triplets:
        raise InputError("edge_label: triplets have no labels; leave it out, or draw negatives in mode binary")
    label, count = torch.as_tensor(labels), pairs.shape[1]
    if len(label) != count:
        raise InputError(f"edge_label: expected one label for each of {count} links, found {len(label)}")
    return label + 1 if negatives is not None and label.min() == 0 else label
