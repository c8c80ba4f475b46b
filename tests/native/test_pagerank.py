"""Reverse PageRank against matrix products of scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.csc_edges import coo_to_csc
from tiering import native

THREADS = (1, 2, 7)


def random_graph(num_src: int, num_dst: int, edges: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    src = (num_src * random.random(edges) ** 3).astype(np.int64)
    dst = (num_dst * random.random(edges) ** 3).astype(np.int64)
    indptr, indices, _ = coo_to_csc(src, dst, num_src, num_dst)
    return indptr, indices


def products(
    relations: list[Any], num_nodes: list[int], start: list[Any], teleport: list[Any], sweeps: int
) -> list[Any]:
    """The same sweeps as sparse matrix products."""
    scores = start
    for _ in range(sweeps):
        following = [t.copy() for t in teleport]
        for src, dst, indptr, indices in relations:
            shape = (num_nodes[src], num_nodes[dst])
            matrix = scipy.sparse.csc_matrix((np.ones(indices.size), indices, indptr), shape=shape)
            following[src] += 0.85 * (matrix @ (scores[dst] / np.maximum(np.diff(indptr), 1)))
        scores = following
    return scores


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=3), st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_sweeps_agree_with_matrix_products(num_nodes, edges, seed):
    random = np.random.default_rng(seed)
    types = random.integers(0, len(num_nodes), (4, 2))
    relations = [
        (int(s), int(d), *random_graph(num_nodes[s], num_nodes[d], edges, seed + i)) for i, (s, d) in enumerate(types)
    ]
    start = [random.random(n) for n in num_nodes]
    teleport = [random.random(n) for n in num_nodes]
    expected = products(relations, num_nodes, start, teleport, 5)
    first, sweeps, residual = native.reverse_pagerank(relations, num_nodes, start, teleport)
    assert sweeps == 5
    assert residual >= 0
    for threads in THREADS:
        found, _, same = native.reverse_pagerank(relations, num_nodes, start, teleport, threads=threads)
        assert same == residual
        for values, of_one, truth in zip(found, first, expected, strict=True):
            np.testing.assert_array_equal(values, of_one)
            np.testing.assert_allclose(values, truth, rtol=1e-12)


def test_a_node_is_hot_if_its_out_neighbours_are():
    """0 -> 1, 1 -> 2, 1 -> 3 and all start at 1: the score flows against the edges, split by in-degree."""
    indptr, indices, _ = coo_to_csc(np.array([0, 1, 1]), np.array([1, 2, 3]), 4, 4)
    ones = [np.ones(4)]
    (scores,), _, _ = native.reverse_pagerank([(0, 0, indptr, indices)], [4], ones, [np.zeros(4)], 0.5, 1)
    assert scores.tolist() == [0.5, 1.0, 0.0, 0.0]
    assert ones[0].tolist() == [1.0] * 4


def test_stops_at_the_tolerance():
    graph = random_graph(200, 200, 3000, 1)
    start, teleport = [np.full(200, 1 / 200)], [np.full(200, 0.15 / 200)]
    scores, sweeps, residual = native.reverse_pagerank(
        [(0, 0, *graph)], [200], start, teleport, max_sweeps=500, tolerance=1e-10
    )
    assert sweeps < 500
    assert residual <= 1e-10
    again, _, _ = native.reverse_pagerank([(0, 0, *graph)], [200], start, teleport, max_sweeps=sweeps)
    np.testing.assert_array_equal(scores[0], again[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": [np.ones(3, np.float32)]}, "start: expected contiguous 1-D float64 array, found float32 array"),
        ({"start": [np.ones(4)]}, "node type 0: start and teleport need 3 values"),
        ({"num_nodes": [4], "start": [np.ones(4)], "teleport": [np.ones(4)]}, "a relation has 3 columns"),
        ({"threads": 0}, "threads: expected at least 1, found 0"),
        ({"relations": [(0, 1, np.zeros(4, np.int64), np.zeros(0, np.int32))]}, "names a node type outside"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    arguments: dict[str, Any] = {
        "relations": [(0, 0, np.zeros(4, np.int64), np.zeros(0, np.int32))],
        "num_nodes": [3],
        "start": [np.ones(3)],
        "teleport": [np.ones(3)],
    }
    with pytest.raises(ValueError, match=message):
        native.reverse_pagerank(**(arguments | change))


def test_values_of_some_nodes_and_of_the_rest():
    random = np.random.default_rng(1)
    indptr, indices, _ = coo_to_csc(random.integers(0, 3000, 9000), random.integers(0, 3000, 9000), 3000, 3000)
    relations = [(0, 0, indptr, indices)]
    ids = np.sort(random.permutation(3000)[:40])
    start, teleport = np.full(3000, 0.25), np.full(3000, 0.125)
    start[ids], teleport[ids] = 7.0, 0.0
    whole = native.reverse_pagerank(relations, [3000], [start], [teleport])
    parts = native.reverse_pagerank(relations, [3000], [(0.25, 7.0, ids)], [(0.125, 0.0, ids)])
    assert whole[0][0].tobytes() == parts[0][0].tobytes()


@pytest.mark.parametrize(
    ("ids", "message"), [([5, 4], "need ascending ids, found 4 behind 5"), ([3], r"need ids, found 3, outside 0\.\.2")]
)
def test_ids_of_values_are_checked(ids, message):
    relations = [(0, 0, np.zeros(11 if max(ids) > 3 else 4, np.int64), np.zeros(0, np.int32))]
    values = (0.0, 1.0, np.array(ids, np.int64))
    with pytest.raises(ValueError, match=message):
        native.reverse_pagerank(relations, [relations[0][2].size - 1], [values], [values])
