"""Ranks of one machine that hold tiers and the buffer once: what they read and hold, and do when one of them goes."""

from __future__ import annotations

import os
import re
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from rank_processes import ROWS, batches_alone, expect_epoch
from tight_memory import ROW_BYTES

from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tables.ssd_buffer import SsdBuffer

READ = ("rows_needed", "rows_read", "reads", "read_bytes", "used_bytes")
"""Counters of what is read for all ranks, which is divided among them."""


def expect_shares(ranks: Any, names: tuple[str, ...] = ("batches", "rows", *READ)) -> None:
    """What the ranks count adds up to what the owner counts."""
    counters = ranks.all("counters")
    shares = {name: [c["own"][name] for c in counters] for name in names}
    assert {name: sum(share) for name, share in shares.items()} == {name: counters[0]["whole"][name] for name in names}
    assert all(min(share) > 0 for share in shares.values())


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.long), 4])
def test_ranks_read_through_one_buffer(size: int, start: Any, alone: Any) -> None:
    """Little room, two epochs: rows are right, a process holds no slots of its own, and all counts add up."""
    with start(size) as ranks:
        kinds = ranks.all("open", 60)
        assert kinds == ["look-ahead"] * size
        for epoch in (0, 1):
            expect_epoch(ranks.all("epoch in step", epoch), alone(epoch, size))
        expect_shares(ranks)
        mappings = ranks.all("mappings")
        assert all(set(found) == set(mappings[0]) for found in mappings)  # the same inodes: tiers and slots
        assert "tiering-buffer" in mappings[0].values()
        counters = ranks.all("counters")
        whole = counters[0]["whole"]
        assert whole["batches"] == 2 * size * -(-30 // size)
        assert whole["rows_read"] < whole["rows_needed"] <= whole["rows"]
        assert ranks.all("left_over") == [[]] * size
        assert ranks.all("drop") == [[]] * size


def test_ranks_with_tiers_of_other_sizes(start: Any, alone: Any) -> None:
    """Tiers are in memory once, and rows are taken in turn where batches may come as they are ready."""
    with start(in_order=False, gpu="4%", cpu="20%") as ranks:
        assert ranks.all("open", 60) == ["look-ahead"] * 2
        expect_epoch(ranks.all("epoch", 0), alone(0))
        mappings = ranks.all("mappings")
        assert set(mappings[0]) == set(mappings[1]) and len(mappings[0]) == 5  # gpu tier, 2 of peers, cpu, slots


def test_ranks_whose_lists_exceed_memory_sample_by_windows(start: Any, alone: Any) -> None:
    """Through one buffer, of two epochs; each rank has windows of its own."""
    with start() as ranks:
        ranks.all("lists exceed memory")
        ranks.open_tight(60)
        for epoch in (0, 1):
            expect_epoch(ranks.all("epoch", epoch), alone(epoch))
        for lists in ranks.all("lists"):
            assert lists["batches"] >= 2 * 15
            assert lists["largest_window"] > 1


def test_ranks_deliver_the_dtype_that_is_asked_for(layout: Any, options: dict[str, Any], start: Any) -> None:
    """One buffer of rows as they are stored, which each rank converts."""
    options = {**options, "dtype": "float16"}
    with start(dtype="float16") as ranks:
        assert ranks.all("open", 60) == ["look-ahead"] * 2
        expect_epoch(shares := ranks.all("epoch", 0), batches_alone(layout, options, 0))
        assert shares[0][0][2].dtype == np.float16


@pytest.mark.parametrize("windows", [False, True])
def test_ranks_that_begin_in_the_middle_of_an_epoch(start: Any, alone: Any, windows: bool) -> None:
    """The first epoch of new processes, whose batches the owner tries; the rows of skipped batches are not read."""
    whole = alone(1, 3)
    with start(3) as ranks:
        if windows:
            ranks.all("lists exceed memory")
        ranks.all("open", 60)
        shares = ranks.all("epoch", 1, None, 4)
        assert [[index for index, *_ in share] for share in shares] == [[*range(12 + rank, 30, 3)] for rank in range(3)]
        for index, seeds, rows in (batch for share in shares for batch in share):
            np.testing.assert_array_equal(seeds, whole[index][0])
            np.testing.assert_array_equal(rows, whole[index][1])
        assert ranks.all("counters")[0]["whole"]["batches"] == 18
        expect_epoch(ranks.all("epoch", 2), alone(2, 3))


def test_rows_are_read_once_for_all_ranks(layout: Any, options: dict[str, Any], start: Any) -> None:
    """Where the buffer holds what the epoch needs: rows read are those of the union of all batches."""
    sample = layout.loader(**options, features=None, rank=0, world_size=1)
    first = layout.artifact.type_layout("node").ranges["ssd"][0]
    union = {int(node) for batch in sample.epoch(0) for node in batch.nodes["node"] if node >= first}
    with start() as ranks:
        assert ranks.all("open", len(union)) == ["look-ahead"] * 2
        ranks.all("epoch", 0)
        counters = ranks.all("counters")
        assert counters[0]["whole"]["rows_read"] == len(union) < counters[0]["whole"]["rows"]
        expect_shares(ranks)
        ranks.all("reset counters")
        ranks.all("epoch", 0)
        again = ranks.all("counters")
        assert again[0]["whole"]["rows_read"] == len(union) and sum(c["own"]["rows_read"] for c in again) == 0
        assert sum(c["own"]["rows"] for c in again) == again[0]["whole"]["rows"] - counters[0]["whole"]["rows"]


def test_an_epoch_waits_for_the_one_before_it_to_end(start: Any, alone: Any) -> None:
    """No epoch reads without the buffer because all ranks have only just left it."""
    with start() as ranks:
        ranks.open_tight(60)
        ranks.all("end_late", 0.2)
        for epoch in range(3):
            expect_epoch(ranks.all("epoch", epoch), alone(epoch))
        assert ranks.all("counters")[0]["whole"]["batches"] == 3 * 2 * 15


def test_rows_that_fit_are_in_memory_once(start: Any, alone: Any) -> None:
    with start() as ranks:
        assert ranks.all("open", 1 << 16) == ["memory"] * 2
        expect_epoch(ranks.all("epoch", 0), alone(0))
        mappings = ranks.all("mappings")
        assert set(mappings[0]) == set(mappings[1])
        proportional = [sum(found) for found in ranks.all("proportional")]
        assert sum(proportional) <= 1.1 * (ROWS * ROW_BYTES)  # tiers and the rows of the ssd tier, once


def test_a_rank_that_breaks_off_is_left_out(start: Any, alone: Any) -> None:
    """The owner, then another one; the others get all their batches, and the next epoch is whole."""
    whole = alone(0)
    with start(3) as ranks:
        ranks.all("open", 60)
        for leaver in (0, 2):
            for rank in range(3):
                ranks.ask(rank, *(("epoch", 0, 2) if rank == leaver else ("epoch", 0)))
            shares = [ranks.answer(rank) for rank in range(3)]
            assert len(shares[leaver]) == 2
            for rank in {0, 1, 2} - {leaver}:
                assert len(shares[rank]) == 10
                for index, _, rows in shares[rank]:
                    np.testing.assert_array_equal(rows, whole[index][1])
        expect_shares(ranks, ("rows", *READ))
        expect_epoch(ranks.all("epoch", 1), alone(1))
        assert ranks.all("left_over") == [[]] * 3


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_is_killed_is_named_by_the_others(killed: int, start: Any, alone: Any) -> None:
    """In the middle of an epoch, and at the begin of the next; new processes start anew."""
    size = 2 + (killed > 0)
    with start(size) as ranks:
        ranks.all("open", 60)
        assert ranks.all("pause", 0, 2) == ["paused"] * size
        pid = ranks.kill(killed)
        others = [rank for rank in range(size) if rank != killed]
        for order in (("go on",), ("epoch", 1)):
            for rank in others:
                ranks.ask(rank, *order)
            for rank in others:
                said = ranks.answer(rank)
                assert said[0] == "DeviceError"
                assert re.search(rf"rank {killed} \(process {pid}\).* has ended", said[1]), said
        for rank in others:
            assert ranks.one(rank, "left_over") == []
    if killed:
        return
    with start() as ranks:
        ranks.all("open", 60)
        expect_epoch(ranks.all("epoch", 0), alone(0))


def test_an_owner_that_is_done_first_waits_for_the_others(start: Any) -> None:
    """Its process ends normally, before its server has heard that it is done; the other rank gets its batches."""
    with start() as ranks:
        ranks.all("open", 700)  # so that nobody waits for slots
        ranks.all("pause", 0, 1)
        ranks.one(0, "hear late", 0.03)
        assert len(ranks.one(0, "go on")) == 14
        assert ranks.one(0, "end") == "ending"
        assert len(ranks.one(1, "go on")) == 14
        ranks.processes[0].join()
        assert ranks.processes[0].exitcode == 0


def test_an_owner_ends_after_the_thread_that_reads_for_all(start: Any) -> None:
    """If that thread came back from the core later, it would abort the process: its exit code would be a failure."""
    with start() as ranks:
        ranks.all("open", 60)
        ranks.one(0, "end late", 1.0)
        ranks.all("epoch", 0)
        assert ranks.one(0, "end") == "ending"
        assert ranks.answer(0) is False


def test_a_buffer_ends_its_core_before_its_memory_goes() -> None:
    """Any thread may drop it last. Unmapping releases the lock of the interpreter: once that ends no thread gets it."""
    buffer, seen = SsdBuffer.__new__(SsdBuffer), list[bool]()
    buffer.memory = SharedBlock("slots", np.empty(1, np.uint8))
    memory, core = weakref.ref(buffer.memory), threading.Lock()
    weakref.finalize(core, lambda: seen.append(memory() is not None))
    buffer._native = core  # type: ignore[assignment]
    del core, buffer
    assert seen == [True] and memory() is None


def test_an_owner_that_ends_in_the_middle_is_named(start: Any) -> None:
    with start() as ranks:
        ranks.all("open", 60)
        ranks.all("pause", 0, 1)
        ranks.lines[0].close()
        ranks.processes[0].join()
        assert ranks.processes[0].exitcode == 0
        kind, message = ranks.one(1, "go on")
        assert kind == "DeviceError" and f"rank 0 (process {ranks.processes[0].pid})" in message


def test_an_image_that_is_truncated_is_an_error_for_every_rank(layout: Any, start: Any, alone: Any) -> None:
    image = layout.artifact.images[1]
    whole = image.read_bytes()
    expected = alone(1)
    with start() as ranks:
        ranks.all("open", 60)
        ranks.all("epoch", 0)
        os.truncate(image, 0)
        for kind, message in ranks.all("epoch", 2):
            assert kind == "StorageError" and image.name in message and "the file was truncated" in message
        with image.open("r+b") as file:
            file.write(whole)
        expect_epoch(ranks.all("epoch", 1), expected)


def test_a_rank_that_does_not_begin_is_named_in_a_warning(start: Any) -> None:
    with start() as ranks:
        ranks.all("open", 60, 0.3)  # seconds of patience
        ranks.one(0, "tell warnings")
        ranks.ask(0, "epoch", 0)
        warning = ranks.answer(0)
        pid = ranks.processes[1].pid
        assert f"the other processes still wait for rank 1 (process {pid}) to start it" in warning
        ranks.ask(1, "epoch", 0)
        assert len(ranks.answer(1)) == 15
        while isinstance(share := ranks.answer(0), str):
            assert "the other processes still wait" in share
        assert len(share) == 15


def test_other_loaders_and_too_little_memory_are_errors_for_every_rank(start: Any) -> None:
    with start() as ranks:
        ranks.ask(0, "open", 60)
        ranks.ask(1, "open", 60, None, {"seed": 8})
        for rank in range(2):
            kind, message = ranks.answer(rank)
            assert kind == "InputError" and "sampling: all processes of this machine must make the same" in message
        ranks.all("open", None)
        answers = [ranks.one(0, "epoch", 0)]
        ranks.ask(0, "drop")
        ranks.ask(1, "epoch", 0)  # late: the owner gives up its loader, and is still heard
        answers.append(ranks.answer(1))
        for kind, message in answers:
            assert kind == "BudgetError" and "the loader's buffer for rows of the ssd tier" in message
        assert ranks.answer(0) == []


def test_epochs_side_by_side_and_in_a_fork_read_by_themselves(start: Any, alone: Any) -> None:
    """The second of two epochs that go on at once, on all ranks, and one in a forked child, which knows no other."""
    with start() as ranks:
        ranks.all("open", 60)
        shares = ranks.all("side by side", 0, 1)
        for epoch in (0, 1):
            expect_epoch([share[epoch] for share in shares], alone(epoch))
        assert ranks.one(0, "in a fork", 1) == 15
        expect_epoch(ranks.all("epoch", 1), alone(1))
        assert ranks.all("left_over") == [[]] * 2
