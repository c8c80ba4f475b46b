"""Slots of the buffer in front of the ssd tier, for whoever reads them without a copy: where they lie, how long."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiering.errors import RefusedError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # under pytest's importlib mode

from row_buffers import Batch, Epoch, Rows, random_batches, within
from striped_rows import Striped

WIPED = 0xEE


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Three tables in two pools of slots."""
    return Rows(tmp_path, Striped([(300, 512), (60, 5732), (80, 512)], 4096, 2, 1), cached=5)


def find(buffer: Any, number: int, batch: Batch) -> list[np.ndarray]:
    """Slots of a batch, per table; `WIPED` where none was written."""
    ids = [np.array(some, np.int64) for some in batch]
    slots = [np.full(one.size, WIPED, np.uint32) for one in ids]
    buffer.slots(number, ids, slots)
    return slots


def check(rows: Rows, buffer: Any, batch: Batch, slots: list[np.ndarray]) -> None:
    """The slots hold the rows of the batch."""
    for ids, truth, origin, found in zip(batch, rows.truth, buffer.origins, slots, strict=True):
        size = truth.shape[1]
        for one, slot in zip(ids, found.tolist(), strict=True):
            at = origin + slot * size
            assert slot == WIPED if one < rows.cached else (rows.arena[at : at + size] == truth[one]).all()


@pytest.mark.parametrize("held", [0, 1, 3])
@pytest.mark.parametrize("spare", [0, 40])
def test_slots_hold_the_rows_of_a_batch_until_it_is_released(rows, held, spare):
    """The last `held` batches stay in use as long as the next one is there: nothing is read into their slots."""
    batches = random_batches(rows, 40, 12)
    buffer = rows.buffer(rows.slots(batches, spare))

    def work() -> None:
        epoch, in_use = Epoch(buffer, batches, window=1, horizon=0), []
        try:
            for number, batch in enumerate(batches):
                while in_use and (len(in_use) > held or not buffer.ready(number)):
                    buffer.release(in_use.pop(0)[0])
                in_use.append((number, batch, find(buffer, number, batch)))
                assert buffer.ready(number)
                for _, known, slots in in_use:
                    check(rows, buffer, known, slots)
        finally:
            epoch.close()
        assert epoch.error is None

    within(60, work)


def test_a_batch_whose_slots_another_one_holds_is_not_ready(rows):
    """Of two batches that need the whole buffer each, the second is read when the first is released."""
    batches: list[Batch] = [[[5, 6, 7], [], []], [[8, 9, 10], [], []]]
    buffer = rows.buffer(rows.slots(batches))

    def work() -> None:
        epoch = Epoch(buffer, batches, window=1, horizon=0)
        try:
            first = find(buffer, 0, batches[0])
            epoch.feeder.join()
            assert not buffer.ready(1)
            check(rows, buffer, batches[0], first)
            buffer.release(0)
            check(rows, buffer, batches[1], find(buffer, 1, batches[1]))
            assert buffer.ready(1)
        finally:
            epoch.close()
        assert buffer.ready(1)  # whoever waits is told that the epoch was ended

    within(60, work)


@pytest.mark.parametrize(
    ("ids", "sizes", "message"),
    [
        ([[5, 6], [], []], [2, 0, 0], "ids: expected those that the batch was planned with"),
        ([[5, 6, 7, 8], [], []], [4, 0, 0], "ids: expected those that the batch was planned with"),
        ([[5, 6, 7], [], []], [2, 0, 0], "outs: expected as many slots as ids"),
        ([[5, 6, 7], []], [3, 0], "ids, outs: expected 3 of each"),
    ],
)
def test_slots_of_other_ids_are_refused(rows, ids, sizes, message):
    batch: Batch = [[5, 6, 7], [], []]
    buffer = rows.buffer(rows.slots([batch]))
    epoch = Epoch(buffer, [batch])
    try:
        with pytest.raises(RefusedError, match=message):
            buffer.slots(0, [np.array(some, np.int64) for some in ids], [np.zeros(n, np.uint32) for n in sizes])
    finally:
        epoch.close()
