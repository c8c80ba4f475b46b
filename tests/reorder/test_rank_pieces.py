"""Order by score in pieces: the same as in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tiering import native
from tiering.reorder.arrays import Sizes
from tiering.reorder.rank import ScoreRanges, descending_keys

any_scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.floats(allow_nan=False))
few_scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, 1e-300]))


@pytest.mark.slow
@settings(max_examples=80)
@given(scores=st.one_of(any_scores, few_scores), piece=st.integers(1, 80), bins=st.sampled_from([2, 7, 4096]))
def test_pieces_are_the_order(scores, piece, bins):
    pieces = list(ScoreRanges(scores, piece, 2, Sizes(score_bins=bins)).pieces())
    found = np.concatenate([np.empty(0, np.int32), *pieces])
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, native.sort_by_score(scores, 2))
    assert all(len(each) <= piece or np.unique(scores[each] + 0.0).size == 1 for each in pieces)


@given(st.one_of(any_scores, few_scores))
def test_keys_ascend_as_scores_fall(scores):
    keys = descending_keys(scores)
    order = np.lexsort((np.arange(scores.size), keys))
    np.testing.assert_array_equal(order, native.sort_by_score(scores, 1))


def test_chunks():
    scores = np.random.default_rng(0).zipf(1.5, 3000).astype(float)
    ranges = ScoreRanges(scores, 200, 1, Sizes(scores=100))
    np.testing.assert_array_equal(np.concatenate(list(ranges.pieces())), native.sort_by_score(scores, 1))
    scores[2345] = np.nan
    with pytest.raises(ValueError, match="the score of node 2345 is NaN"):
        list(ranges.pieces())
