"""Adjacency kernels against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering import native

THREADS = (1, 2, 7)


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[int, int, Any, Any]:
    """Numbers of nodes, sources and destinations; duplicates and isolated nodes occur."""
    num_src, num_dst = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    count = draw(st.integers(0, 120))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    src = draw(st.lists(st.integers(0, num_src - 1), min_size=count, max_size=count))
    dst = draw(st.lists(st.integers(0, num_dst - 1), min_size=count, max_size=count))
    return num_src, num_dst, np.array(src, dtype), np.array(dst, dtype)


@given(edge_lists())
def test_out_degrees(edges):
    num_src, _, src, _ = edges
    for threads in THREADS:
        np.testing.assert_array_equal(native.out_degrees(src, num_src, threads), np.bincount(src, minlength=num_src))


@pytest.mark.parametrize(("indptr", "indices", "message"), [
    ([1, 2], [0, 0], r"indptr begins with 1, expected 0"),
    ([0, 2, 1, 3], [0, 0, 0], "indptr decreases from 2 at 1 to 1 at 2"),
    ([0, 2], [0, 0, 0], "indptr ends at 2 but there are 3 indices"),
    ([0, 2], [0, 7], r"indices\[1\] is 7, outside 0\.\.2"),
    ([], [], "indptr: expected one entry more than there are columns"),
])  # fmt: skip
def test_damaged_adjacency_is_named(indptr, indices, message):
    with pytest.raises(ValueError, match=message):
        native.check_csc(np.array(indptr, np.int64), np.array(indices, np.int64), 3, 2)
