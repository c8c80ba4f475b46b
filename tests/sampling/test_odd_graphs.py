"""Graphs and seeds that are easy to get wrong, for every sampler: isolated nodes, types out of reach, loops."""

from __future__ import annotations

import numpy as np
import pytest
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous

from tiering.errors import InputError
from tiering.sampling import SamplingOptions, make_sampler

NAMES = ["uniform", "replacement", "weighted", "full", "pinsage", "ladies"]
every = pytest.mark.parametrize("name", NAMES)
CITES, BY = ("paper", "cites", "paper"), ("paper", "by", "author")


def make(graph, name, hops=2, **options):
    fanouts = [-1 if name == "full" else 3] * hops
    return make_sampler(graph, SamplingOptions(fanouts, sampler=name, num_walks=20, **options))


def with_ones(graph):
    for relation in graph.relations:
        graph._weights[relation] = np.ones(graph.csc(relation)[1].size)
    return graph


@every
@pytest.mark.parametrize("frontier", ["all", "new"])
def test_isolated_training_nodes(name, frontier):
    """Nodes 2 and 3 have no list; 3 is in nobody's. They are sampled, read once per batch, and bring no edges."""
    sampler = make(with_ones(homogeneous(4, np.array([[1, 2], [0, 1]]))), name, frontier=frontier)
    batch = sampler.sample([3, 2])
    assert batch.nodes["node"].tolist() == [3, 2] and batch.num_edges == 0
    assert batch.num_nodes == [{"node": 2}] * 3 and len(batch.hops) == 2
    assert all(edges.src.dtype == np.int32 and len(edges) == 0 for hop in batch.hops for edges in hop.values())
    plan = sampler.batches([3, 2, 0], 1, 0, shuffle=False)
    counts = sampler.count_accesses(plan)
    assert counts.features["node"].tolist() == [1, 1, 2, 1]
    assert counts.adjacency[HOMOGENEOUS][3] > 0, "an empty list is looked at, too"
    both = sampler.sample([3, 0])
    assert both.nodes["node"].tolist() == [3, 0, 1, 2]


@every
def test_a_type_that_nothing_reaches(name):
    """Authors have no out-edges: they are known only as seeds. Topics have no edges at all."""
    nodes = {"paper": 4, "author": 3, "topic": 2}
    graph = with_ones(ToyGraph(nodes, {CITES: np.array([[1, 2, 3], [0, 1, 2]]), BY: np.array([[3, 1], [0, 2]])}))
    sampler = make(graph, name)
    batch = sampler.sample({"paper": [0]})
    assert batch.nodes["author"].size == batch.nodes["topic"].size == 0
    assert batch.nodes["paper"].tolist()[:2] == [0, 1]
    seeded = sampler.sample({"topic": [1], "author": [2, 0, 2]})
    assert seeded.nodes["topic"].tolist() == [1] and seeded.nodes["author"].tolist() == [2, 0]
    walks = name == "pinsage"  # its default metapaths start from papers only
    assert set(seeded.nodes["paper"].tolist()) == (set() if walks else {1, 2, 3})
    counts = sampler.count_accesses(sampler.batches({"paper": np.arange(4)}, 2, 0))
    assert not counts.features["author"].any() and not counts.features["topic"].any()
    assert not counts.adjacency[BY].any() and counts.adjacency[CITES].any()


@every
def test_damaged_lists_are_refused_and_leave_the_sampler_usable(name):
    """Node 3 lists a node that is not there; nobody lists node 3, so all other batches stay what they are."""
    edges = np.array([[1, 2, 4, 0, 2, 0, 1, 2], [0, 0, 0, 1, 1, 3, 3, 3]])
    whole, damaged = with_ones(homogeneous(5, edges)), with_ones(homogeneous(5, edges))
    damaged._csc[HOMOGENEOUS][1][5:] = [77, -1, 5]
    sampler = make(damaged, name)
    words = r"graph: relation node:to:node: indices\[[567]\]: source id (77|-1|5) is outside 0\.\.4; the graph is"
    for b in range(5):
        with pytest.raises(InputError, match=words):
            sampler.sample([0, 3], batch=b)
        with pytest.raises(InputError, match=words):
            sampler.count_accesses(sampler.batches(np.arange(5), 2, b), threads=3)
        ours, theirs = sampler.sample([1, 4], batch=b), make(whole, name).sample([1, 4], batch=b)
        assert ours.nodes["node"].tolist() == theirs.nodes["node"].tolist()
        assert [h[HOMOGENEOUS].src.tolist() for h in ours.hops] == [h[HOMOGENEOUS].src.tolist() for h in theirs.hops]


@every
def test_a_source_type_without_nodes(name):
    edges = {("a", "to", "a"): np.array([[1], [0]]), ("none", "to", "a"): np.zeros((2, 0), np.int64)}
    graph = with_ones(ToyGraph({"a": 3, "none": 0}, edges))
    batch = make(graph, name).sample({"a": [0, 2]})
    assert sorted(batch.nodes["a"].tolist()) == [0, 1, 2] and batch.nodes["none"].size == 0
