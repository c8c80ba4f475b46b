"""Which neighbors are drawn, against the chances that the definitions give: chi-square over many draws.

Hubs of a fan share one list, so that one batch gives hundreds of draws; batches, epochs and hops are mixed in, as
every part of the key must give draws of its own. All seeds are fixed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chances import LEAST, as_sets, drawn_places, fan, p_value, rows, successive
from scipy import stats
from toy_graphs import HOMOGENEOUS, homogeneous

from tiering.sampling import NeighborSampler, epoch_order

HUBS = 1000


def draws(rule, fanout, degree, weights=None, *, batches=12, seed=0):
    """Places drawn, shape (2 * batches, hubs, drawn)."""
    sampler = NeighborSampler(fan(degree, HUBS, weights), [fanout], rule=rule, seed=seed)
    return drawn_places(sampler, HUBS, batches, epochs=2)


def evenly(outcomes):
    every = list(outcomes)
    return dict.fromkeys(every, 1 / len(every))


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (5, 2), (6, 3), (7, 6), (9, 4)])
def test_uniform_draws_every_subset_equally(degree, fanout):
    found = draws("uniform", fanout, degree, seed=1)
    subsets = evenly(itertools.combinations(range(degree), fanout))
    assert p_value(rows(np.sort(found, 2)), subsets) > LEAST


@pytest.mark.parametrize("degree", [1, 2, 3, 7])
@pytest.mark.parametrize("fanout", [1, 3])
def test_replacement_draws_every_list_equally(degree, fanout):
    """All degree^fanout ordered outcomes: each draw is uniform, and no draw knows of another."""
    found = draws("replacement", fanout, degree, seed=2)
    assert p_value(rows(found), evenly(itertools.product(range(degree), repeat=fanout))) > LEAST


def test_replacement_draws_more_than_the_list_has():
    found = draws("replacement", 12, 5, seed=3, batches=5)
    assert found.shape[2] == 12
    for i, j in [(0, 1), (0, 11), (5, 6), (10, 11)]:
        assert p_value(rows(found[:, :, [i, j]]), evenly(itertools.product(range(5), repeat=2))) > LEAST


def pairs_across(found):
    """First places of draws that lie side by side in each part of the key."""
    first = found[:, :, 0]
    return {
        "hubs": np.stack([first[:, :-1:2], first[:, 1::2]], -1),
        "batches": np.stack([first[:-1:2], first[1::2]], -1),
        "epochs": np.stack([first[: len(first) // 2], first[len(first) // 2 :]], -1),
    }


@pytest.mark.parametrize("rule", ["uniform", "replacement", "weighted"])
def test_draws_of_different_keys_are_independent(rule):
    weights = np.array([1.0, 2, 3, 4, 5])
    first = evenly((i,) for i in range(5)) if rule != "weighted" else successive(weights.tolist(), 1)
    chances = {(a, b): first[(a,)] * first[(b,)] for a in range(5) for b in range(5)}
    found = draws(rule, 1, 5, weights, seed=4)
    for name, pairs in pairs_across(found).items():
        assert p_value(rows(pairs), chances) > LEAST, name
    shifted = np.stack([found[:, :, 0], draws(rule, 1, 5, weights, seed=5)[:, :, 0]], -1)
    assert p_value(rows(shifted), chances) > LEAST, "seeds"


@pytest.mark.parametrize("rule", ["uniform", "replacement"])
def test_hops_and_relations_draw_independently(rule):
    """Every node has a loop and five others: at both hops the seeds draw from the same lists."""
    nodes = 600
    src = (np.arange(nodes)[:, None] + np.arange(6)).ravel() % nodes
    graph = homogeneous(nodes, np.stack([src, np.repeat(np.arange(nodes), 6)]))
    graph.relations = [HOMOGENEOUS, ("node", "again", "node")]
    graph._csc[graph.relations[1]] = graph._csc[HOMOGENEOUS]
    sampler = NeighborSampler(graph, [1, 1], rule=rule, seed=6)
    found = []
    for b in range(20):
        batch = sampler.sample(np.arange(nodes), batch=b, positions=True)
        found.append(np.stack([hop[r].positions % 6 for hop in batch.hops for r in graph.relations], -1))
    four = np.concatenate(found)
    for i, j in itertools.combinations(range(4), 2):
        assert p_value(rows(four[:, [i, j]]), evenly(itertools.product(range(6), repeat=2))) > LEAST


WEIGHTS = {
    "skewed": [1.0, 2.0, 4.0, 8.0, 16.0], "equal": [0.3, 0.3, 0.3, 0.3], "with zeros": [0.0, 5.0, 0.0, 1.0, 2.0, 0.0],
    "one heavy": [1.0, 1.0, 1e6, 2.0], "tiny": [3e-310, 1e-310, 2e-310], "vast": [3e307, 1e307, 2e307],
}  # fmt: skip


@pytest.mark.parametrize("fanout", [1, 2, 3])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weighted_draws_in_proportion_to_what_is_left(name, fanout):
    """Ordered outcomes against the enumeration; a list no longer than the fanout comes in its own order instead."""
    weights = WEIGHTS[name]
    found, chances = rows(draws("weighted", fanout, len(weights), weights, seed=7)), successive(weights, fanout)
    if fanout >= len(weights):
        found, chances = [tuple(sorted(row)) for row in found], as_sets(chances)
    assert p_value(found, chances) > LEAST


def test_weighted_in_float32_and_as_whole_numbers():
    for dtype in (np.float32, np.int64, np.uint8, np.float16):
        weights = np.array([4, 1, 0, 3, 2], dtype)
        found = draws("weighted", 2, 5, weights, seed=8, batches=5)
        assert p_value(rows(found), successive([4.0, 1, 0, 3, 2], 2)) > LEAST
    tiny = np.array([3, 1, 2], np.float32) * np.float32(1e-44)  # denormal: whole multiples of 1.4e-45
    found = draws("weighted", 2, 3, tiny, seed=8, batches=5)
    assert p_value(rows(found), successive(tiny.astype(float).tolist(), 2)) > LEAST


@pytest.mark.parametrize("rule", ["uniform", "replacement", "weighted"])
def test_p_values_of_many_seeds_are_uniform(rule):
    """Draws that fit too well, as stratified ones do, would show here."""
    weights = [1.0, 2.0, 3.0, 4.0]
    chances = successive(weights if rule == "weighted" else [1.0] * 4, 1)
    found = [p_value(rows(draws(rule, 1, 4, weights, batches=1, seed=100 + s)), chances) for s in range(200)]
    assert stats.kstest(found, "uniform").pvalue > 1e-3


def test_ratios_beyond_the_resolution():
    """A weight too light for whole numbers counts one unit: it waits for all heavy ones, and is then drawn."""
    for weights in ([1e300, 1e-300, 0.0, 1e300], [1e300, 5e-324, 0.0, 1e300]):
        two = draws("weighted", 2, 4, weights, seed=11)
        assert p_value(rows(two), {(0, 3): 0.5, (3, 0): 0.5}) > LEAST
        three = draws("weighted", 3, 4, weights, seed=11)
        assert p_value(rows(three), {(0, 3, 1): 0.5, (3, 0, 1): 0.5}) > LEAST


def by_clocks(weights, n, rounds, rng):
    """The same law by another method: everyone's clock rings after an exponential time, the first n are taken."""
    times = rng.exponential(size=(rounds, len(weights))) / np.where(weights > 0, weights, 1e-300)
    return np.argsort(times, 1)[:, :n]


