"""Processes of tests that train together, told what to do (`rank_programs`), and what their batches have to be."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import rank_programs
import warm_processes
from tight_memory import ROW_BYTES, needed_bytes

from tiering.loader.processes.machine import ProcessRank

ROWS = 3000
"""Nodes of the layout that they read."""


class Ranks:
    """Processes that train together, each told what to do by a line of its own."""

    def __init__(self, size: int, path: Path, folder: Path, options: dict[str, Any], simulated: bool) -> None:
        started = [
            warm_processes.start(rank_programs.serve, str(path), str(folder), rank, size, options, simulated)
            for rank in range(size)
        ]
        self.processes, self.lines = map(list, zip(*started, strict=True))

    def ask(self, rank: int, *order: Any) -> None:
        self.lines[rank].send(order)

    def answer(self, rank: int) -> Any:
        assert self.lines[rank].poll(120), f"rank {rank} says nothing"
        return self.lines[rank].recv()

    def one(self, rank: int, *order: Any) -> Any:
        """What one rank answers to an order."""
        self.ask(rank, *order)
        return self.answer(rank)

    def all(self, *order: Any) -> list[Any]:
        """What every rank answers to the same order."""
        for rank in range(len(self.lines)):
            self.ask(rank, *order)
        return [self.answer(rank) for rank in range(len(self.lines))]

    def open_tight(self, rows: int) -> None:
        """Make loaders with room for so many rows more than they need; they have to look ahead."""
        self.all("open", None)
        memory = needed_bytes(self.all("epoch", 0)[0][1]) + rows * (ROW_BYTES + 8)
        for _ in range(20):
            assert self.all("open with", int(memory)) == ["look-ahead"] * len(self.lines)
            if self.all("epoch", 0, 1)[0][0] != "BudgetError":
                self.all("open with", int(memory))
                return
            memory *= 1.05
        raise AssertionError("no memory is enough")

    def kill(self, rank: int) -> int:
        os.kill(self.processes[rank].pid, signal.SIGKILL)
        self.processes[rank].join()
        return int(self.processes[rank].pid)


@contextmanager
def started(size: int, path: Path, folder: Path, options: dict[str, Any], simulated: bool = True) -> Iterator[Ranks]:
    ranks = Ranks(size, path, folder, options, simulated)
    try:
        yield ranks
        for line in ranks.lines:
            line.close()
        for process in ranks.processes:
            process.join(120)
            assert process.exitcode in (0, -signal.SIGKILL)
    finally:
        for process in ranks.processes:
            process.kill()


def batches_alone(
    layout: Any, options: dict[str, Any], epoch: int, size: int = 2
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Seeds and rows by batch of so many ranks, one after the other in one process that has all rows in memory."""
    options = {**options, "device": "cpu", "features": "memory", "world_size": size}
    batches = (batch for rank in range(size) for batch in layout.loader(**options, rank=rank).epoch(epoch))
    return {batch.index: (batch.seeds.numpy(), batch.x.numpy().copy()) for batch in batches}


def expect_epoch(shares: list[Any], alone: dict[int, Any]) -> None:
    """The ranks' batches are their shares of an epoch of `batches_alone`, bit for bit."""
    for rank, share in enumerate(shares):
        assert [index for index, *_ in share] == list(ProcessRank(rank, len(shares)).batches(len(alone)))
        for index, seeds, rows in share:
            np.testing.assert_array_equal(seeds, alone[index][0])
            np.testing.assert_array_equal(rows, alone[index][1])
    assert {index for share in shares for index, *_ in share} == set(alone)
