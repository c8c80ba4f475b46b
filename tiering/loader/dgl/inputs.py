"""Edges and negatives as scripts for DGL have them: by ids in the source, by relation; a sampler of negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.loader.original_ids import as_array
from tiering.loader.pyg.inputs import InputLinks
from tiering.sampling import Negatives


def find_edges(graph: Graph, indices: Any) -> InputLinks:
    """Return the edges of ``indices``: ids in the source, (sources, destinations), or ``{relation: one of these}``.

    ``None``: all edges of the relation.
    """
    by_relation = indices if isinstance(indices, Mapping) else {None: indices}
    if len(by_relation) != 1:
        raise InputError(
            f"indices: expected edges of one relation, as {{relation: ids}}, found {len(by_relation)}; make a loader "
            "for each"
        )
    ((relation, edges),) = by_relation.items()
    if isinstance(edges, tuple) or getattr(edges, "ndim", 1) == 2:
        if len(edges) != 2 or np.shape(edges[0]) != np.shape(edges[1]):
            raise InputError("indices: expected edge ids, or (sources, destinations) of one length")
        relation = graph.relation(relation) if relation is None else relation
        return InputLinks.find(graph, (relation, tuple(edges)), "indices")
    links = InputLinks.find(graph, graph.relation(relation))
    return links if edges is None else choose_edges(graph, links, as_array(edges))


def choose_edges(graph: Graph, links: InputLinks, ids: Any) -> InputLinks:
    """Return those of all edges of a relation that have the ids."""
    label = ":".join(links.relation)
    if links.order is None:
        raise InputError(
            f"indices: ids of edges of {label} were not kept; import with --edge-ids, or pass the edges as "
            "(sources, destinations), original ids"
        )
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"indices: expected edge ids, whole numbers of one dimension, found {ids.dtype} {ids.shape}")
    known = np.arange(links.order.size) if links.input_id is None else links.input_id  # rising
    places = np.searchsorted(known, ids)
    if (wrong := np.flatnonzero(np.append(known, -1)[places] != ids)).size:
        raise InputError(f"indices: entry {wrong[0]} is {ids[wrong[0]]}, the id of no edge of {label} of {graph.path}")
    return replace(links, order=links.order[places], input_id=ids.astype(np.int64))


def find_negatives(sampler: Any) -> Negatives | None:
    """Return the negatives of DGL's ``Uniform(k)``, or a number k for it, or what `Negatives.of` takes."""
    from dgl.dataloading.negative_sampler import PerSourceUniform

    if isinstance(sampler, PerSourceUniform):
        sampler = sampler.k
    if isinstance(sampler, int | np.integer) and not isinstance(sampler, bool):
        return Negatives("triplet", int(sampler))
    if callable(sampler):
        raise InputError(
            f"negative_sampler: expected Uniform(k), k, a mode or a mapping of both, found {type(sampler).__name__}; "
            "mode 'binary' draws pairs of any nodes"
        )
    return Negatives.of(sampler)
