"""The posterior against a slow, plain computation, and what must hold of it whatever the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.scores.hybrid import FIRST_BIN, GROWTH, UNSEEN, shrink

Array = np.ndarray


def shrunk(prior, counts, threads=1):
    """`shrink` of epoch counts, shape (epochs, nodes)."""
    result = prior.astype(np.float64)
    shrink(result, counts.sum(0), (counts**2).sum(0), len(counts), threads)
    return result


def slowly(prior, counts):
    """Node by node, from the counts of each epoch."""
    epochs, result = len(counts), np.empty(prior.size)
    order = sorted(range(prior.size), key=lambda node: (-prior[node], node))
    size = float(FIRST_BIN)
    while order:
        nodes, order = order[: int(size)], order[int(size) :]
        size *= GROWTH
        means = [float(np.mean(counts[:, node])) for node in nodes]
        noise = float(np.mean([np.var(counts[:, node], ddof=1) for node in nodes])) / epochs
        signal = max(float(np.var(means)) - noise, 0)
        share = signal / (signal + noise) if signal + noise else 1.0
        level, expected = float(np.mean(means)), float(np.mean(prior[nodes]))
        for node, mean in zip(nodes, means, strict=True):
            ranked = prior[node] * level / expected if expected else level
            result[node] = share * mean + (1 - share) * ranked if level else prior[node] * UNSEEN
    return result


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 2, 199, 200, 201, 900]),
    epochs=st.integers(2, 4),
    ties=st.booleans(),
)
def test_equals_the_slow_computation(seed, size, epochs, ties):
    random = np.random.default_rng(seed)
    rate = random.pareto(1.2, size)
    prior = np.round(rate * random.uniform(0.3, 3, size), 1 if ties else 12)
    counts = random.poisson(rate, (epochs, size)) * (random.random(size) < 0.8)
    np.testing.assert_allclose(shrunk(prior, counts), slowly(prior, counts), rtol=1e-9, atol=1e-12)


def test_one_bin_by_hand():
    """Means 2 and 0, each epoch alike: no noise, counts as they are. Noise without signal: the prior as it is."""
    prior = np.array([3.0, 1.0])
    np.testing.assert_allclose(shrunk(prior, np.array([[2, 0], [2, 0]])), [2, 0])
    # Means 1 and 1; variance between epochs 2 each: share 0, the level 1 in the ratio of the prior.
    np.testing.assert_allclose(shrunk(prior, np.array([[2, 0], [0, 2]])), [1.5, 0.5])
    # Means 3 and 1 (variance 1), variance between epochs 2 and 0, so noise 1/2, signal 1/2: half of each.
    np.testing.assert_allclose(shrunk(prior, np.array([[4, 1], [2, 1]])), [3, 1])
    np.testing.assert_allclose(shrunk(np.ones(2), np.array([[4, 1], [2, 1]])), [2.5, 1.5])


def test_no_counts_no_prior_no_nodes():
    prior = np.array([0.0, 2, 1])
    np.testing.assert_array_equal(shrunk(prior, np.zeros((2, 3), np.int64)), prior * UNSEEN)
    np.testing.assert_allclose(shrunk(np.zeros(2), np.array([[3, 1], [1, 3]])), [2, 2])
    assert shrunk(np.empty(0), np.empty((2, 0), np.int64)).size == 0


@pytest.mark.parametrize("epochs", [2, 5])
def test_total_is_kept_and_threads_do_not_matter(epochs):
    """Within a bin the posterior sums to the counts per epoch: types stay on one scale, whatever the prior's."""
    random = np.random.default_rng(epochs)
    rate = random.pareto(1.2, 30_000)
    counts = random.poisson(rate, (epochs, rate.size))
    prior = rate * random.uniform(0.3, 3, rate.size)
    found = [shrunk(prior * scale, counts, threads) for scale, threads in ((1, 1), (1, 7), (1e6, 2))]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-12)
    np.testing.assert_allclose(found[0].sum(), counts.sum() / epochs, rtol=1e-9)
