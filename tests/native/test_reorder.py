"""Ordering and moving kernels against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tiering import native

THREADS = (1, 2, 7)
scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.floats(allow_nan=False))
few_scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0]))


@given(st.one_of(scores, few_scores))
def test_order_is_by_descending_score_then_id(values: Any) -> None:
    expected = np.lexsort((np.arange(values.size), -values))
    for threads in THREADS:
        found = native.sort_by_score(values, threads)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


def test_nan_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="the score of node 1 is NaN"):
        native.sort_by_score(np.array([0.0, np.nan, np.nan]), 2)


@given(st.permutations(range(50)), st.sampled_from([np.int32, np.int64]))
def test_inverse(order: list[int], dtype: type) -> None:
    permutation = np.array(order, dtype)
    for threads in THREADS:
        inverse = native.invert_permutation(permutation, threads)
        assert inverse.dtype == dtype
        np.testing.assert_array_equal(inverse[permutation], np.arange(50))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([0, 2, 2, 3], "id 2 stands at 1 and again at 2; id 1 is missing"),
        ([0, 4, 2, 3], r"entry 1 is 4, outside 0\.\.3"),
        ([0, -1, 2, 3], r"entry 1 is -1, outside 0\.\.3"),
    ],
)
def test_what_is_not_a_permutation_is_explained(entries: list[int], message: str) -> None:
    for threads in THREADS:
        with pytest.raises(ValueError, match=message):
            native.invert_permutation(np.array(entries), threads)


@settings(max_examples=40)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 4000), st.integers(0, 2**32 - 1))
def test_relabel_maps_every_edge_and_keeps_their_order(num_src: int, num_dst: int, edges: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    indptr, indices, _ = native.coo_to_csc(
        random.integers(0, num_src, edges), random.integers(0, num_dst, edges), num_src, num_dst
    )
    columns, sources = random.permutation(num_dst), random.permutation(num_src).astype(np.int32)
    lists = [sources[indices[indptr[v] : indptr[v + 1]]] for v in columns]
    places = [np.arange(indptr[v], indptr[v + 1]) for v in columns]
    for threads in THREADS:
        new_indptr, new_indices, positions = native.relabel_csc(
            indptr, indices, columns, sources, threads, want_positions=True
        )
        assert positions is not None
        assert new_indices.dtype == np.int32
        np.testing.assert_array_equal(np.diff(new_indptr), [len(entries) for entries in lists])
        np.testing.assert_array_equal(new_indices, np.concatenate(lists))
        np.testing.assert_array_equal(positions, np.concatenate(places))


def test_relabel_names_what_does_not_fit() -> None:
    indptr, indices = np.array([0, 1, 3]), np.array([0, 1, 2], np.int32)
    columns, sources = np.array([1, 0]), np.array([2, 1, 0])
    for wrong_columns, wrong_sources, message in [
        (columns[:1], sources, "dst_new_to_old has 1 entries for 2 columns"),
        (np.array([0, 2]), sources, r"dst_new_to_old\[1\] is 2, outside 0\.\.1"),
        (columns, sources[:2], "source id 2 is outside src_old_to_new, which has 2 entries"),
        (columns.astype(float), sources, "dst_new_to_old: expected contiguous 1-D int32 or int64 array"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.relabel_csc(indptr, indices, wrong_columns, wrong_sources, 2)


@given(st.integers(1, 40), st.sampled_from([1, 3, 64, 512, 1000]), st.integers(0, 60), st.booleans())
def test_gather_copies_rows(rows: int, row_bytes: int, count: int, padded: bool) -> None:
    random = np.random.default_rng(rows * row_bytes + count)
    table = random.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    ids = random.integers(0, rows, count)
    for threads in THREADS:
        out = np.full((count, row_bytes + 24 * padded), 0xEE, np.uint8)
        native.gather_rows(table, ids, out[:, :row_bytes], threads)
        np.testing.assert_array_equal(out[:, :row_bytes], table[ids])
        assert (out[:, row_bytes:] == 0xEE).all()


def test_gather_names_what_does_not_fit() -> None:
    table, out = np.zeros((4, 8), np.uint8), np.zeros((2, 8), np.uint8)
    for arguments, message in [
        ((table, np.array([0, 4]), out), r"ids\[1\] is 4, outside the table's 4 rows"),
        ((table, np.array([0]), out), "out has 2 rows for 1 ids"),
        ((table[:, ::2], np.array([0, 1]), out), "table: expected C-contiguous"),
        ((table, np.array([0, 1]), out[:, :4]), "out: expected 2-D uint8 array with rows as long as"),
        ((table.astype(np.int8), np.array([0, 1]), out), "table: expected 2-D uint8 array"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.gather_rows(*arguments)