def test_long_lists_with_weights():
    """300 neighbors, 40 drawn: too many to enumerate, so against exponential clocks and, first draws, the weights."""
    rng = np.random.default_rng(3)
    weights = rng.exponential(size=300) ** 2 * (rng.random(300) > 0.1)
    found = draws("weighted", 40, 300, weights, seed=13, batches=10).reshape(-1, 40)
    assert p_value(rows(found[:, :1]), {(i,): w / weights.sum() for i, w in enumerate(weights)}) > LEAST
    theirs = by_clocks(weights, 40, len(found), rng)
    for part in (slice(0, 40), slice(0, 1), slice(20, 21), slice(39, 40)):
        mine, other = (np.bincount(d[:, part].ravel(), minlength=300) / len(found) for d in (found, theirs))
        error = np.sqrt((mine * (1 - mine) + other * (1 - other)) / len(found))
        z = (mine - other)[error > 4e-4] / error[error > 4e-4]
        assert z.size > 80 and abs(z.mean()) * np.sqrt(z.size) < 4 and z.std() < 1.2 and np.abs(z).max() < 4.5
    assert not np.isin(found, np.flatnonzero(weights == 0)).any()


@pytest.mark.parametrize("fanout", [10, 100])
def test_places_are_equally_likely_in_long_lists(fanout):
    """Many nodes with the same 300 neighbors in one batch; 100 goes through the hashed path."""
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


def test_epoch_orders_are_uniform():
    orders = [tuple(epoch_order(4, 0, epoch)) for epoch in range(4800)]
    counts = [orders.count(p) for p in itertools.permutations(range(4))]
    assert stats.chisquare(counts).pvalue > 1e-4
