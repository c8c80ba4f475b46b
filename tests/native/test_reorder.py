"""Ordering and moving kernels against numpy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.csc_edges import coo_to_csc
from benchmarks.relabel import relabel_graph
from tiering import native

THREADS = (1, 2, 7)


def relabeled(
    num_src: int, num_dst: int, edges: int, seed: int
) -> tuple[tuple[Any, Any], tuple[Any, Any], tuple[Any, Any], Any]:
    """A random CSC, new places of its columns and sources, the CSC under them, and where its entries stood."""
    random = np.random.default_rng(seed)
    kinds = random.choice([np.int32, np.int64], 2)
    indptr, indices, _ = coo_to_csc(
        random.integers(0, num_src, edges), random.integers(0, num_dst, edges) // 2, num_src, num_dst
    )
    columns, sources = random.permutation(num_dst).astype(kinds[0]), random.permutation(num_src).astype(kinds[1])
    order = np.argsort(columns)
    places = np.concatenate([np.arange(indptr[v], indptr[v + 1]) for v in order])
    new_indptr = np.append(0, np.cumsum(np.diff(indptr)[order]))
    return (indptr, indices), (columns, sources), (new_indptr, sources[indices[places]]), places


graphs = {
    "num_src": st.integers(1, 50), "num_dst": st.integers(1, 50), "edges": st.integers(0, 4000),
    "seed": st.integers(0, 2**32 - 1),
}  # fmt: skip


@settings(max_examples=40)
@given(
    **graphs, cuts=st.integers(1, 5), chunk=st.integers(1, 1500), threads=st.sampled_from(THREADS),
    item=st.sampled_from([0, 0, 0, 1, 3, 4, 8, 12, 600]), part_of_map=st.integers(1, 60),
)  # fmt: skip
def test_windows_and_chunks_make_the_same(num_src, num_dst, edges, seed, cuts, chunk, threads, item, part_of_map):
    """Item 0 stands for the sources, with parts of the source map; else bytes of a value that runs along the edges."""
    (indptr, indices), (columns, sources), (new_indptr, new_indices), places = relabeled(num_src, num_dst, edges, seed)
    np.testing.assert_array_equal(native.relabel_indptr(indptr, columns, threads), new_indptr)
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, (edges, item), np.uint8)
    bounds = sorted({0, edges, *random.integers(0, edges + 1, cuts - 1).tolist()})
    for first, end in pairwise(bounds):
        low = int(np.searchsorted(new_indptr, first, "right")) - 1
        starts = new_indptr[low : int(np.searchsorted(new_indptr, end, "left"))]
        out = np.full((end - first) * (item or 4), 0xEE, np.uint8)
        for k in range(0, edges, chunk):
            part = slice(k, k + chunk)
            if item:
                native.place_values(values[part], k, indptr, columns, first, low, starts, out, threads)
            else:
                native.place_indices(indices[part], k, indptr, columns, num_src, first, low, starts, out, threads)
        for low_source in range(0, 0 if item else num_src, part_of_map):
            some = sources[low_source : low_source + part_of_map]
            native.rename_sources(out, some, low_source, num_src, threads)
        if item:
            np.testing.assert_array_equal(out.reshape(-1, item), values[places][first:end])
        else:
            np.testing.assert_array_equal(out.view(np.int32), new_indices[first:end])


def test_long_and_short_columns():
    """Columns longer than a batch and longer than a block of entries, among many of every short length."""
    random = np.random.default_rng(3)
    degrees = np.concatenate([np.arange(40), [300_000, 0, 5000, 2049, 0, 2048], random.integers(0, 40, 3000), [70_000]])
    indptr = np.append(0, np.cumsum(random.permutation(degrees)))
    indices = random.integers(0, 1000, indptr[-1]).astype(np.int32)
    columns, sources = random.permutation(degrees.size), random.permutation(1000)
    order = np.argsort(columns)
    places = np.concatenate([np.arange(indptr[v], indptr[v + 1]) for v in order])
    for threads in THREADS:
        new_indptr, new_indices = relabel_graph(indptr, indices, columns, sources, threads)
        np.testing.assert_array_equal(np.diff(new_indptr), np.diff(indptr)[order])
        np.testing.assert_array_equal(new_indices, sources[indices[places]])


def test_offsets_name_what_does_not_fit():
    indptr, columns = np.array([0, 1, 3]), np.array([1, 0])
    for arguments, message in [
        ((indptr, columns[:1]), "dst_old_to_new has 1 entries for 2 columns"),
        ((indptr, np.array([0, 2])), r"dst_old_to_new\[1\] is 2, outside 0\.\.1"),
        # Which of the two columns' degrees, 1 or 2, place 1 keeps is left to the threads.
        ((indptr, np.array([1, 1])), "is not a permutation: .* have [12] entries, the graph has 3"),
        ((np.array([0, 3, 2]), columns), "indptr decreases from 3 at 1 to 2 at 2"),
        ((indptr, columns.astype(float)), "dst_old_to_new: expected contiguous 1-D int32 or int64"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.relabel_indptr(*arguments, 2)


def test_windows_name_what_does_not_fit():
    indptr, indices = np.array([0, 1, 3]), np.array([0, 1, 2], np.int32)
    columns, sources, starts = np.array([1, 0]), np.array([2, 1, 0]), np.array([0, 2])
    out = np.zeros(12, np.uint8)
    for arguments, message in [
        ((indices, 1, indptr, columns, 3, 0, 0, starts, out), "the chunk ends at entry 4, but indptr at 3"),
        ((indices[1:], 1, indptr, columns, 2, 0, 0, starts, out), r"indices\[2\] is 2, outside 0\.\.1"),
        ((indices, 0, indptr, columns[1:], 3, 0, 0, starts, out), "dst_old_to_new has 1 entries for 2 columns"),
        ((indices, 0, indptr, columns, 3, 0, 0, starts, out[1:]), "out: expected contiguous uint8 array of whole"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.place_indices(*arguments, 2)
    for part in (sources, sources[1:]):
        entries = np.array([1, 3], np.int32).view(np.uint8)
        with pytest.raises(ValueError, match="the window has an entry that is not a source"):
            native.rename_sources(entries, part, 3 - part.size, 3, 2)
    with pytest.raises(ValueError, match="src_old_to_new: expected new ids of sources below num_src"):
        native.rename_sources(out, sources, 1, 3, 2)


@given(st.integers(1, 40), st.sampled_from([1, 3, 64, 512, 1000]), st.integers(0, 60), st.booleans())
def test_gather_copies_rows(rows, row_bytes, count, padded):
    random = np.random.default_rng(rows * row_bytes + count)
    table = random.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    ids = random.integers(0, rows, count)
    for threads in THREADS:
        out = np.full((count, row_bytes + 24 * padded), 0xEE, np.uint8)
        native.gather_rows(table, ids, out[:, :row_bytes], threads)
        np.testing.assert_array_equal(out[:, :row_bytes], table[ids])
        assert (out[:, row_bytes:] == 0xEE).all()


def test_gather_names_what_does_not_fit():
    table, out = np.zeros((4, 8), np.uint8), np.zeros((2, 8), np.uint8)
    for arguments, message in [
        ((table, np.array([0, 4]), out), r"ids\[1\] is 4, outside the table's 4 rows"),
        ((table, np.array([0]), out), "out has 2 rows for 1 ids"),
        ((table[:, ::2], np.array([0, 1]), out), "table: expected C-contiguous"),
        ((table, np.array([0, 1]), out[:, :4]), "out: expected 2-D uint8 array with rows as long as"),
        ((table.astype(np.int8), np.array([0, 1]), out), "table: expected C-contiguous 2-D uint8 array"),
    ]:
        with pytest.raises(ValueError, match=message):
            native.gather_rows(*arguments)


SHAPES = {
    "wide": lambda random, n: random.lognormal(0, 20, n),
    "narrow": lambda random, n: 1 + random.integers(0, 1 << 40, n) * 2.0**-52,  # one prefix, hardly a tie
    "few values": lambda random, n: random.integers(0, 5, n) / 7,
    "one value": lambda random, n: np.full(n, 0.25),
    "runs": lambda random, n: np.round(random.random(n), 4) + random.integers(0, 2, n) * 2.0**-50,
    "signs": lambda random, n: np.where(random.random(n) < 0.3, -0.0, random.normal(0, 1, n)),
    "infinite": lambda random, n: np.where(random.random(n) < 0.3, np.inf, -random.random(n)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [0, 1, 40_000, 1_200_000])
def test_scores_sorted_by_buckets(shape, n):
    """As numpy's stable sort, for distributions that make small, large and uniform buckets; in chunks and at once."""
    scores = SHAPES[shape](np.random.default_rng(3), n)
    expected = np.argsort(-scores, kind="stable")
    for threads in (1, 3):
        np.testing.assert_array_equal(native.sort_by_score(scores, threads), expected)
        sorter = native.ScoreSorter(n, threads)
        for take in (sorter.count, sorter.place):
            for first in range(0, n, 500_007):
                take(scores[first : first + 500_007])
        np.testing.assert_array_equal(sorter.finish(), expected)


def test_a_sorter_says_what_does_not_fit():
    sorter = native.ScoreSorter(3)
    sorter.count(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="the score of node 2 is NaN"):
        sorter.count(np.array([np.nan]))
    with pytest.raises(ValueError, match="expected 3 scores, found 2"):
        sorter.place(np.array([1.0]))
    with pytest.raises(ValueError, match="expected 3 scores, found more"):
        sorter.count(np.ones(2))
    sorter.count(np.ones(1))
    sorter.place(np.array([5.0, 5.0]))
    with pytest.raises(ValueError, match="expected 3 scores, found 2"):
        sorter.finish()
    changed = native.ScoreSorter(1 << 17)
    changed.count(np.linspace(1, 1e9, 1 << 17))
    with pytest.raises(ValueError, match="the scores changed"):
        changed.place(np.full(1 << 17, 1e9))
