"""Batches in time, disjoint batches and subgraph types, against a slow judge and worked examples."""

from __future__ import annotations

import numpy as np
import pytest
from temporal_oracle import Rules, TimedGraph, induced, judge

from tiering.sampling import NeighborSampler, Subgraphs

RELATIONS = [("a", "x", "b"), ("b", "y", "a"), ("a", "z", "a")]


def random_case(k):
    """A graph of two types and three relations, and how it is asked: ties, duplicates, empty lists, all newer."""
    rng = np.random.default_rng(k)
    nodes = {t: int(rng.integers(1, 7)) for t in "ab"}
    edges = {}
    for src, name, dst in RELATIONS:
        count = int(rng.integers(0, 18))
        edges[src, name, dst] = np.stack([rng.integers(0, nodes[t], count) for t in (src, dst)])
    scale = np.int64 if rng.integers(0, 2) else lambda values: np.asarray(values) / 2

    def times(count):
        return scale(rng.integers(0, 6, count) + (100 if rng.integers(0, 12) == 0 else 0))

    kind = ["edges", "nodes", "none"][int(rng.integers(0, 3))]
    some = {r: times(edges[r].shape[1]) for r in RELATIONS[: int(rng.integers(1, 4))]}
    own = {t: times(nodes[t]) for t in "ab"[: int(rng.integers(1, 3))]}
    graph = TimedGraph(
        nodes, edges, {"edges": some, "nodes": own, "none": {}}[kind], "nodes" if kind == "nodes" else "edges"
    )
    seeds = {"a": rng.integers(0, nodes["a"], 3), "b": rng.integers(0, nodes["b"], int(rng.integers(0, 3)))}
    timed = kind != "none"
    window = [None, 0, 2][int(rng.integers(0, 3))] if timed else None
    clocks = {t: scale(rng.integers(-1, 7, len(v))) for t, v in seeds.items()} if timed else None
    fanouts = [{r: int(rng.choice([-1, 0, 1, 2, 3])) for r in RELATIONS} for _ in range(2)]
    rules = Rules(
        [[hop[r] for r in RELATIONS] for hop in fanouts], ["all", "new"][int(rng.integers(0, 2))],
        ["uniform", "replacement"][int(rng.integers(0, 2))], ["uniform", "last"][int(rng.integers(0, 2))], window,
        clocks=[] if clocks is None else np.concatenate([clocks[t] for t in "ab"]).tolist(),
    )  # fmt: skip
    how = {"disjoint": True, "time": "when" if timed else None, "time_window": window}
    how["temporal_strategy"] = rules.strategy
    return graph, seeds, clocks, rules, fanouts, how


def sampler_of(graph, rules, fanouts, how, **more):
    options = {"frontier": rules.frontier, "rule": rules.rule, "seed": 3, **more}
    return NeighborSampler(graph, fanouts, subgraphs=Subgraphs(**how), **options)


@pytest.mark.parametrize("part", range(4))
def test_random_batches_are_ones_that_chance_may_draw(part):
    for k in range(250 * part, 250 * (part + 1)):
        graph, seeds, clocks, rules, fanouts, how = random_case(k)
        batch = sampler_of(graph, rules, fanouts, how).sample(seeds, batch=k, positions=True, seed_time=clocks)
        judge(graph, batch, seeds, rules)
        all_edges = sampler_of(graph, rules, fanouts, {**how, "subgraph_type": "induced"})
        got = all_edges.sample(seeds, batch=k, positions=True, seed_time=clocks)
        assert {t: v.tolist() for t, v in got.nodes.items()} == {t: v.tolist() for t, v in batch.nodes.items()}
        for relation, expected in induced(graph, batch, rules).items():
            edges = got.hops[0][relation]
            assert list(zip(edges.src.tolist(), edges.dst.tolist(), edges.positions.tolist(), strict=True)) == expected
