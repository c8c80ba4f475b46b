"""Reverse PageRank: when it stops, values of some nodes, what is refused. tests/scores compares it with scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.csc_edges import coo_to_csc
from tiering import native


def random_graph(num_src: int, num_dst: int, edges: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    src = (num_src * random.random(edges) ** 3).astype(np.int64)
    dst = (num_dst * random.random(edges) ** 3).astype(np.int64)
    indptr, indices, _ = coo_to_csc(src, dst, num_src, num_dst)
    return indptr, indices


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


@pytest.mark.parametrize(("change", "message"), [
    ({"start": [np.ones(3, np.float32)]}, "start: expected contiguous 1-D float64 array, found float32 array"),
    ({"start": [np.ones(4)]}, "node type 0: start and teleport need 3 values"),
    ({"num_nodes": [4], "start": [np.ones(4)], "teleport": [np.ones(4)]}, "a relation has 3 columns"),
    ({"threads": 0}, "threads: expected at least 1, found 0"),
    ({"relations": [(0, 1, np.zeros(4, np.int64), np.zeros(0, np.int32))]}, "names a node type outside"),
])  # fmt: skip
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
