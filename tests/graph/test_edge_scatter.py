"""The kernels of COO to CSC by scattering, against a sort by another method."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native


def scattered(src, dst, num_src, num_dst, shift, chunk, first, split, threads):
    """Records of the buckets from `first` on, by chunk, and their counts by chunk and bucket."""
    runs, counts = [], []
    for begin in range(0, len(src), chunk):
        part = slice(begin, begin + chunk)
        found = native.count_buckets(dst[part], begin, num_dst, shift, threads)
        total = found.sum(0)
        item = native.scattered_bytes(num_src)
        low = np.zeros(total[first:split].sum() * item, np.uint8)
        high = np.zeros(total[split:].sum() * item, np.uint8)
        native.scatter_edges(src[part], dst[part], begin, num_src, num_dst, shift, found, first, split, low, high)
        runs.append(np.concatenate([low, high]))
        counts.append(total[first:])
    return runs, np.array(counts, np.int64).reshape(len(runs), ((num_dst - 1) >> shift) + 1 - first)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32), nodes=st.integers(1, 200), edges=st.integers(0, 3000), shift=st.integers(0, 8),
    chunk=st.integers(1, 3000), cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)), wide=st.booleans(),
    threads=st.sampled_from([1, 2, 7]),
)  # fmt: skip
def test_scatter_and_sort(seed, nodes, edges, shift, chunk, cuts, wide, threads):
    random = np.random.default_rng(seed)
    table = random.integers(0, nodes, (edges, 2)).astype(random.choice([np.int32, np.int64]))
    src, dst = table.T  # strided
    num_src = 2**31 if wide else nodes
    buckets = ((nodes - 1) >> shift) + 1
    first, split = sorted(round(cut * buckets) for cut in cuts)
    runs, counts = scattered(src, dst, num_src, nodes, shift, chunk, first, split, threads)
    begin = first << shift
    kept = dst >= begin
    expected = src[kept][np.argsort(dst[kept], kind="stable")]
    if begin >= nodes:
        return
    indptr = np.zeros(nodes - begin, np.int64)
    indices = np.zeros(len(expected) * (8 if wide else 4), np.uint8)
    native.sort_runs(runs, counts, nodes - begin, shift, num_src, 1000, indptr, indices, threads)
    np.testing.assert_array_equal(indices.view(np.int64 if wide else np.int32), expected)
    degrees = np.bincount(dst[kept] - begin, minlength=nodes - begin)
    np.testing.assert_array_equal(indptr, 1000 + np.concatenate([[0], np.cumsum(degrees)[:-1]]))


def test_any_part_of_the_buckets_may_be_sorted():
    src, dst = native.rmat_edges(10, 20_000, 3)
    runs, counts = scattered(src, dst, 1024, 1024, 4, 7000, 0, 30, 2)
    ends = np.cumsum(np.concatenate([np.zeros((3, 1), np.int64), counts], 1), 1) * 8
    found = []
    for first, end in pairwise([0, 1, 17, 40, 64]):
        parts = [run[at[first] : at[end]] for run, at in zip(runs, ends, strict=True)]
        own = np.ascontiguousarray(counts[:, first:end])
        indices, indptr = np.zeros(own.sum() * 4, np.uint8), np.zeros((end - first) * 16, np.int64)
        native.sort_runs(parts, own, (end - first) * 16, 4, 1024, 0, indptr, indices, 2)
        found.append(indices.view(np.int32))
    np.testing.assert_array_equal(np.concatenate(found), src[np.argsort(dst, kind="stable")])


def test_ids_out_of_range_are_named():
    src, dst = np.array([0, 1, 9, 1]), np.array([0, 5, 0, 1])
    with pytest.raises(ValueError, match=r"edge 101: destination id 5 is outside 0\.\.4"):
        native.count_buckets(dst, 100, 5, 0, 1)
    counts = native.count_buckets(dst, 0, 6, 0, 1)
    memory = np.zeros(4 * 8, np.uint8)
    with pytest.raises(ValueError, match=r"edge 102: source id 9 is outside 0\.\.8"):
        native.scatter_edges(src, dst, 100, 9, 6, 0, counts, 0, 6, memory, memory[:0])
    with pytest.raises(ValueError, match="memory for the records is too small"):
        native.scatter_edges(src, dst, 100, 10, 6, 0, counts, 0, 6, memory[:24], memory[:0])


def test_what_does_not_fit_together_is_refused():
    counts = np.ones((1, 2), np.int64)
    indptr, indices = np.zeros(2, np.int64), np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="fewer records than were counted"):
        native.sort_runs([np.zeros(8, np.uint8)], counts, 2, 0, 5, 0, indptr, indices)
    with pytest.raises(ValueError, match="one entry per record"):
        native.sort_runs([np.zeros(16, np.uint8)], counts, 2, 0, 5, 0, indptr, indices[:4])
    with pytest.raises(ValueError, match="a column per bucket"):
        native.sort_runs([np.zeros(16, np.uint8)], counts, 3, 0, 5, 0, indptr, indices)
