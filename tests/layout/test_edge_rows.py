"""Scores of rows of edge features, against the best run of lists tried one by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tiering.layout.benefit_curve import Resolution
from tiering.layout.plan import EdgeScores


def best_runs(reads, degrees, fanout):
    """Per row, by position: the most reads per row of whole lists from its own on, and no more than rows before it."""
    drawn = [count * min(fanout, degree) for count, degree in zip(reads, degrees, strict=True)]
    rows = []
    for first, degree in enumerate(degrees):
        sums = [(sum(drawn[first:end]), sum(degrees[first:end])) for end in range(first + 1, len(degrees) + 1)]
        best = max((Fraction(value, size) for value, size in sums if size), default=Fraction(0))
        rows += [min([best, *rows[-1:]])] * degree
    return rows


@given(lists=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=12), fanout=st.integers(1, 4))
def test_a_row_counts_with_the_best_run_of_lists_that_begins_at_its_own(lists, fanout):
    reads, degrees = [[entry[k] for entry in lists] for k in (0, 1)]
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)]).astype(np.int64)
    values = np.array(reads, np.float64)
    scores = EdgeScores.of(indptr, lambda begin, end: values[begin:end], lambda d: np.minimum(d, fanout).astype(float))
    expected = [float(rate) for rate in best_runs(reads, degrees, fanout)]
    np.testing.assert_allclose(scores[:], expected, rtol=1e-12)
    np.testing.assert_array_equal([scores[row] for row in range(len(expected))], scores[:])
    np.testing.assert_array_equal(scores[1::3], scores[:][1::3])
    assert (np.diff(scores[:]) <= 0).all()


def test_many_lists_are_taken_in_blocks():
    random = np.random.default_rng(0)
    degrees, reads = random.integers(0, 6, 1000), np.sort(random.random(1000))[::-1]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    whole, blocks = (
        EdgeScores.of(indptr, lambda begin, end: reads[begin:end], lambda d: d.astype(float), Resolution(count, 64))
        for count in (1000, 50)
    )
    assert len(blocks.ends) == 50
    assert blocks.ends[-1] == whole.ends[-1] == indptr[-1]
    # Blocks of 20 lists: each row counts with a mean of its block.
    np.testing.assert_allclose(blocks[:], whole[:], atol=0.05)
    assert (np.diff(blocks[:]) <= 0).all()
