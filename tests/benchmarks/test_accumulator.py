"""The model of submissions: figures of its paper, and reads kept in flight, event by event."""

from __future__ import annotations

import heapq
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accumulator import SubmissionModel, merged_batches
from tiering.readahead.disk_speed import DiskSpeed, QueueDepth

OPTANE = SubmissionModel(1.5e6, 11e-6, 25e-6, 5e-6)
LATENCIES = st.floats(0, 1e-3)
MODELS = st.builds(
    SubmissionModel, st.floats(1e3, 1e7), st.floats(1e-6, 1e-2), LATENCIES, LATENCIES, st.integers(1, 16)
)


def test_figures_of_the_paper():
    """For 95 % of one Optane's peak; as printed, one SSD and its latency within the start-up or beside it."""
    least = SubmissionModel(1.5e6, 25e-6, 0, 5e-6).reads(0.95)
    assert (least, OPTANE.reads(0.95)) == (855, 1169)
    samsung = SubmissionModel(7e5, 324e-6, 25e-6, 5e-6)
    assert samsung.reads(0.95) == math.ceil(19 * Fraction(7 * 354, 10))


def kept_in_flight(model: SubmissionModel, depth: int, reads: int = 20_000) -> float:
    """Share of the peak, by events: as many reads are always in flight, each begun when one has been answered."""
    free, done, now = 0.0, [0.0] * depth, 0.0
    for _ in range(reads):
        now = heapq.heappop(done)
        free = max(free, now) + 1 / model.reads_per_second
        heapq.heappush(done, free + model.latency)
    return reads / max(done) / model.reads_per_second


@pytest.mark.parametrize("depth", [1, 40, 128, 200, 227, 400])
@pytest.mark.parametrize(("reads", "latency"), [(7e5, 324e-6), (1.5e6, 11e-6), (1e6, 100e-6)])
def test_the_loaders_depth_keeps_disks_busy(reads, latency, depth):
    """Reads in flight by Little's law are those that the accumulator's disks could answer in their latency."""
    model, disk = SubmissionModel(reads, latency - 1 / reads), DiskSpeed(reads, 1e10, latency)
    assert kept_in_flight(model, depth) == pytest.approx(disk.peak_share(depth), rel=0.03)
    chosen = QueueDepth.choose("auto", disk, 1)
    assert kept_in_flight(model, chosen.depth) == pytest.approx(1, rel=0.03)
    samsung = QueueDepth.choose("auto", DiskSpeed(7e5, 1e10, 324e-6), 1)
    assert samsung.depth == math.ceil(SubmissionModel(7e5, 324e-6).idle) == 227


@given(MODELS, st.floats(1e-3, 0.999))
def test_reads_and_share_are_inverse(model, share):
    reads = model.reads(share)
    assert model.share(reads) >= share
    assert reads == 1 or model.share(reads - 1) < share


def test_rows_of_memory_do_not_count():
    """Of 1000 rows of a batch the tiers in memory serve none, half, nine in ten: 855 reads take 1, 2, 9 batches."""
    for served, batches in ((0, 1), (500, 2), (900, 9)):
        assert merged_batches([1000 - served] * 18, 855) == [batches] * (18 // batches)
    assert merged_batches([100] * 4, 855) == [4] and merged_batches([], 855) == []
