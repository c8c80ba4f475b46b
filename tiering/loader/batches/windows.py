"""Windows of a loader's batches: sampled together, with neighbor lists read from their files in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tiering.errors import TieringError
from tiering.loader.process import ForkLock
from tiering.readahead.memory import WindowMemory
from tiering.sampling import SampledBatch, Sampler
from tiering.sampling.base import ListFiles, WindowReads
from tiering.sampling.lists import bytes_around, list_files, lists_bytes, read_at_random

_IN_WORK = 1 / 2  # of windows' memory: while a window is sampled, the batches of the window before are used
Sampled: TypeAlias = tuple[list[SampledBatch], int]  # batches, and how many the next window has room for


@dataclass
class ListWindows:
    """Windows of batches of one loader, and what reading lists has cost."""

    files: ListFiles
    memory: WindowMemory
    reads: WindowReads = field(default_factory=WindowReads)
    largest: int = 0  # batches of the largest window
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    @classmethod
    def find(cls, sampler: Sampler, left: int, page_cache: int | None = None) -> ListWindows | None:
        """Return the windows of a loader, as `WindowMemory.find` decides.

        ``None``, too, where windows cannot read the lists: then the kernel is told not to read ahead, with one note.
        """
        nbytes = lists_bytes(sampler)
        memory = WindowMemory.find(nbytes, bytes_around(sampler), left, page_cache)
        if memory is not None and (files := list_files(sampler, 0)) is not None:
            return cls(files, memory)
        if memory is not None:
            read_at_random(sampler, nbytes, left)
        return None

    def sample(self, sampler: Sampler, seeds: Sequence[Any], batches: Sequence[int], size: int, **key: Any) -> Sampled:
        """Sample a window of at most `size` of some batches; see `Sampler.sample_window`."""
        lists = replace(self.files, room=int(_IN_WORK * self.memory.room))
        made, following, cost = sampler.sample_window(seeds, batches, lists, size, **key)
        with self._lock:
            self.reads, self.largest = self.reads + cost, max(self.largest, len(made))
        return made, min(following, self.memory.most)

    def reset(self) -> None:
        """Begin counting at zero."""
        with self._lock:
            self.reads, self.largest = WindowReads(), 0

    def as_dict(self) -> dict[str, Any]:
        """Return the counters, JSON types only."""
        found = self.reads
        return {
            "batches": found.batches, "reads": found.reads, "read_bytes": found.nbytes,
            "read_seconds": found.nanoseconds * 1e-9, "largest_window": self.largest,
        }  # fmt: skip


class WindowedBatches:
    """The batches of one epoch, by windows that grow: a thread samples one while the one before is used.

    Called with the numbers of batches in `order`, each is sampled once; any other batch is sampled by itself. A window
    that fails is sampled again batch by batch, so that the error comes with the batch that has it.
    """

    def __init__(self, sample: Callable[[Sequence[int], int], Sampled], order: Sequence[int]) -> None:
        self._sample, self._order = sample, order
        self._places = {batch: place for place, batch in enumerate(order)}
        self._ready: dict[int, SampledBatch] = {}
        self._begin, self._size = 0, 1  # place of the next window, and its batches at most
        self._pending: Future[Sampled] | None = None
        self._lock, self._pool = threading.Lock(), ThreadPoolExecutor(1, thread_name_prefix="tiering-windows")

    def __call__(self, batch: int) -> SampledBatch:
        """Return a batch; several threads may ask."""
        with self._lock:
            while batch not in self._ready and self._places.get(batch, -1) >= self._begin:
                self._collect()
            found = self._ready.pop(batch, None)
        return self._sample([batch], 1)[0][0] if found is None else found

    def close(self) -> None:
        """Wait until no window is being sampled."""
        self._pool.shutdown(cancel_futures=True)

    def _collect(self) -> None:
        """Wait for a window, and begin the next."""
        pending, self._pending = self._pending or self._submit(), None
        try:
            made, size = pending.result()
        except TieringError:
            if self._size == 1:
                raise
            self._size = 1
            return
        self._ready.update((batch.batch, batch) for batch in made)
        self._begin, self._size = self._begin + len(made), size
        if self._begin < len(self._order):
            self._pending = self._submit()

    def _submit(self) -> Future[Sampled]:
        return self._pool.submit(self._sample, self._order[self._begin : self._begin + self._size], self._size)
