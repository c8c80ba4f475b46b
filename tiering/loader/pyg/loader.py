"""PyG's two loaders over a layout: what they are called with, in the words of a `Loader`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.loader.attributes import edge_names
from tiering.loader.draws import chosen_sampler
from tiering.loader.loader import LayoutTables, Loader
from tiering.loader.options import LinkOptions, LoaderOptions
from tiering.loader.original_ids import ranks_of
from tiering.loader.require import require_pyg
from tiering.sampling import Negatives


def neighbor_loader(
    layout: LayoutTables,
    split: str | None,
    num_neighbors: Any,
    *,
    input_nodes: Any = None,
    node_type: str | None = None,
    replace: bool = False,
    weight_attr: str | None = None,
    edge_attrs: Collection[str] | None = None,
    return_edge_id: bool | None = None,
    masks: bool = True,
    transform: Callable[[Any], Any] | None = None,
    features: Any = "tiers",
    **options: Any,
) -> Loader:
    """See `tiering.loader.frameworks.ForFrameworks.pyg_loader`."""
    require_pyg()
    from tiering.loader.pyg.batch import PygBatches

    graph = layout.artifact.graph
    if input_nodes is not None:
        node_type, options["seeds"] = _input_nodes(graph, input_nodes, node_type)
    sampling = sampling_words(graph, num_neighbors, replace, weight_attr, options)
    options |= {"split": split, "node_type": node_type, **sampling}
    names = tuple(edge_names(graph, edge_attrs, return_edge_id))
    return Loader(layout, LoaderOptions.of(features, options), PygBatches(names, transform, masks))


def link_neighbor_loader(
    layout: LayoutTables,
    num_neighbors: Any,
    *,
    edge_label_index: Any = None,
    edge_label: Any = None,
    neg_sampling: Any = None,
    replace: bool = False,
    weight_attr: str | None = None,
    edge_attrs: Collection[str] | None = None,
    return_edge_id: bool | None = None,
    masks: bool = True,
    transform: Callable[[Any], Any] | None = None,
    features: Any = "tiers",
    **options: Any,
) -> Loader:
    """See `tiering.loader.frameworks.ForFrameworks.pyg_link_loader`."""
    require_pyg()
    from tiering.loader.pyg.batch import PygBatches

    graph = layout.artifact.graph
    relation, pairs = _edge_label_index(graph, edge_label_index)
    negatives = negatives_of(neg_sampling)
    links = LinkOptions(relation, pairs, negatives)
    if edge_label is not None and pairs is None:
        raise InputError("edge_label: give the links that it labels, edge_label_index, in the same order")
    label = None if edge_label is None or pairs is None else _labels(edge_label, pairs.shape[1], negatives)
    options |= sampling_words(graph, num_neighbors, replace, weight_attr, options)
    names = tuple(edge_names(graph, edge_attrs, return_edge_id))
    holds = PygBatches(names, transform, masks, label)
    return Loader(layout, LoaderOptions.of(features, options, links), holds)


def sampling_words(
    graph: Graph, num_neighbors: Any, replace: bool, weight_attr: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """How neighbours are drawn, in the words of `SamplingOptions`: nodes sample once, as with PyG."""
    if hasattr(num_neighbors, "get_values"):  # torch_geometric.sampler.NumNeighbors
        num_neighbors = num_neighbors.get_values(graph.relations)
    sampler = chosen_sampler(options, replace, weight_attr, "weight_attr")
    return {"fanouts": num_neighbors, "frontier": "new", "sampler": sampler}


def _input_nodes(graph: Graph, given: Any, node_type: str | None) -> tuple[str, npt.NDArray[np.int64]]:
    """Type and ranks of the nodes in any form that PyG takes them: original ids, a mask over them, or a type, alone or
    before one of these."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        node_type, given = given
    elif isinstance(given, str):
        node_type, given = given, None
    if node_type is None:
        if len(graph.node_types) != 1:
            raise InputError(
                f"input_nodes: say which type they are of, as (type, ids); types: {', '.join(graph.node_types)}"
            )
        node_type = graph.node_types[0]
    count = graph.num_nodes(node_type)
    return node_type, ranks_of(graph, node_type, np.arange(count) if given is None else given, "input_nodes")


def _edge_label_index(graph: Graph, given: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Relation and ranks of the links' ends: both from original ids; ``None`` for all edges of the relation."""
    relation = None
    if isinstance(given, str) or (isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str)):
        relation, given = given, None
    elif isinstance(given, Sequence) and len(given) == 2 and isinstance(given[0], (str, tuple)):
        relation, given = given
    resolved = graph.relation(relation)
    if given is None:
        return resolved, None
    src, dst = given
    ends = ((resolved[0], src, "sources"), (resolved[2], dst, "destinations"))
    return resolved, np.stack([ranks_of(graph, t, ids, f"edge_label_index: {what}") for t, ids, what in ends])


def negatives_of(given: Any) -> Negatives | None:
    """PyG's ``NegativeSampling``, or what it is made from: a mode, or a mapping of its arguments."""
    if given is None:
        return None
    if isinstance(given, str):
        return Negatives(given)
    if isinstance(given, Mapping):
        return Negatives(**given)
    weights = [None if weight is None else np.asarray(weight) for weight in (given.src_weight, given.dst_weight)]
    return Negatives(given.mode.value, float(given.amount), *weights)


def _labels(given: Any, count: int, negatives: Negatives | None) -> Any:
    """Labels of links as a tensor; classes from 0 on make room for that of the negative pairs, as PyG's do."""
    import torch

    if negatives is not None and negatives.triplets:
        raise InputError("edge_label: triplets have no labels; leave it out, or draw negatives in mode binary")
    label = torch.as_tensor(given)
    if len(label) != count:
        raise InputError(f"edge_label: expected one label for each of {count} links, found {len(label)}")
    return label + 1 if negatives is not None and label.min() == 0 else label
