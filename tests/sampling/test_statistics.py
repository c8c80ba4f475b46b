"""Draws follow their definition: chi-square against uniform, and DGL's sampler as an independent judge."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from scipy import stats
from toy_graphs import HOMOGENEOUS, homogeneous, random_graph

from tiering.sampling import AccessCounts, NeighborSampler, epoch_order


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (6, 3), (7, 6)])
def test_every_subset_is_equally_likely(degree: int, fanout: int) -> None:
    """Column 0 has `degree` neighbours; every subset of `fanout` of them must come up equally often."""
    graph = homogeneous(degree + 1, np.stack([np.arange(1, degree + 1), np.zeros(degree, np.int64)]))
    sampler = NeighborSampler(graph, [fanout], seed=1)
    subsets = dict.fromkeys(itertools.combinations(range(degree), fanout), 0)
    for b in range(400 * len(subsets)):
        batch = sampler.sample([0], batch=b, positions=True)
        subsets[tuple(sorted(batch.hops[0][HOMOGENEOUS].positions.tolist()))] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-4


@pytest.mark.parametrize("fanout", [10, 100])
def test_places_are_equally_likely_in_long_lists(fanout: int) -> None:
    """Many nodes with the same 300 neighbours in one batch; 100 goes through the hashed path."""
    degree, copies = 300, 500
    edges = np.stack([np.tile(np.arange(degree), copies), np.repeat(np.arange(degree, degree + copies), degree)])
    graph = homogeneous(degree + copies, edges)
    sampler = NeighborSampler(graph, [fanout])
    counts = np.zeros(degree, np.int64)
    for b in range(20):
        batch = sampler.sample(np.arange(degree, degree + copies), batch=b, positions=True)
        counts += np.bincount(batch.hops[0][HOMOGENEOUS].positions % degree, minlength=degree)
    # Without replacement the counts vary less than a multinomial's: scale by the finite population factor.
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum() * (degree - 1) / (degree - fanout)
    assert 1e-4 < stats.chi2.sf(statistic, degree - 1) < 1 - 1e-4


def test_epoch_orders_are_uniform() -> None:
    orders = [tuple(epoch_order(4, 0, epoch)) for epoch in range(4800)]
    counts = [orders.count(p) for p in itertools.permutations(range(4))]
    assert stats.chisquare(counts).pvalue > 1e-4


def dgl_counts(graph, train, fanouts, batch_size, epochs):  # type: ignore[no-untyped-def]
    """Feature accesses by DGL's NeighborSampler; note that it lists fanouts from the last hop."""
    dgl, torch = importlib.import_module("dgl"), importlib.import_module("torch")
    indptr, indices = graph.csc(HOMOGENEOUS)
    peer = dgl.graph(("csc", (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), [])))
    sampler = dgl.dataloading.NeighborSampler(fanouts[::-1])
    counts = np.zeros(len(indptr) - 1, np.int64)
    rng = np.random.default_rng(1)
    for _ in range(epochs):
        order = rng.permutation(train)
        for first in range(0, len(order), batch_size):
            nodes, _, _ = sampler.sample_blocks(peer, torch.from_numpy(order[first : first + batch_size]))
            counts[nodes.numpy()] += 1
    return counts


@pytest.mark.filterwarnings("ignore")
def test_access_counts_agree_with_dgl() -> None:
    pytest.importorskip("dgl")
    graph = random_graph(3000, 40_000)
    train, fanouts, epochs = np.arange(0, 3000, 10), [4, 3, 2], 60
    theirs = dgl_counts(graph, train, fanouts, 50, epochs)
    sampler = NeighborSampler(graph, fanouts)
    ours = AccessCounts.zeros(graph)
    for epoch in range(epochs):
        sampler.count_accesses(sampler.batches(train, 50, epoch), ours, threads=2)
    mine = ours.features["node"]
    assert abs(int(mine.sum()) - int(theirs.sum())) < 0.003 * theirs.sum()
    # A node's count is a sum of epochs * 6 coin tosses: the difference of two such sums, in standard deviations.
    trials = epochs * len(train) // 50
    p = (mine + theirs) / (2 * trials)
    deviation = np.sqrt(2 * trials * p * (1 - p))
    tossed = deviation > 2
    z = (mine - theirs)[tossed] / deviation[tossed]
    assert tossed.sum() > 500
    assert abs(z.mean()) < 0.15 and z.std() < 1.15 and np.abs(z).max() < 6
