"""Random walks against their definition, walked out by hand or by exact enumeration, and against DGL's."""

from __future__ import annotations

import importlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous, random_graph

from tiering.errors import InputError
from tiering.sampling import RandomWalkSampler

# Column: its in-neighbours. Asymmetric, with a parallel edge (1 from 2 twice), a loop and a dead end (4).
ASYMMETRIC = homogeneous(6, np.array([[1, 2, 2, 2, 3, 0, 3, 4, 5], [0, 0, 1, 1, 1, 2, 3, 3, 0]]))


def visits_of(graph, start, length, restart):
    """Probability of every list of visited nodes of one walk, by enumeration."""
    indptr, indices = graph.csc(HOMOGENEOUS)
    lists = Counter()

    def walk(node, visited, probability):
        neighbours = indices[indptr[node] : indptr[node + 1]].tolist()
        if len(visited) == length or not neighbours:
            lists[visited] += probability
            return
        for u in neighbours:
            ends = restart if len(visited) + 1 < length else Fraction(0)
            if ends:
                lists[(*visited, u)] += probability * ends / len(neighbours)
            walk(u, (*visited, u), probability * (1 - ends) / len(neighbours))

    walk(start, (), Fraction(1))
    return {visited: p for visited, p in lists.items() if p}


def drawn(sampler, start, batches):
    """How often each list of (neighbour, weight) comes up."""
    found = Counter()
    for b in range(batches):
        batch = sampler.sample([start], batch=b)
        edges = batch.hops[0][sampler.edge_relations[0]]
        assert edges.weights is not None and edges.weights.dtype == np.float32 and not edges.dst.any()
        ids = batch.nodes["node"][edges.src]
        found[tuple(zip(ids.tolist(), edges.weights.astype(int).tolist(), strict=True))] += 1
    return found


def check(found, expected, batches):
    assert set(found) <= set(expected) and sum(expected.values()) == 1
    keys = [k for k in expected if expected[k] * batches >= 5]
    rare = batches - sum(found[k] for k in keys)
    rare_expected = batches - sum(float(expected[k]) * batches for k in keys)
    observed = [found[k] for k in keys] + ([rare] if rare_expected > 1e-9 else [])
    wanted = [float(expected[k]) * batches for k in keys] + ([rare_expected] if rare_expected > 1e-9 else [])
    if len(wanted) > 1:
        assert stats.chisquare(observed, wanted).pvalue > 1e-4


def top(visits, k):
    return tuple(sorted(visits.items(), key=lambda item: (-item[1], item[0]))[:k])


@pytest.mark.parametrize("restart", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 3), (1, 2), (3, 4)])
def test_one_walk(start, length, restart):
    expected = Counter()
    for visited, p in visits_of(ASYMMETRIC, start, length, Fraction(restart)).items():
        expected[top(Counter(visited), 10)] += p
    sampler = RandomWalkSampler(ASYMMETRIC, [10], num_walks=1, walk_length=length, restart=restart, seed=2)
    check(drawn(sampler, start, 4000), expected, 4000)


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


def dgl_sampler(dgl, graph, k, walks, length, restart):
    """DGL walks along the edges: hand it the graph reversed, columns as rows."""
    torch = importlib.import_module("torch")
    indptr, indices = graph.csc(HOMOGENEOUS)
    peer = dgl.graph(("csr", (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), [])))
    return torch, dgl.sampling.RandomWalkNeighborSampler(peer, length, restart, walks, k)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("walks", "length", "restart", "k"), [(5, 3, 0.5, 2), (3, 2, 0.2, 1), (20, 4, 0.0, 50)])
def test_agrees_with_dgl(dgl, walks, length, restart, k):
    """Mean visits per edge over many draws: the difference in standard deviations of the mean."""
    graph, rounds = random_graph(60, 300, seed=1), 400
    torch, peer = dgl_sampler(dgl, graph, k, walks, length, restart)
    ours, theirs = np.zeros((2, rounds, 60, 60))  # visits[dst, src]
    sampler = RandomWalkSampler(graph, [k], num_walks=walks, walk_length=length, restart=restart)
    for b in range(rounds):
        found = peer(torch.arange(60))
        src, dst = (e.numpy() for e in found.edges())
        theirs[b, dst, src] = found.edata["weights"].numpy()
        batch = sampler.sample(np.arange(60), batch=b)
        edges = batch.hops[0][HOMOGENEOUS]
        ours[b, edges.dst, batch.nodes["node"][edges.src]] = edges.weights
    error = np.sqrt((ours.var(0) + theirs.var(0)) / rounds)
    if k == 50:  # nothing is cut off, so ties, which go the other way in DGL, do not matter
        tossed = error > 1e-9
        z = (ours.mean(0) - theirs.mean(0))[tossed] / error[tossed]
        assert tossed.sum() > 200 and abs(z.mean()) < 0.2 and z.std() < 1.15 and np.abs(z).max() < 5
    for kept in (lambda v: v.sum(2), lambda v: v.max(2)):
        a, b = kept(ours), kept(theirs)
        spread = np.sqrt((a.var(0) + b.var(0)) / rounds)
        assert np.all(np.abs(a.mean(0) - b.mean(0)) <= 4.5 * spread + 1e-9)


def test_other_errors():
    with pytest.raises(InputError, match="no relation joins nodes of one type"):
        RandomWalkSampler(ToyGraph({"a": 1, "b": 1}, {("a", "to", "b"): np.zeros((2, 1), np.int64)}), [1])
    with pytest.raises(InputError, match="positions: an edge of a random walk"):
        RandomWalkSampler(ASYMMETRIC, [1]).sample([0], positions=True)


def test_golden_batch():
    """Fixed bytes: a change here changes every user's batches and belongs into the changelog."""
    places = np.arange(160)
    graph = homogeneous(20, np.stack([(places * 7 + places**2) % 20, places // 8]))
    batch = RandomWalkSampler(graph, [2, 2], num_walks=10, seed=42).sample([7, 3], epoch=1, batch=2)
    edges = [hop[HOMOGENEOUS] for hop in batch.hops]
    assert batch.nodes["node"].tolist() == [7, 3, 8, 10, 18, 4]
    assert [e.weights.tolist() for e in edges] == [
        [6.0, 4.0, 7.0, 4.0],
        [3.0, 3.0, 6.0, 3.0, 5.0, 4.0, 7.0, 3.0, 6.0, 4.0, 7.0, 3.0],
    ]
