"""Slots of the buffer in front of the ssd tier, for whoever reads them without a copy: where they lie, how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
from row_buffers import Batch, Epoch, Rows, random_batches, within
from striped_rows import Striped

from tiering import native
from tiering.errors import RefusedError

WIPED = 0xEE


@pytest.fixture
def rows(tmp_path):
    """Three tables in two pools of slots."""
    return Rows(tmp_path, Striped([(300, 512), (60, 5732), (80, 512)], 4096, 2, 1), cached=5)


def find(rows: Rows, buffer: Any, number: int, batch: Batch, part: int = 0) -> tuple[list[np.ndarray], bool]:
    """Slots of a part of a batch, per table, `WIPED` where none was written; whether it is the last part."""
    ids = [np.array(some, np.int64) for some in batch]
    found = [np.full(one.size, WIPED, np.uint32) for one in ids]
    slots, places, of_batch, last = buffer.take(number, part)
    native.spread_slots(slots, places, of_batch, [rows.cached] * len(ids), rows.firsts, ids, found)
    return found, last


def whole(rows: Rows, batches: list[Batch], spare: int = 0) -> dict[int, int]:
    """Slots of which each batch takes so few that it comes in one part."""
    return {size: 8 * number for size, number in rows.slots(batches, spare).items()}


def check(rows: Rows, batch: Batch, slots: list[np.ndarray]) -> None:
    """The slots hold the rows of the batch."""
    for ids, truth, origin, found in zip(batch, rows.truth, rows.origins, slots, strict=True):
        size = truth.shape[1]
        for one, slot in zip(ids, found.tolist(), strict=True):
            at = origin + slot * size
            assert slot == WIPED if one < rows.cached else (rows.arena[at : at + size] == truth[one]).all()


@pytest.mark.parametrize("held", [0, 1, 3])
@pytest.mark.parametrize("spare", [0, 40])
def test_slots_hold_the_rows_of_a_batch_until_it_is_released(rows, held, spare):
    """The last `held` batches stay in use as long as the next one is there: nothing is read into their slots."""
    batches = random_batches(rows, 40, 12)
    buffer = rows.buffer(whole(rows, batches, spare))

    def work() -> None:
        epoch, in_use = Epoch(buffer, batches, window=1, horizon=0), []
        try:
            for number, batch in enumerate(batches):
                asked = asking.submit(find, rows, buffer, number, batch)
                while in_use and (len(in_use) > held or not wait([asked], 0.05).done):
                    buffer.release(in_use.pop(0)[0])  # its slots may be wanted
                slots, last = asked.result()
                assert last
                in_use.append((number, batch, slots))
                for _, known, slots in in_use:
                    check(rows, known, slots)
        finally:
            epoch.close()
        assert epoch.error is None

    with ThreadPoolExecutor(1) as asking:
        within(60, work)


def test_parts_of_batches_larger_than_the_buffer(rows):
    """Each row comes once, in one of the parts; the others know nothing of it."""
    batches = random_batches(rows, 6, 60)
    buffer = rows.buffer({512: 17, 5732: 9})

    def work() -> None:
        epoch = Epoch(buffer, batches, window=2, horizon=1)
        try:
            for number, batch in enumerate(batches):
                came = [np.zeros(len(ids), np.int64) for ids in batch]
                part, last = 0, False
                while not last:
                    slots, last = find(rows, buffer, number, batch, part)
                    for ids, of_table, truth, origin, times in zip(
                        batch, slots, rows.truth, rows.origins, came, strict=True
                    ):
                        size = truth.shape[1]
                        for k in np.flatnonzero((of_table != WIPED) & (of_table != native.NO_SLOT)):
                            at = origin + int(of_table[k]) * size
                            assert (rows.arena[at : at + size] == truth[ids[k]]).all()
                            times[k] += 1
                    buffer.release(number, part)
                    part += 1
                assert part > 1
                for ids, times in zip(batch, came, strict=True):
                    assert times.tolist() == [int(one >= rows.cached) for one in ids]
        finally:
            epoch.close()
        assert epoch.error is None

    within(60, work)


def test_a_part_whose_slots_another_one_holds_is_waited_for(rows):
    """Where there is one slot, each row is a part, which is read when the one before is released."""
    batches: list[Batch] = [[[5, 6], [], []], [[8], [], []]]
    buffer = rows.buffer({512: 1, 5732: 1})

    def work() -> None:
        epoch = Epoch(buffer, batches, window=1, horizon=0)
        try:
            assert find(rows, buffer, 0, batches[0])[1] is False
            asked = asking.submit(find, rows, buffer, 0, batches[0], 1)
            assert wait([asked], 0.2).not_done
            buffer.release(0)
            assert asked.result()[1] is True
            epoch.feeder.join()
            buffer.release(0, 1)
            slots, last = find(rows, buffer, 1, batches[1])
            check(rows, batches[1], slots)
            assert last
        finally:
            epoch.close()
        with pytest.raises(RefusedError, match="the epoch was ended"):
            find(rows, buffer, 1, batches[1])

    with ThreadPoolExecutor(1) as asking:
        within(60, work)


@pytest.mark.parametrize(("ids", "sizes", "message"), [
    ([[5, 6], [], []], [2, 0, 0], "ids: expected those that the batch was planned with"),
    ([[5, 6, 7, 8], [], []], [4, 0, 0], "ids: expected those that the batch was planned with"),
    ([[5, 6, 7], [], []], [2, 0, 0], "outs: expected as many slots as ids"),
    ([[5, 6, 7], []], [3, 0], "ids, outs: expected 3 of each"),
])  # fmt: skip
def test_slots_of_other_ids_are_refused(rows, ids, sizes, message):
    batch: Batch = [[5, 6, 7], [], []]
    buffer = rows.buffer(whole(rows, [batch]))
    epoch = Epoch(buffer, [batch])
    try:
        held, wanted = buffer.take(0, 0)[:3], [np.array(some, np.int64) for some in ids]
        with pytest.raises(RefusedError, match=message):
            native.spread_slots(*held, [rows.cached] * 3, rows.firsts, wanted, [np.zeros(n, np.uint32) for n in sizes])
    finally:
        epoch.close()


def test_slots_that_another_process_tells_are_spread_over_ids_as_one_by_one():
    rng, begins, firsts = np.random.default_rng(3), [5, 0], [0, 40]
    ids = [rng.permutation(30)[:12].astype(np.int64), rng.permutation(20)[:7].astype(np.int64)]
    cold = [(t, k) for t in range(2) for k, one in enumerate(ids[t]) if one >= begins[t]]
    told = {place: firsts[cold[place][0]] + int(rng.integers(40)) for place in rng.permutation(len(cold))[:9].tolist()}
    slots, places = np.array(list(told.values()), np.uint32), np.array(list(told), np.uint32)
    outs = [np.full(some.size, WIPED, np.uint32) for some in ids]
    native.spread_slots(slots, places, len(cold), begins, firsts, ids, outs)
    expected = [[WIPED] * some.size for some in ids]
    for place, (t, k) in enumerate(cold):
        expected[t][k] = told[place] - firsts[t] if place in told else native.NO_SLOT
    assert [out.tolist() for out in outs] == expected
    places[0] = len(cold)
    with pytest.raises(RefusedError, match=rf"places: expected some of 0\.\.{len(cold) - 1}, found {len(cold)}"):
        native.spread_slots(slots, places, len(cold), begins, firsts, ids, outs)
    with pytest.raises(RefusedError, match="places: expected as many as slots"):
        native.spread_slots(slots, places[:-1], len(cold), begins, firsts, ids, outs)
    with pytest.raises(RefusedError, match="expected those that the batch was planned with"):
        native.spread_slots(slots[:3], places[:0], 3, begins, firsts, ids, outs)
