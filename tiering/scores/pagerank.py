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

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.scores.request import Float64Array, ScoreColumns, ScoreRequest, TrainSet, native_relations

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
        graph, request.threads, damping=options.damping, tolerance=options.tolerance, teleport=teleport
    ).columns()


def wrpr(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``wrpr``: see `weighted_reverse_pagerank`."""
    options = request.options
    teleport = request.train if options.teleport == "train" else None
    return weighted_reverse_pagerank(
        graph, request.train, request.threads, damping=options.damping, sweeps=options.sweeps, teleport=teleport
    ).columns()


def reverse_pagerank(
    graph: Graph, threads: int, *, damping: float = 0.85, tolerance: float = 1e-9, teleport: TrainSet | None = None
) -> RankResult:
    """`rpr`: from 1/N everywhere until the change is below `tolerance` (at most `MAX_SWEEPS` passes).

    In a graph where a node type is the destination of R > 1 relations, its nodes hand their score on R times, and the
    plain sum may grow without end. Here only, what they hand on is divided by the largest R, so that the iteration
    contracts; the restarts stay (1 - d), and all scores sum to at most 1.

    Parameters
    ----------
    teleport
        Nodes that share the (1 - d) of random restarts; ``None``: all nodes.
    """
    into = Counter(destination for _, _, destination in graph.relations)
    applied = damping / max(into.values(), default=1)
    start = {t: np.full(graph.num_nodes(t), 1.0 / max(1, graph.num_nodes())) for t in graph.node_types}
    restarts = _restarts(graph, teleport, 1.0 - damping)
    return _iterate(graph, start, restarts, applied, MAX_SWEEPS, tolerance, threads)


def weighted_reverse_pagerank(
    graph: Graph,
    train: TrainSet,
    threads: int,
    *,
    damping: float = 0.85,
    sweeps: int = 5,
    teleport: TrainSet | None = None,
) -> RankResult:
    """`wrpr`: exactly `sweeps` passes from 1/N, training nodes times N / |train|.

    Parameters
    ----------
    train
        Training nodes by type; |train| counts those of all types.
    teleport
        As in `reverse_pagerank`.
    """
    size = sum(ids.size for ids in train.values())
    start = {t: np.full(graph.num_nodes(t), 1.0 / max(1, graph.num_nodes())) for t in graph.node_types}
    for node_type, ids in train.items():
        start[node_type][ids] = 1.0 / size
    restarts = _restarts(graph, teleport, 1.0 - damping)
    return _iterate(graph, start, restarts, damping, sweeps, 0.0, threads)


def _iterate(
    graph: Graph,
    start: dict[str, Float64Array],
    restarts: list[Float64Array],
    damping: float,
    sweeps: int,
    tolerance: float,
    threads: int,
) -> RankResult:
    values, done, residual = native.reverse_pagerank(
        native_relations(graph),
        [graph.num_nodes(t) for t in graph.node_types],
        [start[t] for t in graph.node_types],
        restarts,
        damping,
        sweeps,
        tolerance,
        threads,
    )
    return RankResult(dict(zip(graph.node_types, values, strict=True)), done, residual, damping)


def _restarts(graph: Graph, teleport: TrainSet | None, mass: float) -> list[Float64Array]:
    """`mass` shared equally by the teleport nodes, per node type."""
    if teleport is None:
        total = max(1, graph.num_nodes())
        return [np.full(graph.num_nodes(t), mass / total) for t in graph.node_types]
    size = sum(ids.size for ids in teleport.values())
    shares = []
    for node_type in graph.node_types:
        share = np.zeros(graph.num_nodes(node_type))
        share[teleport.get(node_type, np.empty(0, np.int64))] = mass / size
        shares.append(share)
    return shares
