"""Sampled batches against a slow, obvious judge: every edge exists, counts, frontier rules, order."""

from __future__ import annotations

import numpy as np
import pytest
from toy_graphs import homogeneous, judge, random_graph

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
