"""The model of submissions against queues of SSDs, event by event."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.accumulator import SubmissionModel, merged_batches
from tiering.errors import InputError

OPTANE = SubmissionModel(1.5e6, 11e-6, 25e-6, 5e-6)
MODELS = st.builds(
    SubmissionModel,
    st.floats(1e3, 1e7),
    st.floats(1e-6, 1e-2),
    st.floats(0, 1e-3),
    st.floats(0, 1e-3),
    st.integers(1, 16),
)


def achieved(model: SubmissionModel, reads: int) -> float:
    """Share of the peak, by events: reads reach the SSDs in turn, each SSD answers one at a time at its peak rate, and
    an answer is under way for the latency; the submission ends after the last of them.
    """
    free = [model.startup] * model.ssds
    arriving: list[float] = []
    for k in range(reads):
        free[k % model.ssds] += 1 / model.reads_per_second
        heapq.heappush(arriving, free[k % model.ssds] + model.latency)
    now = model.startup
    while arriving:
        now = heapq.heappop(arriving)
    return reads / (now + model.termination) / (model.reads_per_second * model.ssds)


@pytest.mark.parametrize("ssds", [1, 2, 5])
@pytest.mark.parametrize("each", [1, 40, 700, 5000])
@pytest.mark.parametrize("latency", [11e-6, 324e-6])
def test_share_is_that_of_the_queues(ssds, each, latency):
    model = replace(OPTANE, latency=latency, ssds=ssds)
    assert model.share(each * ssds) == pytest.approx(achieved(model, each * ssds), rel=1e-9)


def test_reads_that_do_not_divide_evenly():
    """The SSD with one more read ends later, by one read."""
    model = replace(OPTANE, ssds=4)
    for reads in (1001, 1002, 1003):
        assert achieved(model, 1004) * reads / 1004 == pytest.approx(achieved(model, reads))
        assert achieved(model, reads) <= model.share(reads) <= achieved(model, reads) * 1.004


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("ssds", [1, 3])
def test_fewest_reads_by_the_queues(share, ssds):
    """One read less for each SSD does not suffice in the queues either."""
    model = replace(OPTANE, ssds=ssds)
    each = math.ceil(model.reads(share) / ssds)
    assert achieved(model, each * ssds) >= share - 1e-12
    assert each == 1 or achieved(model, (each - 1) * ssds) < share


def test_figures_of_the_paper():
    """For 95 % of one Optane's peak; as printed, one SSD and its latency within the start-up or beside it."""
    least = SubmissionModel(1.5e6, 25e-6, 0, 5e-6).reads(0.95)
    assert (least, OPTANE.reads(0.95)) == (855, 1169)
    samsung = SubmissionModel(7e5, 324e-6, 25e-6, 5e-6)
    assert samsung.reads(0.95) == math.ceil(19 * Fraction(7 * 354, 10))


@given(MODELS, st.floats(1e-3, 0.999))
def test_reads_and_share_are_inverse(model, share):
    reads = model.reads(share)
    assert model.share(reads) >= share
    assert reads == 1 or model.share(reads - 1) < share


@given(MODELS, st.integers(1, 10**7))
def test_share_and_reads_are_inverse(model, reads):
    share = model.share(reads)
    assume(share < 1 - 1e-6)  # nearer to 1 a double does not tell one number of reads from the next
    assert share > 0 and model.reads(share) == reads


@given(MODELS, st.floats(0.01, 0.99))
def test_more_ssds_want_more_in_proportion(model, share):
    one, many = replace(model, ssds=1).reads(share), model.reads(share)
    assert (one - 1) * model.ssds < many <= one * model.ssds


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 120))
def test_merged_batches_by_sums(rows, reads):
    """Ends of submissions by running sums: each is the first place from the last end on that has enough."""
    sums, ends, begin = np.cumsum([0, *rows]), [], 0
    while begin < len(rows):
        enough = np.flatnonzero(sums[begin:] - sums[begin] >= reads)
        begin = begin + int(enough[0]) if len(enough) else len(rows)
        ends.append(begin)
    assert np.cumsum(merged_batches(rows, reads)).tolist() == ends


def test_rows_of_memory_do_not_count():
    """Of 1000 rows of a batch the tiers in memory serve none, half, nine in ten: 855 reads take 1, 2, 9 batches."""
    for served, batches in ((0, 1), (500, 2), (900, 9)):
        assert merged_batches([1000 - served] * 18, 855) == [batches] * (18 // batches)
    assert merged_batches([100] * 4, 855) == [4] and merged_batches([], 855) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"reads_per_second": 0},
        {"reads_per_second": math.inf},
        {"latency": 0},
        {"latency": math.nan},
        {"startup": -1e-6},
        {"termination": -1e-6},
        {"ssds": 0},
        {"ssds": 1.5},
        {"ssds": True},
    ],
)
def test_bad_models(wrong):
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name}: expected .*, found"):
        replace(OPTANE, **wrong)


def test_bad_requests():
    for share in (0, 1, -0.5, 1.5, math.nan):
        with pytest.raises(InputError, match="share: expected more than 0 and less than 1"):
            OPTANE.reads(share)
    with pytest.raises(InputError, match="reads: expected at least 0, found -1"):
        OPTANE.share(-1)
    with pytest.raises(InputError, match="reads: expected at least 1, found 0"):
        merged_batches([1], 0)
    with pytest.raises(InputError, match=r"ssd_rows\[1\]: expected at least 0, found -2"):
        merged_batches([1, -2], 5)
    assert OPTANE.share(0) == 0
