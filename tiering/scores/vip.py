"""Vertex inclusion probability: expected accesses per epoch, from fanouts and degrees alone.

After SALIENT++ (Kaler et al., MLSys'23), sharpened: exact wherever the paths that lead to a node do not share edges (on
in-trees), for both frontier rules, because it follows which slots of a neighbour list have been drawn by hop h instead
of treating the hops as independent. `tiering.native.inclusion_probability` has the recursion.
"""

from __future__ import annotations

from tiering import native
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.sampling import resolve_fanouts
from tiering.scores.request import HUGE_PAGE, MemoryNeed, ScoreColumns, ScoreRequest, list_nodes
from tiering.scores.sweeps import node_values, sweep_arguments, sweep_need
from tiering.units import format_count

SAMPLERS = ("uniform", "replacement", "full", "weighted")
"""Samplers the formula knows; ``weighted`` is taken for uniform."""


def vip(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``vip``: inclusion probability in a batch times batches per epoch; reads of adjacency likewise.

    A batch holds each training node with probability batch size / training nodes. An isolated training node has a score
    of its own; a node that no training node can reach has exactly 0.
    Cost: one pass over the edges per hop.
    """
    sampling = request.sampled
    share = min(1.0, sampling.batch_size / request.train_size)
    nodes, reads = native.inclusion_probability(
        p0=node_values(graph, request.train, share, 0.0),
        fanouts=resolve_fanouts(graph.relations, sampling.fanouts),
        frontier=sampling.frontier,
        replacement=sampling.sampler == "replacement",
        **sweep_arguments(graph, request, vip_need(graph, request)),
    )
    for values in (*nodes, *reads):
        values /= share  # times batches per epoch
    return ScoreColumns(dict(zip(graph.node_types, nodes, strict=True)), dict(zip(graph.relations, reads, strict=True)))


def vip_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 16 N, 24 D (16 D where only new nodes ask), 8 T, and sweeps."""
    lists = 24 * list_nodes(graph) + 3 * len(graph.relations) * HUGE_PAGE
    own = 16 * graph.num_nodes() + lists + 8 * request.train_size + 2 * len(graph.node_types) * HUGE_PAGE
    what = f"vip: {format_count(graph.num_nodes())} nodes, their lists and columns and one piece of the edges"
    return sweep_need(graph, request.threads).plus(own, what)
