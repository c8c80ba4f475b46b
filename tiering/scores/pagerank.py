"""Reverse PageRank, plain and weighted by the training set (Min et al., KDD'22, Algorithm 1).

Access probability flows against the edges: u is read whenever one of its out-neighbours v is sampled and picks u out
of its indeg(v) in-neighbours. Both scores repeat, with N the number of nodes of all types,

    s'(u) = (1 - d) / N  +  d * sum over relations, over edges u -> v of  s(v) / indeg(v)

with the in-degree of v within that relation. `rpr` does it until nothing changes, `wrpr` a few times from a start that
puts the weight on the training nodes, which is near what a sampler with as many hops does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tiering import native
from tiering.formats.graph import Graph
from tiering.scores.memory import direct_files, kernel_memory
from tiering.scores.request import (
    Float64Array,
    NodeValues,
    ScoreColumns,
    ScoreRequest,
    TrainSet,
    native_relations,
    node_values,
)

MAX_SWEEPS = 200
"""`rpr` stops here even if it has not converged; at d = 0.85 the change has then shrunk by 1e-14."""


@dataclass(frozen=True)
class RankResult:
    """Scores and how they were reached."""

    values: dict[str, Float64Array]
    """Shape (num_nodes,) per node type."""
    sweeps: int
    """Passes over the edges."""
    residual: float
    """Sum of absolute changes in the last pass; the start sums to 1."""
    damping: float
    """Damping that was applied."""

    def columns(self) -> ScoreColumns:
        """As the result of a method."""
        reached = {"sweeps": self.sweeps, "residual": self.residual, "damping": self.damping}
        return ScoreColumns(self.values, reached=reached)


def rpr(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``rpr``: see `reverse_pagerank`."""
    options = request.options
    teleport = request.train if options.teleport == "train" else None
    return reverse_pagerank(
        graph, request, damping=options.damping, tolerance=options.tolerance, teleport=teleport
    ).columns()


def wrpr(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``wrpr``: see `weighted_reverse_pagerank`."""
    options = request.options
    teleport = request.train if options.teleport == "train" else None
    return weighted_reverse_pagerank(
        graph, request, damping=options.damping, sweeps=options.sweeps, teleport=teleport
    ).columns()


def reverse_pagerank(
    graph: Graph,
    request: ScoreRequest,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-9,
    teleport: TrainSet | None = None,
) -> RankResult:
    """`rpr`: from 1/N everywhere until the change is below `tolerance` (at most `MAX_SWEEPS` passes).

    In a graph where a node type is the destination of R > 1 relations, its nodes hand their score on R times, and the
    plain sum may grow without end. Here only, what they hand on is divided by the largest R, so that the iteration
    contracts; the restarts stay (1 - d), and all scores sum to at most 1.

    Parameters
    ----------
    request
        Threads, memory and directory for what does not fit it; options are those below.
    teleport
        Nodes that share the (1 - d) of random restarts; ``None``: all nodes.
    """
    into = Counter(destination for _, _, destination in graph.relations)
    applied = damping / max(into.values(), default=1)
    start = node_values(graph, {}, 0.0, 1.0 / max(1, graph.num_nodes()))
    return _iterate(graph, start, _restarts(graph, teleport, 1.0 - damping), (applied, MAX_SWEEPS, tolerance), request)


def weighted_reverse_pagerank(
    graph: Graph,
    request: ScoreRequest,
    *,
    damping: float = 0.85,
    sweeps: int = 5,
    teleport: TrainSet | None = None,
) -> RankResult:
    """`wrpr`: exactly `sweeps` passes from 1/N, training nodes times N / |train|.

    Parameters
    ----------
    request
        Training nodes by type (|train| counts those of all types), threads, memory and directory for what does not fit
        it; options are those below.
    teleport
        As in `reverse_pagerank`.

    Notes
    -----
    Memory: `tiering.scores.memory.rank_need`.
    """
    start = node_values(graph, request.train, 1.0 / request.train_size, 1.0 / max(1, graph.num_nodes()))
    return _iterate(graph, start, _restarts(graph, teleport, 1.0 - damping), (damping, sweeps, 0.0), request)


def _iterate(
    graph: Graph,
    start: list[NodeValues],
    restarts: list[NodeValues],
    how: tuple[float, int, float],
    request: ScoreRequest,
) -> RankResult:
    """Sweep by damping, most sweeps and tolerance."""
    damping, sweeps, tolerance = how
    values, done, residual = native.reverse_pagerank(
        native_relations(graph),
        [graph.num_nodes(t) for t in graph.node_types],
        start,
        restarts,
        damping,
        sweeps,
        tolerance,
        request.threads,
        kernel_memory(request.budget),
        str(request.scratch),
        direct_files(graph, request.budget),
    )
    return RankResult(dict(zip(graph.node_types, values, strict=True)), done, residual, damping)


def _restarts(graph: Graph, teleport: TrainSet | None, mass: float) -> list[NodeValues]:
    """`mass` shared equally by the teleport nodes, per node type."""
    if teleport is None:
        return node_values(graph, {}, 0.0, mass / max(1, graph.num_nodes()))
    return node_values(graph, teleport, mass / sum(ids.size for ids in teleport.values()), 0.0)
