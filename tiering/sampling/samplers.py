"""The samplers by rule: neighbors of each node, of a whole frontier (LADIES), or by random walks (PinSAGE)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tiering import native
from tiering.errors import InputError
from tiering.sampling.base import FrontierRule, Sampler
from tiering.sampling.graph import Relation, SampledGraph, checked_weights, match_relation, resolve_fanouts
from tiering.sampling.options import DRAW_RULES, DrawRule, Fanout, SamplingOptions, Subgraphs
from tiering.sampling.plan import whole_number


class NeighborSampler(Sampler):
    """Neighbor sampling, hop by hop, over every relation: every frontier node samples from its in-neighbors.

    Parameters
    ----------
    graph
        A graph artifact, or anything with the methods of `tiering.sampling.SampledGraph`; if it has
        ``node_keys(type)``, these original ids key the random numbers.
    fanouts
        One entry per hop, the seeds' own hop first (DGL lists them the other way round): a number for all relations
        or a mapping ``relation -> number`` with an entry for every relation (a tuple, ``"src:name:dst"``, or a name
        that is unique). -1 takes all neighbors; 0, in a mapping, skips the relation.
    rule
        ``"uniform"``: ``min(degree, fanout)`` neighbors without replacement, every subset equally likely; a list no
        longer than the fanout is taken whole, in its order. ``"replacement"``: `fanout` independent samples, where the
        list is not empty; the same edge may come several times. ``"weighted"``: without replacement, each sample in
        proportion to the weights of what is left (``edge_data(relation)["weight"]``); edges of weight 0 are never
        sampled. Parallel edges are separate neighbors in all of them.
    frontier
        ``"all"``: every node found so far samples again (DGL, GraphBolt, the GraphSAGE of the papers); ``"new"``:
        only nodes first found at the hop before (PyG).
    seed
        Seed of the run, 0 to 2^64 - 1.
    threads
        Threads that prepare ``"weighted"``; the result does not depend on it.
    subgraphs
        Whether seeds have subgraphs of their own, the time that neighbors must not be newer than, and which edges a
        batch has.

    Notes
    -----
    `InputError`: an argument does not fit the graph; for ``"weighted"``, a relation has no weights, or some that are
    negative, infinite or NaN, or only zeros.

    ``"weighted"`` turns the weights into running sums once: one pass, 8 bytes per edge. Sampling then searches the
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
        subgraphs: Subgraphs | None = None,
    ) -> None:
        if rule not in DRAW_RULES:
            raise InputError(f"rule: expected one of {', '.join(DRAW_RULES)}, found {rule!r}")
        weights = {r: checked_weights(graph, r) for r in graph.relations} if rule == "weighted" else None
        more: dict[str, Any] = {"weights": weights, "threads": threads, "subgraphs": subgraphs}
        super().__init__(graph, fanouts, frontier=frontier, seed=seed, rule=rule, **more)


