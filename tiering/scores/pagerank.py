"""Reverse PageRank, plain and weighted by the training set (Min et al., KDD'22, Algorithm 1).

Access probability flows against the edges: u is read whenever one of its out-neighbours v is sampled and picks u out
of its indeg(v) in-neighbours. Both scores repeat, with N the number of nodes of all types,

    s'(u) = (1 - d) / N  +  d * sum over relations, over edges u -> v of  s(v) / indeg(v)

with the in-degree of v within that relation. `rpr` does it until nothing changes, `wrpr` a few times from a start that
puts the weight on the training nodes, which is near what a sampler with as many hops does.
"""

from __future__ import annotations

from collections import Counter

from tiering import native
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.scores.request import HUGE_PAGE, MemoryNeed, ScoreColumns, ScoreRequest
from tiering.scores.sweeps import NodeValues, node_values, sweep_arguments, sweep_need
from tiering.units import format_count

MAX_SWEEPS = 200
"""`rpr` stops here even if it has not converged; at d = 0.85 the change has then shrunk by 1e-14."""


def rpr(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``rpr``: from 1/N everywhere until changes are below the tolerance (at most `MAX_SWEEPS` passes).

    In a graph where a node type is the destination of R > 1 relations, its nodes hand their score on R times, and the
    plain sum may grow without end. Here only, what they pass along is divided by the largest R, so that the iteration
    contracts; the restarts stay (1 - d), and all scores sum to at most 1.
    """
    into = Counter(destination for _, _, destination in graph.relations)
    damping = request.options.damping / max(into.values(), default=1)
    start = node_values(graph, {}, 0.0, 1.0 / max(1, graph.num_nodes()))
    return _iterate(graph, request, start, damping, MAX_SWEEPS, request.options.tolerance)


def wrpr(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``wrpr``: so many passes from 1/N, training nodes (of all types) times N / |train|."""
    start = node_values(graph, request.train, 1.0 / request.train_size, 1.0 / max(1, graph.num_nodes()))
    return _iterate(graph, request, start, request.options.damping, request.options.sweeps, 0.0)


def rank_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N for the scores, 8 T for the training nodes in order, and sweeps."""
    what = f"reverse PageRank: {format_count(graph.num_nodes())} nodes, their columns and one piece of the edges"
    own = 8 * graph.num_nodes() + 8 * request.train_size + len(graph.node_types) * HUGE_PAGE
    return sweep_need(graph, request.threads).plus(own, what)


def _iterate(
    graph: Graph, request: ScoreRequest, start: list[NodeValues], damping: float, sweeps: int, tolerance: float
) -> ScoreColumns:
    mass = 1.0 - request.options.damping  # of random restarts, shared equally by all nodes or by the training nodes
    restarts = node_values(graph, {}, 0.0, mass / max(1, graph.num_nodes()))
    if request.options.teleport == "train":
        restarts = node_values(graph, request.train, mass / request.train_size, 0.0)
    values, done, residual = native.reverse_pagerank(
        start=start,
        teleport=restarts,
        damping=damping,
        max_sweeps=sweeps,
        tolerance=tolerance,
        **sweep_arguments(graph, request, rank_need(graph, request)),
    )
    reached = {"sweeps": done, "residual": residual, "damping": damping}
    return ScoreColumns(dict(zip(graph.node_types, values, strict=True)), reached=reached)
