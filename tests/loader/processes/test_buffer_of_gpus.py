"""Ranks with a GPU each that read one buffer: on simulated devices, whose kernels may read slots for long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rank_processes import ROWS, expect_epoch
from tight_memory import ROW_BYTES


@pytest.fixture
def options(options: dict[str, Any], gpu: Any) -> dict[str, Any]:
    """Of the CPU's tests, with a GPU."""
    return {**options, "device": "cuda", "prefetch": 3}


@pytest.fixture
def tiers() -> tuple[int, int, int]:
    """No peer tier: 2900 rows are on ssd."""
    return 20, 0, 80


@pytest.fixture
def num_seeds() -> int:
    """Half as many: devices are simulated."""
    return 60


def test_gpus_read_one_buffer(start: Any, alone: Any) -> None:
    """Little room, two epochs, kernels that are late: batches are right, slots lie in memory that both ranks lock."""
    with start() as ranks:
        ranks.open_tight(60)
        ranks.all("late", 0.01)
        for epoch in (0, 1):
            expect_epoch(ranks.all("epoch in step", epoch), alone(epoch))
        mappings = ranks.all("mappings")
        assert set(mappings[0]) == set(mappings[1])  # the same inodes: tiers and slots
        assert list(mappings[0].values()).count("tiering-buffer") == 1
        assert ranks.all("locks the buffer") == [True] * 2
        counters = ranks.all("counters")
        whole = counters[0]["whole"]
        assert sum(c["own"]["rows"] for c in counters) == whole["rows"] > 0
        assert sum(c["own"]["batches"] for c in counters) == whole["batches"] == 2 * 2 * 8
        assert whole["rows_read"] < whole["rows_needed"] <= whole["rows"]
        assert ranks.all("left_over") == [[]] * 2
        assert ranks.all("drop") == [[]] * 2
        assert ranks.all("registered") == [1, 1]  # the cpu tier, which the layout keeps


@pytest.mark.parametrize("order", [pytest.param("epoch", marks=pytest.mark.slow), "epoch in step"])
def test_the_smallest_buffer_of_gpus_and_kernels_that_are_late(order: str, start: Any, alone: Any) -> None:
    """Slots that one rank's kernels read are wanted by the other; a rank that trains waits for it, and holds some."""
    with start(window=1) as ranks:
        ranks.open_tight(0)
        ranks.all("late", 0.01)
        expect_epoch(ranks.all(order, 0), alone(0))
        assert ranks.all("left_over") == [[]] * 2


@pytest.mark.parametrize("leaver", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_slots_of_a_gpu_that_breaks_off_are_kept_while_its_kernels_read(leaver: int, start: Any, alone: Any) -> None:
    """The other rank gets all its batches, and the next epoch is whole."""
    whole = alone(0)
    with start() as ranks:
        ranks.open_tight(60)
        ranks.one(0, "note releases")
        ranks.one(leaver, "late", 0.2)
        ranks.ask(leaver, "epoch", 0, 1)
        ranks.ask(1 - leaver, "epoch", 0)
        assert len(ranks.answer(leaver)) == 1
        share = ranks.answer(1 - leaver)
        assert len(share) == 8
        for index, _, rows in share:
            np.testing.assert_array_equal(rows, whole[index][1])
        released = [when for number, when in ranks.one(0, "releases") if number == leaver]
        ended = ranks.one(leaver, "ends")
        assert 1 < len(ended) <= len(released)  # others were on their way to the rank when it left
        assert all(end < release for end, release in zip(ended, released, strict=False))
        expect_epoch(ranks.all("epoch", 1), alone(1))


def test_rows_that_fit_are_locked_in_memory_that_gpus_share(start: Any, alone: Any) -> None:
    with start() as ranks:
        assert ranks.all("open with", 1 << 28) == ["memory"] * 2
        expect_epoch(ranks.all("epoch", 0), alone(0))
        mappings = ranks.all("mappings")
        assert set(mappings[0]) == set(mappings[1])
        shared = sum(sum(parts) for parts in ranks.all("proportional"))
        assert 0.95 * ROWS * ROW_BYTES < shared <= 1.1 * ROWS * ROW_BYTES  # the cpu tier, rows of the ssd tier: once