class LayerSampler(Sampler):
    """LADIES: at every hop a number of nodes is sampled for the whole frontier, important ones more likely.

    At a hop and relation the candidates are the in-neighbors u of the frontier. With d(v) = in-degree of v in the
    relation, u's importance is the sum of 1 / d(v)^2 over its edges u -> v into the frontier, parallel edges each.
    `layer_sizes` candidates are sampled without replacement, each next one with probability in proportion to importance
    among the rest; fewer candidates are all taken. All edges into the frontier from sampled nodes are kept, and from
    nodes that were known before the hop. The weight of an edge u -> v is 1 / (d(v) * importance of u), scaled so that
    the weights of v's edges sum to 1.

    Parameters
    ----------
    layer_sizes
        One entry per hop, the seeds' own hop first: nodes to sample, one number for every relation or a mapping
        ``relation -> number``; each relation has its own samples. -1 takes all candidates, 0, in a mapping, skips
        the relation.
    graph, frontier, seed
        As for `NeighborSampler`. For any frontier rule edges from all known nodes are kept.

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


class RandomWalkSampler(Sampler):
    """PinSAGE: every frontier node walks at random, and the nodes visited most often become its neighbors.

    A frontier node starts `num_walks` walks. A walk takes up to `walk_length` steps, each from a node v to one of v's
    in-neighbors, all edges of the list equally likely; with metapaths, a step follows all relations of a metapath in
    turn. The node where a step ends counts as visited, the start too if a walk comes back. After every step but the
    last the walk ends with probability `restart`; it ends, too, where a list is empty. The `fanout` most visited nodes
    become neighbors, most visits first, equal visits by lower original id; edges weigh their visits.

    Parameters
    ----------
    graph, fanouts, frontier, seed
        As for `NeighborSampler`, with metapaths in the place of relations: `fanouts` are neighbors per node, and -1
        takes every visited node.
    num_walks
        Walks per frontier node, at least 1.
    walk_length
        Steps of a walk at most, at least 1; `num_walks` * `walk_length` up to 2^24.
    restart
        Probability that a walk ends after a step, 0 to 1.
    metapaths
        Lists of relations in the order walked, so against the edges: ``[("author", "writes", "paper"), ("paper",
        "written_by", "author")]`` walks from a paper to one of its authors, and on to one of that author's papers.
        Each must end at the node type it starts from, unless `walk_length` is 1. ``None``: one metapath for every
        relation within a node type.

    Notes
    -----
    Edges lie in `edge_relations`, one per metapath: (type it ends at, names joined by ``/``, type it starts from).
    Adjacency counts add one for every list that a walk reads. The edges have no places in ``indices``, so
    ``positions=True`` is refused.

    DGL's ``RandomWalkNeighborSampler`` walks along the edges, this one against them, in the direction messages come
    from: give DGL the reversed graph. Else the definition is the same (``num_random_walks`` is `num_walks`,
    ``num_traversals`` is `walk_length`, ``termination_prob`` is `restart`); DGL sets equal visits by higher id.
    """

    def __init__(
        self,
        graph: SampledGraph,
        fanouts: Sequence[Fanout],
        *,
        num_walks: int = 200,
        walk_length: int = 2,
        restart: float = 0.5,
        metapaths: Sequence[Sequence[Any]] | None = None,
        frontier: FrontierRule = "all",
        seed: int = 0,
    ) -> None:
        relations: list[Relation] = [(r[0], r[1], r[2]) for r in graph.relations]
        self.num_walks = _count(num_walks, "num_walks")
        self.walk_length = _count(walk_length, "walk_length")
        if self.num_walks * self.walk_length > (most := native.MOST_VISITS):
            raise InputError(f"num_walks * walk_length: expected at most {most}, found {num_walks}*{walk_length}")
        self.restart = float(restart) if isinstance(restart, (int, float, np.number)) else math.nan
        if not 0.0 <= self.restart <= 1.0:
            raise InputError(f"restart: expected a probability, 0 to 1, found {restart!r}")
        self.metapaths = _resolve_metapaths(relations, metapaths, self.walk_length)
        groups = [(path[-1][0], "/".join(name for _, name, _ in path), path[0][2]) for path in self.metapaths]
        if twice := [":".join(group) for i, group in enumerate(groups) if group in groups[:i]]:
            raise InputError(f"metapaths: {twice[0]} is given twice")
        place = {r: i for i, r in enumerate(relations)}
        super().__init__(
            graph,
            fanouts,
            frontier=frontier,
            seed=seed,
            rule="pinsage",
            edge_relations=groups,
            walks=(self.num_walks, self.walk_length, self.restart, [[place[r] for r in p] for p in self.metapaths]),
        )

    def check_positions(self) -> None:
        """Refuse positions: edges of walks have none in ``indices``."""
        raise InputError("positions: an edge of a random walk joins the walk's ends: it has no position in `indices`")


def _count(value: int, what: str) -> int:
    return whole_number(value, 1, native.MOST_VISITS + 1, what, f" from 1 to {native.MOST_VISITS}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) > 0


def _resolve_metapaths(
    relations: Sequence[Relation], metapaths: Sequence[Sequence[Any]] | None, walk_length: int
) -> list[list[Relation]]:
    if metapaths is None:
        within = [[r] for r in relations if r[0] == r[2]]
        if not within:
            known = ", ".join(":".join(r) for r in relations)
            raise InputError(f"metapaths: no relation joins nodes of one type; give metapaths of these: {known}")
        return within
    if not _is_list(metapaths) or not all(_is_list(path) for path in metapaths):
        raise InputError(f"metapaths: expected a list of non-empty lists of relations, found {metapaths!r}")
    paths = []
    for number, given in enumerate(metapaths):
        what = f"metapath {number}"
        path = [match_relation(relations, key, what) for key in given]
        for first, then in itertools.pairwise(path):
            if first[0] != then[2]:
                raise InputError(
                    f"{what}: walks go against the edges; {':'.join(first)} leads to {first[0]!r}, but "
                    f"{':'.join(then)} starts from {then[2]!r}"
                )
        if walk_length > 1 and path[-1][0] != path[0][2]:
            raise InputError(
                f"{what}: starts from {path[0][2]!r} and ends at {path[-1][0]!r}; walks of {walk_length} steps need "
                "the same type at both ends; give such a path, or walk_length 1"
            )
        paths.append(path)
    return paths


def make_sampler(graph: SampledGraph, options: SamplingOptions) -> Sampler:
    """Make the sampler that `options` describe; `InputError` if it does not fit the graph."""
    name, fanouts = options.sampler, options.fanouts
    every: dict[str, Any] = {"frontier": options.frontier, "seed": options.seed}
    if name == "pinsage":
        walks = {name: getattr(options, name) for name in ("num_walks", "walk_length", "restart", "metapaths")}
        return RandomWalkSampler(graph, fanouts, **walks, **every)
    if name == "ladies":
        return LayerSampler(graph, fanouts, **every)
    if name == "full":
        for hop, numbers in enumerate(resolve_fanouts(graph.relations, fanouts)):
            if bad := [number for number in numbers if number not in (-1, 0)]:
                raise InputError(
                    f"fanouts of hop {hop}: sampler 'full' uses all neighbors: expected -1 (or 0 to skip a "
                    f"relation), found {bad[0]}; for two hops write -1,-1"
                )
    rule = cast(DrawRule, "uniform" if name == "full" else name)
    return NeighborSampler(graph, fanouts, rule=rule, subgraphs=options, **every)
