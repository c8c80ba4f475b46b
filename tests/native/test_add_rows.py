"""Sums of rows by node, against numpy: exactly in float32 and the order of the edges, and nearly in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.errors import RefusedError

THREADS = (1, 2, 7)
DTYPES = ("float16", "bfloat16", "float32", "float64")


def table(dtype: str, rows: int, dim: int, seed: int) -> tuple[Any, Any]:
    """Rows as they are stored, and as float32."""
    values = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    if dtype == "bfloat16":
        stored = (values.view(np.uint32) >> 16).astype(np.uint16)
        return stored, (stored.astype(np.uint32) << 16).view(np.float32)
    stored = values.astype(dtype)
    return stored, stored.astype(np.float32)


@settings(max_examples=60)
@given(
    dtype=st.sampled_from(DTYPES), rows=st.integers(1, 40), dim=st.integers(1, 40), nodes=st.integers(1, 30),
    edges=st.integers(0, 400), wide=st.booleans(), skew=st.integers(1, 4), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_sums_are_those_of_a_loop(dtype, rows, dim, nodes, edges, wide, skew, seed):
    random = np.random.default_rng(seed)
    stored, values = table(dtype, rows, dim, seed)
    kind = np.int64 if wide else np.int32
    ids = np.sort((nodes * random.random(edges) ** skew).astype(kind))
    neighbors = random.integers(0, rows, edges).astype(kind)
    begin = random.standard_normal((nodes, dim)).astype(np.float32)
    expected, exact, size = begin.copy(), begin.astype(np.float64), np.abs(begin.astype(np.float64))
    for node, neighbor in zip(ids, neighbors, strict=True):
        expected[node] += values[neighbor]
    np.add.at(exact, ids, values[neighbors].astype(np.float64))
    np.add.at(size, ids, np.abs(values[neighbors].astype(np.float64)))
    for threads in THREADS:
        total, degree = begin.copy(), np.ones(nodes, np.int64)
        native.add_rows(stored, ids, neighbors, total, degree, threads)
        assert total.tobytes() == expected.tobytes()
        np.testing.assert_array_equal(degree, 1 + np.bincount(ids, minlength=nodes))
    assert (np.abs(expected - exact) <= edges * np.finfo(np.float32).eps / 2 * size).all()  # of a sum, term by term


def test_every_half_is_widened_as_numpy_widens_it():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 64)
    count = halves.shape[0]
    total = np.zeros(halves.shape, np.float32)
    native.add_rows(halves, np.arange(count), np.arange(count), total, np.zeros(count, np.int64), 2)
    np.testing.assert_array_equal(total, halves.astype(np.float32))
    brains = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 64)
    total[:] = 0
    native.add_rows(brains, np.arange(count), np.arange(count), total, np.zeros(count, np.int64), 2)
    np.testing.assert_array_equal(total, (brains.astype(np.uint32) << 16).view(np.float32))


@pytest.mark.parametrize(("change", "message"), [
    ({"nodes": np.array([0, 2, 1, 2])}, r"nodes\[2\] is 1, behind 2: expected ascending nodes"),
    ({"nodes": np.array([0, 1, 2, 3])}, r"nodes\[3\] is 3, outside the 3 nodes of total"),
    ({"nodes": np.array([-1, 1, 2, 2])}, r"nodes\[0\] is -1, outside"),
    ({"neighbors": np.array([0, 5, 1, 1])}, r"neighbors\[1\] is 5, outside the table's 5 rows"),
    ({"neighbors": np.array([0, 1, 1, -7])}, r"neighbors\[3\] is -7, outside"),
    ({"neighbors": np.zeros(3, np.int64)}, "neighbors: expected one for each of 4 nodes, found 3"),
    ({"neighbors": np.zeros(4, np.int32)}, "neighbors: expected ids as wide as those of nodes"),
    ({"rows": np.zeros((5, 2), np.int16)}, "rows: expected C-contiguous 2-D array of float16.* found int16"),
    ({"rows": np.zeros((2, 5), np.float16).T}, "rows: expected C-contiguous"),
    ({"rows": np.zeros(21, np.uint8)[1:].view(np.float16).reshape(5, 2)}, "rows: .* aligned"),
    ({"total": np.zeros((3, 3), np.float32)}, "total: expected sums of 2 entries as rows have, found 3"),
    ({"total": np.zeros((3, 2), np.float64)}, "total: .* 2-D float32 array, aligned, found float64"),
    ({"degree": np.zeros(4, np.int64)}, "degree: expected one for each of 3 nodes of total, found 4"),
    ({"threads": 0}, "threads: expected at least 1"),
])  # fmt: skip
def test_what_is_wrong_is_refused_and_nothing_added(change, message):
    given = {
        "rows": np.ones((5, 2), np.float16), "nodes": np.array([0, 1, 2, 2]), "neighbors": np.array([0, 1, 2, 3]),
        "total": np.zeros((3, 2), np.float32), "degree": np.zeros(3, np.int64), "threads": 2, **change,
    }  # fmt: skip
    with pytest.raises(RefusedError, match=message):
        native.add_rows(**given)
    assert not given["total"].any()
    assert not given["degree"].any()
