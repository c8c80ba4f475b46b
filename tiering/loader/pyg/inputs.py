"""Seeds and links as scripts for PyG have them: by ids of the source, with ``input_id`` as PyG's loaders give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.loader.adapters import EDGE_IDS
from tiering.loader.batches.targets import find_link_type
from tiering.loader.options import LinkOptions
from tiering.loader.original_ids import Ids, NodeIds, as_array
from tiering.sampling import Negatives


def find_input_nodes(graph: Graph, nodes: Any, node_type: str | None) -> tuple[str, Ids, Ids | None]:
    """Return type, ranks and ``input_id`` of ``input_nodes``: original ids, a mask over them, a type, or type and ids.

    ``input_id`` are the ids that a mask chooses; ``None``: positions among the ids.
    """
    if isinstance(nodes, (tuple, list)) and len(nodes) == 2 and isinstance(nodes[0], str):
        node_type, nodes = nodes
    elif isinstance(nodes, str):
        node_type, nodes = nodes, None
    node_type = find_input_type(graph, node_type)
    ids = as_array(np.arange(graph.num_nodes(node_type)) if nodes is None else nodes)
    ranks = NodeIds(graph).ranks(node_type, ids, "input_nodes")
    return node_type, ranks, np.flatnonzero(ids) if ids.dtype == np.bool_ else None


def find_input_type(graph: Graph, node_type: str | None) -> str:
    """Return the node type named, or the only one."""
    types = graph.node_types
    if node_type is None and len(types) != 1:
        raise InputError(f"input_nodes: say which type they are of, as (type, ids); types: {', '.join(types)}")
    return types[0] if node_type is None else node_type


@dataclass(frozen=True)
class InputLinks:
    """The links of ``edge_label_index`` by rank: all edges of the relation without `pairs`, in the source's `order`."""

    relation: Relation
    pairs: Ids | None = None
    order: Ids | None = None  # positions in ``indices``; ``None``: all, in their own order
    input_id: Ids | None = None  # ``None``: positions among the links

    @classmethod
    def find(cls, graph: Graph, links: Any, what: str = "edge_label_index") -> InputLinks:
        """Return the links between original ids, or all edges: of a relation, (relation, pairs) or pairs."""
        relation = None
        if isinstance(links, str) or (isinstance(links, Sequence) and all(isinstance(part, str) for part in links)):
            relation, links = links, None
        elif isinstance(links, Sequence) and len(links) == 2 and isinstance(links[0], (str, tuple)):
            relation, links = links
        resolved = find_link_type(graph, relation, edges=links is None)
        if links is not None:
            ends = zip(resolved[::2], links, ("sources", "destinations"), strict=True)
            ranks = [NodeIds(graph).ranks(t, ids, f"{what}: {end}") for t, ids, end in ends]
            return cls(resolved, np.stack(ranks))
        if (ids := graph.edge_data(resolved).get(EDGE_IDS)) is None:
            return cls(resolved)
        order = np.argsort(ids, kind="stable")
        places = ids[order]
        return cls(resolved, None, order, None if np.array_equal(places, np.arange(places.size)) else places)

    def options(self, negatives: Negatives | None) -> LinkOptions:
        """Return the options of a loader of the links."""
        return LinkOptions(self.relation, self.pairs, negatives, self.order)

    def label(self, labels: Any, negatives: Negatives | None) -> Any:
        """Return ``edge_label`` as a tensor by link; with negatives, classes from 0 on become 1 and more, as in PyG."""
        import torch

        if labels is None:
            return None
        if self.pairs is None and self.order is None:
            raise InputError("edge_label: expected the links that it labels, edge_label_index, or import --edge-ids")
        if negatives is not None and negatives.triplets:
            raise InputError("edge_label: triplets have no labels; leave it out, or draw negatives in mode binary")
        label, places = torch.as_tensor(labels), self.input_id
        count = (self.pairs[0] if self.order is None else self.order).size  # type: ignore[index]
        if len(label) != count if places is None else not 0 <= places.min() <= places.max() < len(label):
            ids = "" if places is None else f" with the edge ids {places.min()} .. {places.max()}"
            raise InputError(f"edge_label: expected one label for each of {count} links{ids}, found {len(label)}")
        label = label if places is None else label[torch.from_numpy(places)]
        return label + 1 if negatives is not None and label.min() == 0 else label


def make_negatives(sampling: Any) -> Negatives | None:
    """Return the negatives of PyG's ``NegativeSampling``, its mode, or a mapping of its arguments."""
    if not hasattr(sampling, "src_weight") or isinstance(sampling, Negatives):
        return Negatives.of(sampling)
    weights = [None if weight is None else np.asarray(weight) for weight in (sampling.src_weight, sampling.dst_weight)]
    return Negatives(sampling.mode.value, float(sampling.amount), *weights)
