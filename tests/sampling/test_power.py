"""The chi-square tests of `test_draws.py` refuse wrong samplers: with fewer draws than there, and by far."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chances import as_sets, drawn_places, fan, p_value, rows, successive

from tiering.sampling import NeighborSampler

WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
REFUSED, ROUNDS = 1e-12, 5000


def by_keys(key):
    """Two of five by the highest key, one row per round."""
    u = np.random.default_rng(1).random((ROUNDS, 5))
    return np.argsort(-key(u), 1)[:, :2]


WRONG = {
    "weights ignored": lambda u: u,
    "weights times uniform": lambda u: u * WEIGHTS,
    "roots of weights": lambda u: u ** (1 / np.sqrt(WEIGHTS)),
    "the heaviest always": lambda u: u + 100 * (WEIGHTS == 16),
    "the neighbour's weight": lambda u: u ** (1 / np.roll(WEIGHTS, 1)),
}


def test_the_right_keys_pass():
    """u^(1/w) is the definition by another way (Efraimidis & Spirakis): not every stand-in is refused."""
    right = by_keys(lambda u: u ** (1 / WEIGHTS))
    assert p_value(rows(right), successive(WEIGHTS.tolist(), 2)) > 1e-3


@pytest.mark.parametrize("name", WRONG)
def test_wrong_weights_are_refused(name):
    found = by_keys(WRONG[name])
    assert p_value(rows(found), successive(WEIGHTS.tolist(), 2)) < REFUSED
    assert p_value(rows(np.sort(found, 1)), as_sets(successive(WEIGHTS.tolist(), 2))) < REFUSED


def test_our_other_rules_are_refused():
    """Uniform draws do not pass for weighted ones, nor weighted for uniform, nor draws without for with return."""
    places = {
        rule: rows(drawn_places(NeighborSampler(fan(5, 500, WEIGHTS), [2], rule=rule), 500, 10))
        for rule in ("uniform", "weighted", "replacement")
    }
    pairs = dict.fromkeys(itertools.product(range(5), repeat=2), 1 / 25)
    subsets = dict.fromkeys(itertools.combinations(range(5), 2), 1 / 10)
    weighted = successive(WEIGHTS.tolist(), 2)
    assert p_value(places["uniform"], weighted) < REFUSED
    assert p_value(places["replacement"], weighted) == 0.0  # (i, i) may never come
    assert p_value([tuple(sorted(p)) for p in places["weighted"]], subsets) < REFUSED
    assert p_value(places["uniform"], pairs) < REFUSED
    assert p_value(places["replacement"], pairs) > 1e-4


def test_the_enumeration_by_hand():
    chances = successive([1.0, 2.0, 0.0, 1.0], 2)
    by_hand = {(0, 1): 1 / 6, (0, 3): 1 / 12, (1, 0): 1 / 4, (1, 3): 1 / 4, (3, 0): 1 / 12, (3, 1): 1 / 6}
    assert chances == pytest.approx(by_hand)
    assert as_sets(chances) == pytest.approx({(0, 1): 5 / 12, (0, 3): 1 / 6, (1, 3): 5 / 12})
    assert successive([0.0, 3.0, 1.0], 3) == pytest.approx({(1, 2): 3 / 4, (2, 1): 1 / 4})
    assert successive([0.0, 0.0], 1) == {(): 1.0}
