"""Vertex inclusion probability against the same recursion in numpy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.csc_edges import coo_to_csc
from tiering import native

THREADS = (1, 2, 7)
FRONTIERS = ("all", "new")


@dataclass
class Case:
    """A graph, the seeds' probabilities and the sampler's options."""

    num_nodes: list[int]
    relations: list[Any]
    """(source type, destination type, indptr, indices)"""
    p0: list[Any]
    fanouts: list[list[int]]
    frontier: str = "all"
    replacement: bool = False

    def run(self, threads: int = 1) -> tuple[list[Any], list[Any]]:
        p0 = [np.asarray(p, np.float64) for p in self.p0]
        return native.inclusion_probability(
            self.relations, self.num_nodes, p0, self.fanouts, self.frontier, self.replacement, threads
        )


def recursion(case: Case) -> tuple[list[Any], list[Any]]:
    """The documented recursion, products over edges instead of sums of logarithms."""
    found = [np.array(p, np.float64) for p in case.p0]
    fresh = [f.copy() for f in found]
    reads = [np.zeros(len(indptr) - 1) for _, _, indptr, _ in case.relations]
    drawn, waiting = [r.copy() for r in reads], [r.copy() for r in reads]
    for hop in case.fanouts:
        missed = [np.ones(n) for n in case.num_nodes]
        for r, (src, dst, indptr, indices) in enumerate(case.relations):
            degrees, fanout = np.diff(indptr), hop[r]
            at_least_one = np.maximum(degrees, 1)
            w = np.minimum(1.0, fanout / at_least_one)
            if case.replacement:
                w = 1 - (1 - 1 / at_least_one) ** max(fanout, 0)
            if fanout == -1:
                w = np.ones(degrees.size)
            w[degrees == 0] = 0
            active = fresh[dst] + (waiting[r] if case.frontier == "all" else 0)
            if fanout != 0:
                reads[r] += found[dst] if case.frontier == "all" else fresh[dst]
            drawn[r] += active * w
            waiting[r] = active * (1 - w)
            np.multiply.at(missed[src], indices, 1 - np.repeat(np.minimum(drawn[r], 1), degrees))
        following = [1 - (1 - p) * m for p, m in zip(case.p0, missed, strict=True)]
        fresh = [a - b for a, b in zip(following, found, strict=True)]
        found = following
    return found, reads


def random_relation(num_nodes: list[int], types: tuple[int, int], edges: int, random: Any, wide: bool) -> Any:
    """Skewed ids: duplicates, self loops, isolated nodes."""
    src, dst = types
    edges *= bool(num_nodes[src] and num_nodes[dst])
    ends = [(num_nodes[t] * random.random(edges) ** 3).astype(np.int64) for t in types]
    indptr, indices, _ = coo_to_csc(ends[0], ends[1], num_nodes[src], num_nodes[dst])
    return src, dst, indptr, indices.astype(np.int64 if wide else np.int32)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=3), st.lists(st.integers(0, 300), min_size=1, max_size=4),
    st.integers(1, 4), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_agrees_with_the_recursion(num_nodes, edges, hops, seed):
    random = np.random.default_rng(seed)
    types = random.integers(0, len(num_nodes), (len(edges), 2)).tolist()
    relations = [
        random_relation(num_nodes, cast(tuple[int, int], pair), count, random, wide=i % 2 == 1)
        for i, (pair, count) in enumerate(zip(types, edges, strict=True))
    ]
    p0 = [random.random(n) * (random.random(n) < 0.3) for n in num_nodes]
    fanouts = random.integers(-1, 6, (hops, len(edges))).tolist()
    for frontier, replacement in itertools.product(FRONTIERS, (False, True)):
        case = Case(num_nodes, relations, p0, fanouts, frontier, replacement)
        first = case.run()
        for values, truth in zip(itertools.chain(*first), itertools.chain(*recursion(case)), strict=True):
            np.testing.assert_allclose(values, truth, rtol=1e-11, atol=1e-14)
            assert np.all(values >= 0)
        assert all(np.all(f <= 1) for f in first[0])
        for threads in THREADS:
            for values, of_one in zip(itertools.chain(*case.run(threads)), itertools.chain(*first), strict=True):
                np.testing.assert_array_equal(values, of_one)


@pytest.mark.parametrize("frontier", FRONTIERS)
def test_small_probabilities_keep_their_digits(frontier):
    """One list of a million places, asked for with probability 1e-9."""
    degree = 1_000_000
    indptr = np.full(degree + 2, degree, np.int64)
    indptr[0] = 0
    relation = (0, 0, indptr, np.arange(1, degree + 1, dtype=np.int32))
    p0 = np.zeros(degree + 1)
    p0[0] = 1e-9
    (found,), _ = Case([degree + 1], [relation], [p0], [[1]], frontier).run(2)
    np.testing.assert_allclose(found[1:], 1e-15, rtol=1e-12)


def test_certainty_is_exact_and_what_nothing_reaches_is_zero():
    random = np.random.default_rng(3)
    relation = random_relation([500], (0, 0), 1500, random, wide=False)
    p0 = (random.random(500) < 0.05).astype(np.float64)
    for frontier, hops in itertools.product(FRONTIERS, range(5)):
        (found,), _ = Case([500], [relation], [p0], [[-1]] * hops, frontier).run()
        reached = p0.astype(bool)
        for _ in range(hops):
            columns = np.repeat(np.arange(500), np.diff(relation[2]))
            reached[relation[3][reached[columns]]] = True
        assert found.tolist() == reached.astype(float).tolist()


@pytest.mark.parametrize(("change", "message"), [
    ({"p0": [np.zeros(3, np.float32)]}, "p0: expected contiguous 1-D float64 array, found float32 array"),
    ({"p0": [np.zeros(2)]}, "node type 0: p0 needs 3 values"), ({"p0": []}, "p0 needs one vector per node type: 1"),
    ({"p0": [np.array([0, 0, 1.25])]}, r"node type 0: p0\[2\] is 1.25"),
    ({"p0": [np.array([0, np.nan, 0])]}, r"node type 0: p0\[1\] is -?nan"),
    ({"fanouts": [[1, 1]]}, "fanouts: one entry per relation in every hop"),
    ({"fanouts": [[-2]]}, "fanouts: expected -1 or more, found -2"),
    ({"frontier": "both"}, "frontier: expected all or new, found both"),
    ({"threads": 0}, "threads: expected at least 1, found 0"),
    ({"relations": [(0, 2, np.zeros(4, np.int64), np.zeros(0, np.int32))]}, "names a node type outside"),
    ({"relations": [(0, 0, np.array([0, 0, 0, 1]), np.array([3], np.int32))]}, r"indices\[0\] is 3, outside"),
])  # fmt: skip
def test_what_does_not_fit_is_named(change, message):
    arguments: dict[str, Any] = {
        "relations": [(0, 0, np.zeros(4, np.int64), np.zeros(0, np.int32))],
        "num_nodes": [3],
        "p0": [np.zeros(3)],
        "fanouts": [[2]],
    }
    with pytest.raises(ValueError, match=message):
        native.inclusion_probability(**(arguments | change))
