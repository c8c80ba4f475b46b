"""What a gather is told of its ids, as compiled: counts of each tier, the first bad id, rows for the host to read."""

from __future__ import annotations

import numpy as np
import pytest

from tiering import cuda

pytestmark = pytest.mark.slow
ENDS = [5, 9, 20, 40]
NO_SLOT = 2**32 - 1
TIER = np.searchsorted(ENDS, np.arange(40), side="right")


@pytest.fixture
def table(gpu):
    """16 bytes a row; the ssd tier is read by rank."""
    rows = np.arange(40 * 4, dtype=np.uint32).reshape(40, 4)
    parts = [np.ascontiguousarray(part) for part in np.split(rows, ENDS[:-1])]
    local, peer, cpu, ssd = (gpu.lend(part) for part in parts)
    table = cuda.RowTable(0, 16, ENDS, local, [peer], cpu, ssd)
    return rows, table, parts


def prepare(gpu, stream, gatherer, native, ids, by_address, slots=None):
    """Returns the place of the first bad id, and rows and places that the host is to read."""
    first_bad = np.array([ids.size], np.uint64)
    listed, places, count = (
        np.zeros(max(ids.size, 1), np.int64),
        np.zeros(max(ids.size, 1), np.uint32),
        np.zeros(1, np.uint32),
    )
    lists = [gpu.lend(listed), gpu.lend(places), gpu.lend(count)] if by_address else [0, 0, 0]
    gatherer.prepare(
        native, gpu.lend(ids), ids.size, stream.handle, by_address, 0 if slots is None else gpu.lend(slots),
        gpu.lend(first_bad), *lists,
    )  # fmt: skip
    stream.synchronize()
    return int(first_bad[0]), listed[: count[0]], places[: count[0]]


@pytest.mark.parametrize("count", [0, 1, 31, 33, 300])
@pytest.mark.parametrize("by_address", [False, True])
def test_requests(gpu, stream, table, count, by_address):
    rows, native, _ = table
    ids = np.random.default_rng(count).integers(0, 40, count)
    gatherer = cuda.RequestGatherer(0)
    for round_ in range(1, 3):  # totals add up
        bad, listed, places = prepare(gpu, stream, gatherer, native, ids, by_address)
        assert bad == count
        if by_address:
            of_ssd = np.flatnonzero(TIER[ids] == 3) if count else np.empty(0, np.int64)
            order = np.lexsort((of_ssd, ids[of_ssd]))
            assert np.array_equal(listed, ids[of_ssd][order] - ENDS[2])
            assert np.array_equal(places, of_ssd[order])
        out = np.zeros((count, 4), np.uint32)
        gatherer.gather(native, gpu.lend(out), stream.handle)
        stream.synchronize()
        assert np.array_equal(out, rows[ids])
        assert gatherer.totals() == (round_ * np.bincount(TIER[ids], minlength=4)).tolist() if count else True


def test_bad_ids_and_slots(gpu, stream, table, kernels):
    rows, native, _ = table
    ids = np.array([3, 39, 12, -5, 25, 40, 2**50, 22])
    slots = np.array([0, 4, 0, 0, NO_SLOT, 0, 0, 19], np.uint32)
    gatherer = cuda.RequestGatherer(0)
    bad, _, _ = prepare(gpu, stream, gatherer, native, ids, True, slots)
    assert bad == 3
    out = np.zeros((8, 4), np.uint32)
    gatherer.gather(native, gpu.lend(out), stream.handle)
    stream.synchronize()
    expected = np.zeros((8, 4), np.uint32)
    expected[[0, 1, 2, 7]] = rows[[3, 24, 12, 39]]
    assert np.array_equal(out, expected)
    assert gatherer.totals() == [1, 0, 1, 3]
    assert gpu.ran >= set(kernels["row_requests"])
