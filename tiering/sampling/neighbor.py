"""Neighbour sampling: every frontier node draws from its own list."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.sampling.base import FrontierRule, Sampler
from tiering.sampling.fanouts import Fanout, resolve_fanouts
from tiering.sampling.graph import Relation, SampledGraph


class NeighborSampler(Sampler):
    """Uniform neighbour sampling without replacement, hop by hop, over every relation.

    At hop h every node of the frontier draws ``min(degree, fanout)`` of its in-neighbours, each subset equally
    likely; a list no longer than the fanout is taken whole, in its order. Parallel edges are separate neighbours.

    Parameters
    ----------
    graph
        A graph artifact, or anything with the methods of `tiering.sampling.SampledGraph`; if it has
        ``node_keys(type)``, these original ids key the random numbers.
    fanouts
        One entry per hop, the seeds' own hop first (DGL lists them the other way round): a number for all relations
        or a mapping ``relation -> number`` with an entry for every relation (a tuple, ``"src:name:dst"``, or a name
        that is unique). -1 takes all neighbours; 0, in a mapping, skips the relation.
    frontier
        ``"all"``: every node found so far samples again (DGL, GraphBolt, the GraphSAGE of the papers); ``"new"``:
        only nodes first found at the hop before (PyG).
    seed
        Seed of the run, 0 to 2^64 - 1.

    Raises
    ------
    InputError
        If fanouts, frontier or seed do not fit the graph.
    """

    def __init__(
        self,
        graph: SampledGraph,
        fanouts: Sequence[Fanout],
        *,
        frontier: FrontierRule = "all",
        seed: int = 0,
    ) -> None:
        relations: list[Relation] = [(r[0], r[1], r[2]) for r in graph.relations]
        super().__init__(graph, resolve_fanouts(relations, fanouts), frontier=frontier, seed=seed)
