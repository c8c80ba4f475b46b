"""Random walks against their definition by exact enumeration; test_properties.py repeats whole batches in Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from chances import LEAST, p_value
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous

from tiering.errors import InputError
from tiering.sampling import RandomWalkSampler

# Column: its in-neighbors. Asymmetric, with a parallel edge (1 from 2 twice), a loop and a dead end (4).
ASYMMETRIC = homogeneous(6, np.array([[1, 2, 2, 2, 3, 0, 3, 4, 5], [0, 0, 1, 1, 1, 2, 3, 3, 0]]))


def visits_of(graph, start, length, restart):
    """Probability of every list of visited nodes of one walk, by enumeration."""
    indptr, indices = graph.csc(HOMOGENEOUS)
    lists = Counter()

    def walk(node, visited, probability):
        neighbors = indices[indptr[node] : indptr[node + 1]].tolist()
        if len(visited) == length or not neighbors:
            lists[visited] += probability
            return
        for u in neighbors:
            ends = restart if len(visited) + 1 < length else 0
            if ends:
                lists[(*visited, u)] += probability * ends / len(neighbors)
            walk(u, (*visited, u), probability * (1 - ends) / len(neighbors))

    walk(start, (), 1.0)
    return {visited: p for visited, p in lists.items() if p}


def drawn(sampler, start, batches):
    """How often each list of (neighbor, weight) comes up."""
    found = Counter()
    for b in range(batches):
        batch = sampler.sample([start], batch=b)
        edges = batch.hops[0][sampler.edge_relations[0]]
        assert edges.weights is not None and edges.weights.dtype == np.float32 and not edges.dst.any()
        ids = batch.nodes["node"][edges.src]
        found[tuple(zip(ids.tolist(), edges.weights.astype(int).tolist(), strict=True))] += 1
    return found


def top(visits, k):
    return tuple(sorted(visits.items(), key=lambda item: (-item[1], item[0]))[:k])


@pytest.mark.parametrize("restart", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 3), (1, 2), (3, 4)])
def test_one_walk(start, length, restart):
    expected = Counter()
    for visited, p in visits_of(ASYMMETRIC, start, length, restart).items():
        expected[top(Counter(visited), 10)] += p
    sampler = RandomWalkSampler(ASYMMETRIC, [10], num_walks=1, walk_length=length, restart=restart, seed=2)
    assert p_value(drawn(sampler, start, 4000), expected) > LEAST


PAPERS = (("author", "writes", "paper"), ("paper", "by", "author"))


def papers(keys=None):
    """Papers 0..3 by authors 0..2: 0 by a0; 1 by a0, a1; 2 by a1; 3 by a2, who is listed nowhere else."""
    writes = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 2, 3]])
    relations = {PAPERS[0]: writes, PAPERS[1]: writes[::-1, :4], ("paper", "cites", "paper"): np.array([[3], [0]])}
    return ToyGraph({"paper": 4, "author": 3}, relations, keys)


def test_default_metapaths_and_one_way_ones():
    assert RandomWalkSampler(papers(), [3]).edge_relations == [("paper", "cites", "paper")]
    sampler = RandomWalkSampler(papers(), [{"writes": 2, "cites": 0}], walk_length=1, metapaths=[["writes"], ["cites"]])
    batch = sampler.sample({"paper": [1]})
    assert sorted(batch.nodes["author"].tolist()) == [0, 1] and batch.nodes["paper"].tolist() == [1]


def test_other_errors():
    with pytest.raises(InputError, match="no relation joins nodes of one type"):
        RandomWalkSampler(ToyGraph({"a": 1, "b": 1}, {("a", "to", "b"): np.zeros((2, 1), np.int64)}), [1])
    with pytest.raises(InputError, match="positions: an edge of a random walk"):
        RandomWalkSampler(ASYMMETRIC, [1]).sample([0], positions=True)
