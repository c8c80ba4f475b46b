"""Uniform draws and epoch orders follow their definition: chi-square against uniform."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats
from toy_graphs import HOMOGENEOUS, homogeneous

from tiering.sampling import NeighborSampler, epoch_order


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
