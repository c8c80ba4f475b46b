"""Layer-wise sampling against its definition: by hand and by exact enumeration; test_properties.py judges any batch."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous

from tiering.sampling import LayerSampler


def by_successive_draws(importance, n):
    """Probability of every set of n when one after the other is drawn in proportion to importance."""
    sets = Counter()
    for order in itertools.permutations(importance, n):
        p, left = 1.0, sum(importance.values())
        for u in order:
            p *= importance[u] / left
            left -= importance[u]
        sets[frozenset(order)] += p
    return sets


# Columns 0: 2, 3, 4 and 4 again; 1: 4, 5. Importance 2: 1/16, 3: 1/16, 4: 2/16 + 1/4, 5: 1/4.
FORK = homogeneous(6, np.array([[2, 3, 4, 4, 4, 5], [0, 0, 0, 0, 1, 1]]))
IMPORTANCE = {2: 1 / 16, 3: 1 / 16, 4: 2 / 16 + 1 / 4, 5: 1 / 4}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_sets_come_up_as_often_as_defined(n):
    sampler, rounds = LayerSampler(FORK, [n], seed=1), 6000
    found = Counter(frozenset(sampler.sample([0, 1], batch=b).nodes["node"][2:].tolist()) for b in range(rounds))
    expected = by_successive_draws(IMPORTANCE, n)
    assert set(found) <= set(expected)
    assert stats.chisquare([found[s] for s in expected], [p * rounds for p in expected.values()]).pvalue > 1e-4


def bipartite():
    """Papers 0..1, authors 0..3: a0, a1 and a2 write p0, a2 and a3 write p1; p1 cites p0."""
    writes = np.array([[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]])
    return ToyGraph(
        {"paper": 2, "author": 4},
        {("author", "writes", "paper"): writes, ("paper", "cites", "paper"): np.array([[1], [0]])},
    )


def test_relations_draw_by_themselves():
    sampler = LayerSampler(bipartite(), [{"writes": 1, "cites": 1}, {"writes": 0, "cites": -1}])
    found = Counter()
    for b in range(3000):
        batch = sampler.sample({"paper": [0]}, batch=b)
        assert batch.nodes["paper"].tolist() == [0, 1] and batch.nodes["author"].size == 1
        assert [len(hop["author", "writes", "paper"]) for hop in batch.hops] == [1, 0]
        found[int(batch.nodes["author"][0])] += 1
    assert stats.chisquare([found[a] for a in range(3)]).pvalue > 1e-4
    assert found[3] == 0
    both = Counter(int(sampler.sample({"paper": [0, 1]}, batch=b).nodes["author"][0]) for b in range(3000))
    expected = np.array([1 / 9, 1 / 9, 1 / 9 + 1 / 4, 1 / 4])  # summed over both papers' lists
    assert stats.chisquare([both[a] for a in range(4)], 3000 * expected / expected.sum()).pvalue > 1e-4


def test_golden_batch():
    """Fixed bytes: a change here changes every user's batches and belongs into the changelog."""
    places = np.arange(160)
    graph = homogeneous(20, np.stack([(places * 7 + places**2) % 20, places // 8]))
    batch = LayerSampler(graph, [4, 3], seed=42).sample([7, 3], epoch=1, batch=2, positions=True)
    edges = batch.hops[0][HOMOGENEOUS]
    assert batch.nodes["node"].tolist() == [7, 3, 8, 10, 0, 18, 14]
    assert edges.positions is not None and edges.weights is not None
    assert edges.positions.tolist() == [56, 57, 58, 60, 61, 62, 63, 25, 26, 27, 28, 30, 31]
    words = edges.weights.view(np.uint32).tolist()
    a, b, c, d = 0x3E17B426, 0x3DE38E39, 0x3E430C31, 0x3E124925
    assert words == [a, a, a, a, a, b, a, c, d, d, c, c, d]
