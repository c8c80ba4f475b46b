"""`count_accesses` and `sample_nodes` against counting in Python from `sample`, for every sampler."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import plain_walks
import pytest
from toy_graphs import HOMOGENEOUS, ToyGraph, random_graph, relabeled, weighted_graph, widened

from tiering.errors import InputError
from tiering.sampling import AccessCounts, EpochPlan, NeighborSampler, SamplingOptions, make_sampler

NODES = {"paper": 60, "author": 25, "venue": 4}
CITES, WRITES, BY = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author")
PRINTS = ("paper", "prints", "venue")  # nothing comes from a venue: only seeds of that type read these lists
RELATIONS = [CITES, WRITES, BY, PRINTS]
NAMES = ["uniform", "replacement", "weighted", "full", "pinsage", "ladies"]


@functools.cache
def graph(kind):
    if kind == "homogeneous":
        return weighted_graph(120, 700, seed=3)
    rng = np.random.default_rng(4)
    edges, weights = {}, {}
    for relation, size in zip(RELATIONS, (300, 150, 120, 10), strict=True):
        src, dst = (np.floor(NODES[t] * rng.random(size) ** 1.5) for t in (relation[0], relation[2]))
        edges[relation], weights[relation] = np.stack([src, dst]), rng.random(size) * (rng.random(size) > 0.2)
    plain = ToyGraph(NODES, edges, weights=weights)
    return widened(relabeled(plain, {t: rng.permutation(n).astype(np.int32) for t, n in NODES.items()}))


def made(kind, name, frontier):
    """Three hops; one skips some relations. Walks: two metapaths of different lengths."""
    paths = [[CITES], [WRITES, BY]] if kind == "heterogeneous" else None
    options = {"sampler": name, "frontier": frontier, "seed": 5}
    if kind == "homogeneous":
        fanouts = [-1, -1] if name == "full" else [3, 2, 4]
    elif name == "pinsage":
        groups = [("paper", "cites", "paper"), ("paper", "writes/by", "paper")]
        fanouts = [dict(zip(groups, hop, strict=True)) for hop in ((3, 2), (0, 2), (2, -1))]
    else:
        numbers = [(-1, 0, -1, -1), (0, -1, -1, 0)] if name == "full" else [(3, 2, 4, 1), (0, 2, -1, 3), (2, 0, 1, 0)]
        fanouts = [dict(zip(RELATIONS, hop, strict=True)) for hop in numbers]
    return make_sampler(
        graph(kind), SamplingOptions(fanouts, num_walks=6, walk_length=3, restart=0.3, metapaths=paths, **options)
    )


def plan_of(sampler):
    """Seven batches; some seeds come twice, and a hetero graph has seeds of all types, of one in few batches."""
    if "node" in sampler.node_types:
        return sampler.batches(np.r_[0:30, 5:9, 117:120], 6, 3)
    return sampler.batches({"paper": np.r_[0:20, 3:6], "author": [7, 7, 1], "venue": [2]}, 4, 3)


def count(sampler, plan, first, last):
    """Counts as the docs of `AccessCounts` define them, from whole batches."""
    counts = AccessCounts.zeros(sampler.graph)
    for b in range(first, last):
        batch = sampler.sample(plan[b], epoch=plan.epoch, batch=b)
        for t, nodes in batch.nodes.items():
            for v in nodes.tolist():
                counts.features[t][v] += 1
        if hasattr(sampler, "metapaths"):
            plain_walks.sample(sampler.graph, sampler, plan[b], plan.epoch, b, counts.adjacency)
            continue
        for hop, fanouts in enumerate(sampler.fanouts):
            for relation, fanout in zip(sampler.relations, fanouts, strict=True):
                if fanout != 0:
                    for v in frontier(sampler, batch, hop, relation[2]):
                        counts.adjacency[relation][v] += 1
    return counts


def frontier(sampler, batch, hop, node_type):
    sizes = [0, *(n[node_type] for n in batch.num_nodes)]
    return batch.nodes[node_type][0 if sampler.frontier == "all" else sizes[hop] : sizes[hop + 1]].tolist()


def same(a, b):
    return all(np.array_equal(a.features[t], b.features[t]) for t in b.features) and all(
        np.array_equal(a.adjacency[r], b.adjacency[r]) for r in b.adjacency
    )


every = pytest.mark.parametrize("name", NAMES)
both_rules = pytest.mark.parametrize("frontier_rule", ["all", "new"])
both_kinds = pytest.mark.parametrize("kind", ["homogeneous", "heterogeneous"])


@every
@both_rules
@both_kinds
def test_accesses(name, frontier_rule, kind):
    sampler = made(kind, name, frontier_rule)
    plan = plan_of(sampler)
    assert len(plan) == 7
    expected = count(sampler, plan, 0, 7)
    assert expected.total > 80 and sum(int(c.sum()) for c in expected.adjacency.values()) > 50
    for threads in (1, 2, 5, 64, None):
        assert same(sampler.count_accesses(plan, threads=threads), expected)
    part = sampler.count_accesses(plan, first=2, last=5, threads=2)
    assert same(part, count(sampler, plan, 2, 5))
    sampler.count_accesses(plan, part, last=2, threads=1)
    assert sampler.count_accesses(plan, part, first=5) is part
    assert same(part, expected)
    assert sampler.count_accesses(plan, first=3, last=3).total == 0


@every
@both_rules
@both_kinds
def test_nodes(name, frontier_rule, kind):
    """The nodes are those of `sample`; many threads add to the same counters what `count_accesses` counts."""
    sampler = made(kind, name, frontier_rule)
    plan = plan_of(sampler)
    counts, keys = AccessCounts.zeros(sampler.graph), {"epoch": plan.epoch}
    with ThreadPoolExecutor(5) as pool:
        batches = list(pool.map(lambda b: sampler.sample_nodes(plan[b], batch=b, counts=counts, **keys), range(7)))
    assert same(counts, sampler.count_accesses(plan))
    for b, nodes in enumerate(batches):
        expected = sampler.sample(plan[b], batch=b, **keys).nodes
        alone = sampler.sample_nodes(plan[b], batch=b, **keys)
        assert {t: ids.tolist() for t, ids in nodes.items()} == {t: ids.tolist() for t, ids in expected.items()}
        assert all(np.array_equal(alone[t], ids) for t, ids in expected.items())


@pytest.fixture
def sampler():
    return NeighborSampler(random_graph(20, 100), [2, 2])


@pytest.mark.parametrize(("counter", "words"), [
    (np.zeros(20, np.int32), "int64 array of shape .20,., found int32"),
    (np.zeros(20), "found float64"), (np.zeros(19, np.int64), r"found int64 of shape \(19,\)"),
    (np.zeros((20, 2), np.int64)[:, 0], r"strides \(16,\)"), (np.zeros(40, np.int64)[::-2], r"strides \(-16,\)"),
    (np.broadcast_to(np.int64(0), (20,)), "contiguous"),
    (np.frombuffer(bytes(160), np.int64), "of shape .*, read-only"),
])  # fmt: skip
def test_counters_that_the_counts_would_miss(sampler, counter, words):
    """Each of these would be converted on the way, and the counts lost with the copy."""
    plan = sampler.batches(np.arange(20), 5, 0)
    good = np.zeros(20, np.int64)
    for counts, name in (
        (AccessCounts({"node": counter}, {HOMOGENEOUS: good}), "feature counts of type 'node': "),
        (AccessCounts({"node": good}, {HOMOGENEOUS: counter}), "adjacency counts of node:to:node: "),
    ):
        with pytest.raises(InputError, match=name + ".*" + words):
            sampler.count_accesses(plan, counts)
        with pytest.raises(InputError, match=words):
            sampler.sample_nodes([1], counts=counts)
    assert not good.any()
    with pytest.raises(InputError, match=r"feature counts of type 'node': expected .* found none"):
        sampler.count_accesses(plan, AccessCounts({}, {}))


@pytest.mark.parametrize(("first", "last", "words"), [
    (-1, 2, "batches -1 to 2 of 4"), (0, 5, "batches 0 to 5 of 4"), (3, 1, "1 of 4|expected 3 or more"), (5, 5, "of 4"),
])  # fmt: skip
def test_batches_that_the_plan_lacks(sampler, first, last, words):
    plan = sampler.batches(np.arange(20), 5, 0)
    with pytest.raises(InputError, match=words) as refused:
        sampler.count_accesses(plan, first=first, last=last)
    assert "tiering check" not in str(refused.value)


def test_plans_of_another_graph_and_threads(sampler):
    strange = EpochPlan(0, {"paper": np.arange(3)}, {"paper": np.arange(3)}, {"paper": np.array([0, 3])})
    with pytest.raises(InputError, match="plan: no node type 'paper'; types: node"):
        sampler.count_accesses(strange)
    beyond = EpochPlan(0, {"node": np.array([3, 99])}, {"node": np.arange(2)}, {"node": np.array([0, 2])})
    with pytest.raises(InputError, match=r"seed 1 of type 'node': id 99 is outside 0\.\.19"):
        sampler.count_accesses(beyond)
    for threads in (0, -2, "many"):
        with pytest.raises(InputError, match=r"^threads: expected"):
            sampler.count_accesses(sampler.batches(np.arange(20), 5, 0), threads=threads)
