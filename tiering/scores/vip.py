"""Vertex inclusion probability: expected accesses per epoch, from fanouts and degrees alone.

After SALIENT++ (Kaler et al., MLSys'23), sharpened: exact wherever the paths that lead to a node do not share edges (on
in-trees), for both frontier rules, because it follows which slots of a neighbour list have been drawn by hop h instead
of treating the hops as independent. `tiering.native.inclusion_probability` has the recursion.
"""

from __future__ import annotations

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.sampling import resolve_fanouts
from tiering.scores.request import ScoreColumns, ScoreRequest, native_relations

SAMPLERS = ("uniform", "replacement", "full", "weighted")
"""Samplers the formula knows; ``weighted`` is taken for uniform."""


def vip(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``vip``: inclusion probability in a batch times batches per epoch; reads of adjacency likewise.

    A batch holds each training node with probability batch size / training nodes. An isolated training node has a score
    of its own; a node that no training node can reach has exactly 0.

    Notes
    -----
    Cost: one pass over the edges per hop; memory about 24 bytes per node and 24 per node and relation into its type.
    """
    sampling = request.sampled
    share = min(1.0, sampling.batch_size / request.train_size)
    start = [np.zeros(graph.num_nodes(node_type)) for node_type in graph.node_types]
    for node_type, ids in request.train.items():
        start[graph.node_types.index(node_type)][ids] = share
    found, reads = native.inclusion_probability(
        native_relations(graph),
        [graph.num_nodes(node_type) for node_type in graph.node_types],
        start,
        resolve_fanouts(graph.relations, sampling.fanouts),
        sampling.frontier,
        sampling.sampler == "replacement",
        request.threads,
    )
    for values in (*found, *reads):
        values /= share  # times batches per epoch
    return ScoreColumns(dict(zip(graph.node_types, found, strict=True)), dict(zip(graph.relations, reads, strict=True)))
