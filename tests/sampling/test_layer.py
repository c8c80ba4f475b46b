"""Layer-wise sampling against its definition: by hand and by exact enumeration; test_properties.py judges any batch."""

from __future__ import annotations

import numpy as np
import pytest
from chances import LEAST, as_sets, p_value, successive
from toy_graphs import ToyGraph, homogeneous

from tiering.sampling import LayerSampler

# Columns 0: 2, 3, 4 and 4 again; 1: 4, 5. Importance 2: 1/16, 3: 1/16, 4: 2/16 + 1/4, 5: 1/4.
FORK = homogeneous(6, np.array([[2, 3, 4, 4, 4, 5], [0, 0, 0, 0, 1, 1]]))
IMPORTANCE = [0, 0, 1 / 16, 1 / 16, 2 / 16 + 1 / 4, 1 / 4]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_sets_come_up_as_often_as_defined(n):
    sampler = LayerSampler(FORK, [n], seed=1)
    found = [tuple(sorted(sampler.sample([0, 1], batch=b).nodes["node"][2:].tolist())) for b in range(6000)]
    assert p_value(found, as_sets(successive(IMPORTANCE, n))) > LEAST


def test_relations_draw_by_themselves():
    """Papers 0..1, authors 0..3: a0, a1 and a2 write p0, a2 and a3 write p1; p1 cites p0."""
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    edges = {writes: np.array([[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]]), cites: np.array([[1], [0]])}
    sampler = LayerSampler(
        ToyGraph({"paper": 2, "author": 4}, edges), [{"writes": 1, "cites": 1}, {"writes": 0, "cites": -1}]
    )
    batches = [sampler.sample({"paper": [0]}, batch=b) for b in range(3000)]
    assert all(batch.nodes["paper"].tolist() == [0, 1] for batch in batches)
    assert {tuple(len(hop[writes]) for hop in batch.hops) for batch in batches} == {(1, 0)}
    authors = [batch.nodes["author"].tolist() for batch in batches]
    assert p_value([a for (a,) in authors], dict.fromkeys(range(3), 1 / 3)) > LEAST
    both = [int(sampler.sample({"paper": [0, 1]}, batch=b).nodes["author"][0]) for b in range(3000)]
    importance = np.array([1 / 9, 1 / 9, 1 / 9 + 1 / 4, 1 / 4])  # summed over both papers' lists
    assert p_value(both, dict(enumerate(importance / importance.sum()))) > LEAST
