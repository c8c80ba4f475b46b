"""Reads of neighbor lists that exceed memory, counted for windows of sampled batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiering.readahead import memory
from tiering.readahead.memory import MAX_WINDOW, WindowMemory
from tiering.sampling import EpochPlan, Sampler
from tiering.sampling.lists import bytes_around, list_files, lists_bytes

_FACTOR = 8  # between two sizes of windows that are tried


@dataclass(frozen=True)
class ListReads:
    """Lists of a graph, and what a batch reads of them by the size of its window."""

    nbytes: int  # of all lists
    around: int  # bytes that stay in memory in addition to them
    costs: Sequence[tuple[int, float, float]]  # batches of a window, ascending; reads and bytes of a batch

    @classmethod
    def count(cls, sampler: Sampler, plan: EpochPlan, room: int) -> ListReads | None:
        """Sample windows of several sizes within `room` bytes; ``None`` for small lists, and those that stay mapped."""
        nbytes, files = lists_bytes(sampler), list_files(sampler, room)
        if nbytes <= memory.LEAST_LISTS or files is None:
            return None
        costs, size = list[tuple[int, float, float]](), 1
        while True:
            seeds = [plan.seeds_of(batch) for batch in range(min(size, len(plan)))]
            made, _, cost = sampler.sample_window(seeds, range(len(seeds)), files, size)
            costs.append((len(made), cost.reads / len(made), cost.nbytes / len(made)))
            if len(made) < size or size >= MAX_WINDOW:
                return cls(nbytes, bytes_around(sampler), costs)
            size *= _FACTOR

    def windows(self, left: int, batch_bytes: int, rows: int, needed: int, mapped: int) -> WindowMemory | None:
        """Return the windows of a loader; ``None`` where it maps the lists.

        `left`: bytes of its memory; `rows`: of all rows; `needed`: of rows and batches; `mapped`: of mapped files.
        """
        windows = WindowMemory.find(self.nbytes, self.around, left)
        if windows is None or needed + mapped <= left:
            return None
        windows.fit(batch_bytes, rows)
        return windows

    def of_epoch(self, batches: int, most: int) -> tuple[float, float, int]:
        """Return reads and bytes of an epoch, and its largest window: they grow 1, 2, 4 .. `most` batches."""
        sizes, *costs = np.log2(np.maximum(np.array(self.costs), 1e-3)).T
        reads = nbytes = 0.0
        size, largest = 1, 0
        while batches > 0:
            largest = max(largest, now := min(size, batches))
            of_batch = [2 ** float(np.interp(np.log2(now), sizes, cost)) for cost in costs]
            reads, nbytes = reads + now * of_batch[0], nbytes + now * of_batch[1]
            batches, size = batches - now, min(2 * size, most)
        return reads, nbytes, largest
