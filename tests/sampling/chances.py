"""What the definitions say about draws: exact chances by enumeration, and tests of counts against them."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from scipy import stats
from toy_graphs import ToyGraph

FAN = ("leaf", "to", "hub")
LEAST = 1e-4
"""A right sampler falls below this in one of 10 000 tests. Seeds are fixed, so that a test has one outcome."""


def fan(degree, hubs, weights=None):
    """Hubs with the same list, leaves 0 .. degree - 1 in order, and the same weights: many draws in one batch."""
    edges = np.stack([np.tile(np.arange(degree), hubs), np.repeat(np.arange(hubs), degree)])
    each = {} if weights is None else {FAN: np.tile(np.asarray(weights), hubs)}
    return ToyGraph({"leaf": degree, "hub": hubs}, {FAN: edges}, weights=each)


def drawn_places(sampler, hubs, batches, epochs=1):
    """Places in the list that each hub of a `fan` draws, in their order: shape (epochs * batches, hubs, drawn)."""
    degree = sampler.graph.num_nodes("leaf")
    rows = []
    for epoch, b in itertools.product(range(epochs), range(batches)):
        edges = sampler.sample({"hub": np.arange(hubs)}, epoch=epoch, batch=b, positions=True).hops[0][FAN]
        assert np.array_equal(edges.dst, np.repeat(np.arange(hubs), len(edges) // hubs))
        assert np.array_equal(edges.positions // degree, edges.dst)
        rows.append(edges.positions.reshape(hubs, -1) % degree)
    return np.stack(rows)


def successive(weights, n):
    """Chance of every ordered outcome when n are drawn one after the other in proportion to what is left.

    Fewer than n with a positive weight are all drawn.
    """
    if n == 0 or not any(weights):
        return {(): 1.0}
    outcomes = {}
    for first, weight in enumerate(weights):
        if weight > 0:
            rest = [0.0 if i == first else w for i, w in enumerate(weights)]
            for then, p in successive(rest, n - 1).items():
                outcomes[(first, *then)] = p * weight / sum(weights)
    return outcomes


def as_sets(ordered):
    """Chances of the sets, as sorted tuples."""
    sets = Counter()
    for outcome, p in ordered.items():
        sets[tuple(sorted(outcome))] += p
    return sets


def p_value(found, chances):
    """Chi-square of outcomes against their chances; 0 where one came up that never may.

    Outcomes expected fewer than 5 times are taken together.
    """
    counts = Counter(found)
    if not set(counts) <= {outcome for outcome, p in chances.items() if p > 0}:
        return 0.0
    total = counts.total()
    common = [outcome for outcome, p in chances.items() if p * total >= 5]
    seen, wanted = [counts[o] for o in common], [chances[o] * total for o in common]
    if total - sum(wanted) > 1e-6 * total:
        seen, wanted = [*seen, total - sum(seen)], [*wanted, total - sum(wanted)]
    statistic = sum((s - w) ** 2 / w for s, w in zip(seen, wanted, strict=True))
    return float(stats.chi2.sf(statistic, len(wanted) - 1)) if len(wanted) > 1 else 1.0


def rows(array):
    """The rows of an array as tuples."""
    return [tuple(row) for row in array.reshape(-1, array.shape[-1]).tolist()]
