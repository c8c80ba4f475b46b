"""Batches sampled ahead of the consumer, so that what they need of the ssd tier is read before they need it.

A batch is a pure function of ``(seed, epoch, index)``: it is sampled for its ids far ahead, kept while there is room,
and else sampled again when its turn comes.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.layout import Layout
from tiering.loader.gather import FeatureRows
from tiering.loader.options import MemoryOptions, ReadOptions
from tiering.loader.process import ForkLock, warn_once
from tiering.loader.ssd import MAX_READ
from tiering.loader.ssd_buffer import SsdBuffer
from tiering.lookahead.choice import KNOWN_SHARE, UNLIMITED, Choice, Rows, SsdTables, choose, slots_for
from tiering.lookahead.disk_speed import MEASURED, DiskSpeed, speed_of
from tiering.memory import Budget
from tiering.units import format_bytes, format_count

_log = logging.getLogger("tiering.loader")
Ids = npt.NDArray[np.int64]


class Sampled(Protocol):
    """A batch that was sampled ahead, as `tiering.sampling.SampledBatch` is one."""

    @property
    def nodes(self) -> Mapping[str, Ids]:
        """Ids by node type, in host memory; of types with rows on SSD at the least."""

    @property
    def hops(self) -> Sequence[Mapping[Any, Any]]:
        """Edges that lie in host memory, by hop and relation."""

    @property
    def nbytes(self) -> int:
        """Memory that the batch holds."""


AnySampled = TypeVar("AnySampled", bound=Sampled)

_LEAST_SLOTS = 64
"""Slots for rows of each size, which hold parts of batches of a few rows each. Useful buffers have many more."""
_TRIAL_SECONDS = 1.5
"""Sampling before the first epoch, to choose the window by."""
_TRIAL_BATCHES = 4096


class Lookahead:
    """How one loader looks ahead, and the buffer that it reads into.

    Made by `Loader`. The first epoch samples some batches, chooses the window by simulated reading (see
    `tiering.lookahead.choice`) and makes the buffer; later ones go on with both.

    Parameters
    ----------
    features
        Tables whose ssd tier is read from disk.
    budget
        Memory, less what is held, outputs and samplers included.
    output_bytes
        Host memory of batches that are ready or in the consumer's hands.
    shared
        Buffers of the open layout: loaders with the same memory, such as those of training and validation, have one.
    kept_bytes
        Memory for what was sampled ahead; ``None``, and at most: a share of the budget.
    page_locked
        Whether a GPU reads the buffer: it is not shared with loaders of the host, which go on in forks.
    """

    def __init__(
        self,
        layout: Layout,
        features: Mapping[str, FeatureRows],
        reading: ReadOptions,
        memory: MemoryOptions,
        budget: Budget,
        output_bytes: int,
        workers: int,
        threads: int,
        shared: MutableMapping[Any, SsdBuffer],
        kept_bytes: int | None = None,
        page_locked: bool = False,
    ) -> None:
        self.tables = SsdTables.of(layout, list(features))
        self._layout, self._features = layout, dict(features)
        self._reading, self._memory, self._budget = reading, memory, budget
        self._outputs, self._workers, self._threads = output_bytes, workers, threads
        self.choice: Choice | None = None
        """What was chosen; ``None`` before the first epoch."""
        self.speed: DiskSpeed | None = None
        """The model of the disks; ``None`` before the first epoch."""
        self.buffer: SsdBuffer | None = None
        """The buffer; ``None`` before the first epoch."""
        self._kept_bytes = int(KNOWN_SHARE * budget.left()) if kept_bytes is None else kept_bytes
        self._shared, self._key = shared, (reading, memory.memory, page_locked, *self.tables.types)
        self._lock = ForkLock()

    @contextmanager
    def epoch(self, count: int, sample: Callable[[int], AnySampled]) -> Iterator[Epoch[AnySampled] | None]:
        """Sample and read ahead for the batches of an epoch; ``None`` where another epoch of this loader does.

        `sample` makes batch 0, 1, .. below `count`.
        """
        with self._lock:
            trial: dict[int, AnySampled] = self._prepare(count, sample) if self.choice is None else {}
        assert self.choice is not None and self.buffer is not None
        with self.buffer.epoch(self.choice) as reading:
            if reading is None:
                warn_once(f"{self._layout.path}: another epoch uses the buffer: this one reads each batch by itself")
                yield None
                return
            run = Epoch(self, reading, count, sample, trial)
            try:
                yield run
            finally:
                run.stop()

    @property
    def workers(self) -> int:
        """Threads that sample ahead."""
        return self._workers

    @property
    def kept_bytes(self) -> int:
        """Memory for what was sampled ahead, beside the rows' numbers."""
        return self._kept_bytes

    def gather(self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Rows of a batch; see `SsdBuffer.gather`."""
        assert self.buffer is not None
        self.buffer.gather(batch, ids, outs, self._threads)

    def _prepare(self, count: int, sample: Callable[[int], AnySampled]) -> dict[int, AnySampled]:
        """Sample some batches, choose, and make the buffer. Returns the samples."""
        layout, tables = self._layout, self.tables
        self.speed = speed_of(layout.image_places, self._memory.ssd_model or MEASURED, layout.path.absolute().parent)
        samples, rows = self._trial(count, sample)
        sizes: dict[int, int] = {}
        for batch in rows:
            for row_bytes, count in tables.row_bytes_of(batch).items():
                sizes[row_bytes] = sizes.get(row_bytes, 0) + count
        known = int(KNOWN_SHARE * self._budget.left())
        buffer = self._shared.get(self._key)
        pools = self._new_pools(samples, sizes, known) if buffer is None else buffer.pools
        self._kept_bytes = min(self._kept_bytes, known)
        mean = max(1.0, float(np.mean([len(batch) for batch in rows])))
        most = max(2, int(known / (4 * mean)))
        windows = None if self._memory.window == "auto" else [min(int(self._memory.window), UNLIMITED)]
        self.choice = choose(tables, pools, rows, self.speed, windows, most)
        if buffer is None:
            buffer = SsdBuffer(layout, self._features, tables, pools, self._reading)
            self._shared[self._key] = buffer
        self.buffer = buffer
        _log.info(
            "%s: buffer of %s for rows of the ssd tier (%s), %s; disks: %s; %.4f s of reading a batch foreseen",
            layout.path, format_bytes(self.buffer.arena.size),
            ", ".join(f"{format_count(slots)} of {row_bytes} bytes" for row_bytes, slots in pools),
            self.choice, self.speed, self.choice.seconds,
        )  # fmt: skip
        return samples

    def _new_pools(self, samples: Mapping[int, Sampled], sizes: Mapping[int, int], known: int) -> list[tuple[int, int]]:
        """Slots that the memory has room for; `BudgetError` if they are too few.

        `sizes`: rows of the batches that were sampled, by their bytes; `known`: bytes for the rows of batches to come.
        """
        tables = self.tables
        nodes = max(sum(ids.size for ids in s.nodes.values()) for s in samples.values())
        edges = max(sum(e.src.size for hop in s.hops for e in hop.values()) for s in samples.values())
        overhead = {
            "outputs": self._outputs,
            "samplers": (2 * self._workers + 2) * (48 * nodes + 16 * edges),
            "reads": native.buffer_staging_bytes(tables.images, int(self._reading.depth), MAX_READ),
            "maps of rows": native.lookahead_state_bytes(tables.num_rows, 0),
            "batches to come": 2 * known,
        }
        fixed = sum(overhead.values())
        least = sum(_LEAST_SLOTS * (row_bytes + 8) for row_bytes in sizes)
        self._budget.require(fixed + least, "the loader's buffer for rows of the ssd tier, and batches,")
        return slots_for(tables, self._budget.left() - fixed, sizes)

    def _trial(self, count: int, draw: Callable[[int], AnySampled]) -> tuple[dict[int, AnySampled], list[Rows]]:
        """The first batches of an epoch: as many as choosing may take, twice what memory could hold at the most."""
        tables = self.tables
        row_bytes = min(size for _, size, *_ in tables.rows)
        enough = 2 * min(tables.num_rows, self._budget.left() // row_bytes)
        samples: dict[int, AnySampled] = {}
        kept_bytes = min(self._kept_bytes, int(KNOWN_SHARE * self._budget.left()))
        rows: list[Rows] = []
        start, total, held = time.perf_counter(), 0, 0
        for batch in range(min(count, _TRIAL_BATCHES)):
            sample = draw(batch)
            rows.append(tables.among(sample.nodes))
            total += len(rows[-1])
            held += sample.nbytes
            if held < kept_bytes or not samples:
                samples[batch] = sample
            if batch and (time.perf_counter() - start > _TRIAL_SECONDS or total > enough):
                break
        return samples, rows


class Epoch(Generic[AnySampled]):
    """One epoch's batches, sampled ahead by a thread of its own; `stop` ends it."""

    def __init__(
        self,
        ahead: Lookahead,
        buffer: native.RowBuffer,
        count: int,
        sample: Callable[[int], AnySampled],
        trial: dict[int, AnySampled],
    ) -> None:
        self._ahead, self._buffer, self._count, self._draw = ahead, buffer, count, sample
        self._kept = dict(trial)
        self._kept_bytes = sum(kept.nbytes for kept in self._kept.values())
        self._fed, self._over, self._stopped = 0, False, False
        self._error: BaseException | None = None
        self._process, self._changed = os.getpid(), threading.Condition()
        _running.add(self)
        self._thread = threading.Thread(target=self._feed, name="tiering-look-ahead", daemon=True)
        self._thread.start()

    def sample(self, batch: int) -> AnySampled:
        """The batch, once it was sampled ahead: what was kept of it, or sampled again."""
        with self._changed:
            self._changed.wait_for(lambda: batch < self._fed or self._over or self._stopped)
            if self._stopped:
                raise InputError("the epoch was ended")
            if batch >= self._fed and self._error is not None:
                raise self._error
            kept = self._kept.pop(batch, None)
            if kept is not None:
                self._kept_bytes -= kept.nbytes
        return kept if kept is not None else self._draw(batch)

    def gather(self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Rows of the ssd tier's types for the batch; waits until they were read."""
        self._ahead.gather(batch, ids, outs)

    def give_up(self) -> None:
        """Let everybody return who waits: no batch is wanted any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._buffer.stop()

    def stop(self) -> None:
        """End sampling and reading ahead. The thread has ended when this returns."""
        if self._process == os.getpid():  # a fork has no such thread, and may find the condition taken
            self.give_up()
            self._thread.join()

    def end_with_interpreter(self) -> None:
        """End all threads of the epoch, the core's as well."""
        self.stop()
        self._buffer.cancel()

    def _feed(self) -> None:
        """Sample ahead to the end, or to the first batch that fails: those before it are read all the same."""
        error: BaseException | None = None
        try:
            self._feed_all()
        except BaseException as met:
            error = met
        with self._changed:
            self._error, self._over = error, True
            self._changed.notify_all()
        self._buffer.end()

    def _feed_all(self) -> None:
        ahead, count = self._ahead, self._count
        waiting: deque[Future[AnySampled]] = deque()
        with ThreadPoolExecutor(ahead.workers, thread_name_prefix="tiering-look-ahead") as pool:
            started = 0
            for batch in range(count):
                while started < count and len(waiting) <= ahead.workers:
                    waiting.append(pool.submit(self._sample_or_take, started))
                    started += 1
                sample = waiting.popleft().result()
                # False: ended, or readers met an error, which extraction reports.
                if not self._buffer.add([sample.nodes[t] for t in ahead.tables.types]):
                    for future in waiting:
                        future.cancel()
                    return
                self._keep(batch, sample)

    def _sample_or_take(self, batch: int) -> AnySampled:
        known = self._kept.get(batch)
        return known if known is not None else self._draw(batch)

    def _keep(self, batch: int, sample: AnySampled) -> None:
        with self._changed:
            self._fed = batch + 1
            size = sample.nbytes
            if batch not in self._kept and self._kept_bytes + size <= self._ahead.kept_bytes:
                self._kept[batch] = sample
                self._kept_bytes += size
            self._changed.notify_all()


_running: weakref.WeakSet[Epoch[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End what runs when the interpreter does: its last act would be to end threads inside the core, which aborts."""
    for epoch in list(_running):
        epoch.end_with_interpreter()
