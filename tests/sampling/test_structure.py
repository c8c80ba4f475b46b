"""Sampled batches against a slow, obvious judge: every edge exists, counts, frontier rules, order."""

from __future__ import annotations

import numpy as np
import pytest
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous, judge, random_graph

from tiering.sampling import NeighborSampler


@pytest.mark.parametrize("fanout", [1, 5, 47, 48, 49, 50, 200, 999, 1000, 1001, -1])
def test_hub_of_a_thousand_neighbours(fanout):
    graph = homogeneous(1001, np.stack([np.arange(1, 1001), np.zeros(1000, np.int64)]))
    batch = NeighborSampler(graph, [fanout]).sample([0], positions=True)
    judge(graph, batch, {"node": [0]}, [[fanout]], "all")


@pytest.mark.slow
def test_long_frontiers_cross_blocks_and_tables_grow():
    graph = random_graph(30_000, 200_000)
    seeds = np.arange(0, 30_000, 37)
    sampler = NeighborSampler(graph, [7, 60])
    for _ in range(2):  # the second time with memory of the first
        judge(graph, sampler.sample(seeds, positions=True), {"node": seeds}, [[7], [60]], "all")
    judge(graph, sampler.sample([5], positions=True), {"node": [5]}, [[7], [60]], "all")


def test_by_hand():
    """0 <- 1 <- 2 <- 3 and a loop at 0: each hop goes one step against the edges."""
    graph = homogeneous(5, np.array([[1, 2, 3, 0], [0, 1, 2, 0]]))
    batch = NeighborSampler(graph, [-1, -1]).sample([0])
    assert batch.nodes["node"].tolist() == [0, 1, 2]
    assert [n["node"] for n in batch.num_nodes] == [1, 2, 3]
    first, second = (hop[HOMOGENEOUS] for hop in batch.hops)
    assert (first.src.tolist(), first.dst.tolist()) == ([1, 0], [0, 0])
    assert (second.src.tolist(), second.dst.tolist()) == ([1, 0, 2], [0, 0, 1])
    assert first.positions is None and batch.num_edges == 5
    only_new = NeighborSampler(graph, [-1, -1], frontier="new").sample([0])
    assert only_new.hops[1][HOMOGENEOUS].dst.tolist() == [1]


def test_heterogeneous_by_hand():
    """Hop 1 finds author 2 through `writes`; hop 2 finds paper 1 from it, and never paper 0's own again."""
    writes, written = ("author", "writes", "paper"), ("paper", "written_by", "author")
    graph = ToyGraph({"paper": 2, "author": 3}, {writes: np.array([[2], [0]]), written: np.array([[1], [2]])})
    batch = NeighborSampler(graph, [4, 4], frontier="new").sample({"paper": [0]})
    assert {t: n.tolist() for t, n in batch.nodes.items()} == {"paper": [0, 1], "author": [2]}
    assert batch.num_nodes == [{"paper": 1, "author": 0}, {"paper": 1, "author": 1}, {"paper": 2, "author": 1}]
    assert [len(batch.hops[1][r]) for r in (writes, written)] == [0, 1]
    assert {t: s.tolist() for t, s in batch.seeds.items()} == {"paper": [0], "author": []}
