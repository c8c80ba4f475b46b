"""Vertex inclusion probability: expected accesses per epoch, from fanouts and degrees alone.

After SALIENT++ (Kaler et al., MLSys'23), sharpened: exact wherever the paths that lead to a node do not share edges (on
in-trees), for both frontier rules, because it follows which slots of a neighbour list have been drawn by hop h instead
of treating the hops as independent. `tiering.native.inclusion_probability` has the recursion.
"""

from __future__ import annotations

from tiering import native
from tiering.formats.graph import Graph
from tiering.sampling import resolve_fanouts
from tiering.scores.memory import vip_need
from tiering.scores.request import ScoreColumns, ScoreRequest
from tiering.scores.sweeps import node_values, sweep_arguments, sweep_need

SAMPLERS = ("uniform", "replacement", "full", "weighted")
"""Samplers the formula knows; ``weighted`` is taken for uniform."""


def vip(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``vip``: inclusion probability in a batch times batches per epoch; reads of adjacency likewise.

    A batch holds each training node with probability batch size / training nodes. An isolated training node has a score
    of its own; a node that no training node can reach has exactly 0.

    Notes
    -----
    Cost: one pass over the edges per hop. Memory: `tiering.scores.memory.vip_need`.
    """
    sampling = request.sampled
    share = min(1.0, sampling.batch_size / request.train_size)
    found, reads = native.inclusion_probability(
        p0=node_values(graph, request.train, share, 0.0),
        fanouts=resolve_fanouts(graph.relations, sampling.fanouts),
        frontier=sampling.frontier,
        replacement=sampling.sampler == "replacement",
        **sweep_arguments(graph, request, vip_need(graph, request, sweep_need(graph, request.threads))),
    )
    for values in (*found, *reads):
        values /= share  # times batches per epoch
    return ScoreColumns(dict(zip(graph.node_types, found, strict=True)), dict(zip(graph.relations, reads, strict=True)))
