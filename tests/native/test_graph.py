"""Adjacency kernels against numpy and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.csc_edges import coo_to_csc
from benchmarks.rmat import rmat_edges
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
def test_csc_is_the_stable_sort_by_destination(edges):
    num_src, num_dst, src, dst = edges
    order = np.argsort(dst, kind="stable")
    for threads in THREADS:
        indptr, indices, positions = coo_to_csc(src, dst, num_src, num_dst, threads)
        assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
        np.testing.assert_array_equal(positions, order)
        np.testing.assert_array_equal(indices, src[order])
        np.testing.assert_array_equal(np.diff(indptr, prepend=0)[1:], np.bincount(dst, minlength=num_dst))


@given(edge_lists())
def test_out_degrees(edges):
    num_src, _, src, _ = edges
    for threads in THREADS:
        np.testing.assert_array_equal(native.out_degrees(src, num_src, threads), np.bincount(src, minlength=num_src))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_edges_are_read_where_they_lie(dtype, tmp_path):
    """Columns of an (E, 2) file, rows of a (2, E) file and a reversed view give the same graph."""
    src, dst = (array.astype(dtype) for array in rmat_edges(8, 3000, seed=1))
    expected = coo_to_csc(src, dst, 256, 256)[1]
    pairs = np.lib.format.open_memmap(tmp_path / "pairs.npy", "w+", dtype, (3000, 2))
    pairs[:] = np.stack([src, dst], axis=1)
    np.save(tmp_path / "rows.npy", np.stack([src, dst]))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    backwards_src, backwards_dst = src[::-1].copy(), dst[::-1].copy()
    for s, d in [(pairs[:, 0], pairs[:, 1]), rows, (backwards_src[::-1], backwards_dst[::-1])]:
        np.testing.assert_array_equal(coo_to_csc(s, d, 256, 256, 2)[1], expected)


def test_empty_graphs():
    none = np.empty(0, np.int32)
    indptr, indices, positions = coo_to_csc(none, none, 0, 0, 3)
    assert indptr.tolist() == [0]
    assert indices.size == 0
    assert positions.size == 0
    assert coo_to_csc(none, none, 5, 3)[0].tolist() == [0, 0, 0, 0]
    assert native.out_degrees(none, 0).size == 0
    native.check_csc(indptr, indices, 0)


def test_ids_widen_at_two_to_the_31():
    src, dst = np.array([2**31, 0]), np.array([0, 0])
    assert coo_to_csc(src, dst, 2**31 + 1, 1)[1].dtype == np.int64
    assert coo_to_csc(src[1:], dst[1:], 2**31 - 1, 1)[1].dtype == np.int32


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ([0, 1, 5, 9], [0, 0, 0, 0], r"edge 2: source id 5 is outside 0\.\.4"),
        ([0, 1, 2, 3], [0, 0, 0, -1], r"edge 3: destination id -1 is outside 0\.\.4"),
        ([0, 1], [0], "1 destinations and 2 sources: one of each per edge is needed"),
        ([0.5], [0], "src: expected 1-D int32 or int64 array, found float64 array of shape"),
        ([[0]], [0], r"src: expected 1-D int32 or int64 array, found int64 array of shape \(1, 1\)"),
    ],
)
def test_bad_edges_are_named(src, dst, message):
    for threads in THREADS:
        with pytest.raises(ValueError, match=message):
            coo_to_csc(np.array(src), np.array(dst), 5, 5, threads)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([1, 2], [0, 0], r"indptr begins with 1, expected 0"),
        ([0, 2, 1, 3], [0, 0, 0], "indptr falls from 2 at 1 to 1 at 2"),
        ([0, 2], [0, 0, 0], "indptr ends at 2 but there are 3 indices"),
        ([0, 2], [0, 7], r"indices\[1\] is 7, outside 0\.\.2"),
        ([], [], "indptr: expected one entry more than there are columns"),
    ],
)
def test_damaged_adjacency_is_named(indptr, indices, message):
    with pytest.raises(ValueError, match=message):
        native.check_csc(np.array(indptr, np.int64), np.array(indices, np.int64), 3, 2)
