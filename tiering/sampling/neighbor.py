"""Neighbour sampling: every frontier node draws from its own list, or the whole frontier together (LADIES)."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.errors import InputError
from tiering.sampling.base import FrontierRule, Sampler
from tiering.sampling.graph import SampledGraph, checked_weights
from tiering.sampling.options import DRAW_RULES, DrawRule, Fanout


class NeighborSampler(Sampler):
    """Neighbour sampling, hop by hop, over every relation: every frontier node draws from its in-neighbours.

    Parameters
    ----------
    graph
        A graph artifact, or anything with the methods of `tiering.sampling.SampledGraph`; if it has
        ``node_keys(type)``, these original ids key the random numbers.
    fanouts
        One entry per hop, the seeds' own hop first (DGL lists them the other way round): a number for all relations
        or a mapping ``relation -> number`` with an entry for every relation (a tuple, ``"src:name:dst"``, or a name
        that is unique). -1 takes all neighbours; 0, in a mapping, skips the relation.
    rule
        ``"uniform"``: ``min(degree, fanout)`` neighbours without replacement, every subset equally likely; a list no
        longer than the fanout is taken whole, in its order. ``"replacement"``: `fanout` independent draws, where the
        list is not empty; the same edge may come several times. ``"weighted"``: without replacement, each draw in
        proportion to the weights of what is left (``edge_data(relation)["weight"]``); edges of weight 0 are never
        drawn. Parallel edges are separate neighbours in all of them.
    frontier
        ``"all"``: every node found so far samples again (DGL, GraphBolt, the GraphSAGE of the papers); ``"new"``:
        only nodes first found at the hop before (PyG).
    seed
        Seed of the run, 0 to 2^64 - 1.
    threads
        Threads that prepare ``"weighted"``; the result does not depend on it.

    Raises
    ------
    InputError
        If fanouts, frontier or seed do not fit the graph; for ``"weighted"``, if a relation has no weights, or some
        that are negative, infinite or NaN, or only zeros.

    Notes
    -----
    ``"weighted"`` turns the weights into running sums once: one pass, 8 bytes per edge. A draw is then a search in the
    sums, in whole numbers: 2^-40 or finer of the column's heaviest edge for columns of up to a million edges; positive
    weights lighter than that count as that much.
    """

    def __init__(
        self,
        graph: SampledGraph,
        fanouts: Sequence[Fanout],
        *,
        rule: DrawRule = "uniform",
        frontier: FrontierRule = "all",
        seed: int = 0,
        threads: int | str | None = None,
    ) -> None:
        if rule not in DRAW_RULES:
            raise InputError(f"rule: expected one of {', '.join(DRAW_RULES)}, found {rule!r}")
        weights = {r: checked_weights(graph, r) for r in graph.relations} if rule == "weighted" else None
        super().__init__(graph, fanouts, frontier=frontier, seed=seed, rule=rule, weights=weights, threads=threads)


class LayerSampler(Sampler):
    """LADIES: at every hop a number of nodes is drawn for the whole frontier, important ones more likely.

    At a hop and relation the candidates are the in-neighbours u of the frontier. With d(v) = in-degree of v in the
    relation, u's importance is the sum of 1 / d(v)^2 over its edges u -> v into the frontier, parallel edges each.
    `layer_sizes` candidates are drawn without replacement, each next one with probability in proportion to importance
    among the rest; fewer candidates are all taken. All edges into the frontier from drawn nodes are kept, and from
    nodes that were known before the hop. The weight of an edge u -> v is 1 / (d(v) * importance of u), scaled so that
    the weights of v's edges sum to 1.

    Parameters
    ----------
    layer_sizes
        One entry per hop, the seeds' own hop first: nodes to draw, one number for every relation or a mapping
        ``relation -> number``; each relation has a draw of its own. -1 takes all candidates, 0, in a mapping, skips
        the relation.
    graph, frontier, seed
        As for `NeighborSampler`. For any frontier rule edges from all known nodes are kept.

    Raises
    ------
    InputError
        If layer sizes, frontier or seed do not fit the graph.

    Notes
    -----
    A hop reads the whole lists of the frontier: time goes with the sum of its in-degrees.

    The authors' code (Zou et al., NeurIPS 2019) differs in details: it adds a self-loop to every node of the graph
    (import with self-loops to get the same), keeps the seeds but no other known nodes from hop to hop, and joins
    parallel edges to one of their summed weight before it squares. Known nodes are weighted by importance, as there.
    """

    def __init__(
        self, graph: SampledGraph, layer_sizes: Sequence[Fanout], *, frontier: FrontierRule = "all", seed: int = 0
    ) -> None:
        super().__init__(graph, layer_sizes, frontier=frontier, seed=seed, rule="ladies")
