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
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import BudgetError, InputError
from tiering.formats.layout import Layout
from tiering.loader.buffer_client import BufferClient, ClientEpoch
from tiering.loader.buffer_server import BufferServer
from tiering.loader.gather import TieredFeatures
from tiering.loader.machine import MachineRanks
from tiering.loader.options import MemoryOptions, ReadOptions
from tiering.loader.process import ForkLock, warn_once
from tiering.loader.shared_epoch import Key
from tiering.loader.ssd import MAX_READ
from tiering.loader.ssd_buffer import SsdBuffer
from tiering.lookahead.choice import KNOWN_SHARE, UNLIMITED, Choice, Rows, SsdTables, choose, slots_for
from tiering.lookahead.disk_speed import MEASURED, DiskSpeed, speed_of
from tiering.memory import Budget
from tiering.sampling import SampledBatch
from tiering.units import format_bytes, format_count

_log = logging.getLogger("tiering.loader")
Ids = npt.NDArray[np.int64]
Sample = Callable[[int], SampledBatch]
Reading = native.RowBuffer | ClientEpoch
"""What takes the rows of batches: the core's buffer, or the way to that of another process."""

_SLACK = 1.25
"""A batch may need so many times what the largest of those sampled needs."""
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
        Memory of batches that are ready or in the consumer's hands.
    shared
        Buffers of the open layout: loaders with the same memory, such as those of training and validation, have one.
    machine
        Ranks that have one buffer together; `budget` and `output_bytes` are of all of them then. The first owns it and
        reads for all.
    drop_last
        How batches are shared among ranks; see `tiering.loader.ranks.Rank.batches`.
    """

    def __init__(
        self,
        layout: Layout,
        features: Mapping[str, TieredFeatures],
        reading: ReadOptions,
        memory: MemoryOptions,
        budget: Budget,
        output_bytes: int,
        workers: int,
        threads: int,
        shared: MutableMapping[Any, SsdBuffer],
        machine: MachineRanks | None = None,
        drop_last: bool = False,
    ) -> None:
        self.tables = SsdTables.of(layout, list(features))
        self._layout, self._features = layout, dict(features)
        self._reading_options, self._memory, self._budget = reading, memory, budget
        self._outputs, self._workers, self._threads = output_bytes, workers, threads
        self.choice: Choice | None = None
        """What was chosen; ``None`` before the first epoch."""
        self.speed: DiskSpeed | None = None
        """The model of the disks; ``None`` before the first epoch."""
        self.buffer: SsdBuffer | BufferClient | None = None
        """The buffer, or the way to that of the owner; ``None`` before the first epoch."""
        self._kept_bytes = 0
        self._shared = shared
        self._key = (reading, memory.memory, *self.tables.types, None if machine is None else machine.group)
        self._lock, self._machine, self._drop_last = ForkLock(), machine, drop_last
        self._server: BufferServer | None = None
        self._client: BufferClient | None = None
        if machine is not None:
            self._server = BufferServer(machine) if machine.own == 0 else None
            address = machine.told_by_owner("" if self._server is None else self._server.address)
            self._client = BufferClient(machine, address, self.tables, features)

    @contextmanager
    def epoch(self, epoch: int, order: Sequence[int], whole: int, draw: Sample) -> Iterator[Epoch | None]:
        """Sample and read ahead for the batches of an epoch; ``None`` where another epoch of this loader does.

        `order`: numbers of the batches of this process among the `whole` of the epoch; `draw` makes one of them.
        """

        def sample(place: int) -> SampledBatch:
            return draw(order[place])

        if self._machine is not None and self._machine.group.pid != os.getpid():
            warn_once(f"{self._layout.path}: a fork of a rank reads each batch by itself")
            yield None
            return
        with self._reading(epoch, len(order), whole, sample, draw) as (reading, trial):
            if reading is None:
                warn_once(f"{self._layout.path}: another epoch uses the buffer: this one reads each batch by itself")
                yield None
                return
            run = Epoch(self, reading, len(order), sample, trial)
            try:
                yield run
            finally:
                run.stop()

    @contextmanager
    def _reading(
        self, epoch: int, count: int, whole: int, sample: Sample, draw: Sample
    ) -> Iterator[tuple[Reading | None, dict[int, SampledBatch]]]:
        """An epoch of the buffer, and what was sampled to choose it by."""
        if self._client is None:
            with self._lock:
                trial = self._prepare(count, sample) if self.choice is None else {}
            assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
            with self.buffer.epoch(self.choice) as reading:
                yield reading, trial
            return
        key, trial = self._client.key(epoch), {}
        if self._server is not None:
            with self._lock:
                trial = self._offer(self._server, self._client, key, whole, draw) if self.choice is None else {}
        with self._client.epoch(key) as shared:
            self.choice, self.buffer, self._kept_bytes = self._client.choice, self._client, self._client.kept_bytes
            yield shared, trial

    def _offer(
        self, server: BufferServer, client: BufferClient, key: Key, whole: int, draw: Sample
    ) -> dict[int, SampledBatch]:
        """Choose for the batches of all ranks of this machine, in the order in which they come, and make their buffer.
        Returns what was sampled of this rank's own.
        """
        assert self._machine is not None
        ranks, order = self._machine.size, self._machine.interleaved(whole, self._drop_last)
        try:
            trial = self._prepare(len(order), lambda place: draw(order[place]))
        except BaseException as error:
            server.refuse(key, error)
            raise
        assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
        client.adopt(self.buffer.arena, self.buffer.descriptor)
        server.offer(self.buffer, self.choice, self._kept_bytes // ranks)
        return {place // ranks: sampled for place, sampled in trial.items() if place % ranks == 0}

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

    def check_room(self, batch: int, sizes: Mapping[int, int]) -> None:
        """Raise `BudgetError` if a batch needs more rows, by their bytes, than the buffer has room for."""
        assert self.buffer is not None
        _check_room(f"batch {batch}", sizes, self.buffer.pools)

    def _prepare(self, count: int, sample: Sample) -> dict[int, SampledBatch]:
        """Sample some batches, choose, and make the buffer. Returns the samples."""
        layout, tables = self._layout, self.tables
        self.speed = speed_of(layout.image_places, self._memory.ssd_model or MEASURED, layout.path.absolute().parent)
        samples, rows = self._trial(count, sample)
        largest: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for batch in rows:
            for row_bytes, count in tables.row_bytes_of(batch).items():
                largest[row_bytes] = max(largest.get(row_bytes, 0), count)
                sizes[row_bytes] = sizes.get(row_bytes, 0) + count
        known = int(KNOWN_SHARE * self._budget.left())
        buffer = self._shared.get(self._key)
        pools = self._new_pools(samples, largest, sizes, known) if buffer is None else buffer.pools
        _check_room("a batch", largest, pools)
        self._kept_bytes = known
        mean = max(1.0, float(np.mean([len(batch) for batch in rows])))
        most = max(2, int(known / (4 * mean)))
        windows = None if self._memory.window == "auto" else [min(int(self._memory.window), UNLIMITED)]
        self.choice = choose(tables, pools, rows, self.speed, windows, most)
        if buffer is None:
            buffer = SsdBuffer(layout, self._features, tables, pools, self._reading_options, self._machine is not None)
            self._shared[self._key] = buffer
        self.buffer = buffer
        _log.info(
            "%s: buffer of %s for rows of the ssd tier (%s), %s; disks: %s; %.4f s of reading a batch foreseen",
            layout.path, format_bytes(self.buffer.arena.size),
            ", ".join(f"{format_count(slots)} of {row_bytes} bytes" for row_bytes, slots in pools),
            self.choice, self.speed, self.choice.seconds,
        )  # fmt: skip
        return samples

    def _new_pools(
        self, samples: Mapping[int, SampledBatch], largest: Mapping[int, int], sizes: Mapping[int, int], known: int
    ) -> list[tuple[int, int]]:
        """Slots that the memory has room for; `BudgetError` if they do not hold a batch.

        `largest`: rows of a batch, by their bytes; `sizes`: those of all that were sampled; `known`: bytes for the rows
        of batches to come.
        """
        tables, ranks = self.tables, 1 if self._machine is None else self._machine.size
        nodes = max(sum(ids.size for ids in s.nodes.values()) for s in samples.values())
        edges = max(sum(e.src.size for hop in s.hops for e in hop.values()) for s in samples.values())
        overhead = {
            "outputs": self._outputs,
            "samplers": ranks * (2 * self._workers + 2) * (48 * nodes + 16 * edges),
            "reads": native.buffer_staging_bytes(tables.images, int(self._reading_options.depth), MAX_READ),
            "maps of rows": native.lookahead_state_bytes(tables.num_rows, 0),
            "batches to come": 2 * known,
        }
        fixed = sum(overhead.values())
        least = sum(int(_SLACK * count) * (row_bytes + 8) for row_bytes, count in largest.items())
        self._budget.require(fixed + least, "the loader's buffer for rows of the ssd tier, and batches,")
        return slots_for(tables, self._budget.left() - fixed, sizes)

    def _trial(self, count: int, draw: Sample) -> tuple[dict[int, SampledBatch], list[Rows]]:
        """The first batches of an epoch: as many as choosing may take, twice what memory could hold at the most."""
        tables = self.tables
        row_bytes = min(size for _, size, *_ in tables.rows)
        enough = 2 * min(tables.num_rows, self._budget.left() // row_bytes)
        samples: dict[int, SampledBatch] = {}
        rows: list[Rows] = []
        start, total, held = time.perf_counter(), 0, 0
        for batch in range(min(count, _TRIAL_BATCHES)):
            sample = draw(batch)
            rows.append(tables.among(sample.nodes))
            total += len(rows[-1])
            held += sample_bytes(sample)
            if held < KNOWN_SHARE * self._budget.left() or not samples:
                samples[batch] = sample
            if batch and (time.perf_counter() - start > _TRIAL_SECONDS or total > enough):
                break
        return samples, rows


class Epoch:
    """One epoch's batches, sampled ahead by a thread of its own; `stop` ends it."""

    def __init__(
        self, ahead: Lookahead, buffer: Reading, count: int, sample: Sample, trial: dict[int, SampledBatch]
    ) -> None:
        self._ahead, self._buffer, self._count, self._draw = ahead, buffer, count, sample
        self._kept = dict(trial)
        self._kept_bytes = sum(map(sample_bytes, self._kept.values()))
        self._fed, self._over, self._stopped = 0, False, False
        self._error: BaseException | None = None
        self._process, self._changed = os.getpid(), threading.Condition()
        _running.add(self)
        self._thread = threading.Thread(target=self._feed, name="tiering-look-ahead", daemon=True)
        self._thread.start()

    def sample(self, batch: int) -> SampledBatch:
        """The batch, once it was sampled ahead: what was kept of it, or sampled again."""
        with self._changed:
            self._changed.wait_for(lambda: batch < self._fed or self._over or self._stopped)
            if self._stopped:
                raise InputError("the epoch was ended")
            if batch >= self._fed and self._error is not None:
                raise self._error
            kept = self._kept.pop(batch, None)
            if kept is not None:
                self._kept_bytes -= sample_bytes(kept)
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
        waiting: deque[Future[SampledBatch]] = deque()
        with ThreadPoolExecutor(ahead.workers, thread_name_prefix="tiering-look-ahead") as pool:
            started = 0
            for batch in range(count):
                while started < count and len(waiting) <= ahead.workers:
                    waiting.append(pool.submit(self._sample_or_take, started))
                    started += 1
                sample = waiting.popleft().result()
                if not self._add(batch, sample):  # ended, or readers met an error, which extraction reports
                    for future in waiting:
                        future.cancel()
                    return
                self._keep(batch, sample)

    def _add(self, batch: int, sample: SampledBatch) -> bool:
        ahead = self._ahead
        try:
            return self._buffer.add([sample.nodes[t] for t in ahead.tables.types])
        except ValueError:
            ahead.check_room(batch, ahead.tables.row_bytes_of(ahead.tables.among(sample.nodes)))
            raise

    def _sample_or_take(self, batch: int) -> SampledBatch:
        known = self._kept.get(batch)
        return known if known is not None else self._draw(batch)

    def _keep(self, batch: int, sample: SampledBatch) -> None:
        with self._changed:
            self._fed = batch + 1
            size = sample_bytes(sample)
            if batch not in self._kept and self._kept_bytes + size <= self._ahead.kept_bytes:
                self._kept[batch] = sample
                self._kept_bytes += size
            self._changed.notify_all()


_running: weakref.WeakSet[Epoch] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End what runs when the interpreter does: its last act would be to end threads inside the core, which aborts."""
    for epoch in list(_running):
        epoch.end_with_interpreter()


def _check_room(what: str, sizes: Mapping[int, int], pools: Sequence[tuple[int, int]]) -> None:
    for row_bytes, slots in pools:
        if slots < sizes.get(row_bytes, 0):
            raise BudgetError(
                f"memory: {what} needs {format_count(sizes[row_bytes])} rows of {row_bytes} bytes of the ssd tier at "
                f"once, and the buffer has room for {format_count(slots)}; give more memory, or use smaller batches"
            )


def sample_bytes(sample: SampledBatch) -> int:
    """Memory of a sampled batch's arrays."""
    edges = (e for hop in sample.hops for e in hop.values())
    weights = sum(0 if e.weights is None else e.weights.nbytes for hop in sample.hops for e in hop.values())
    return sum(ids.nbytes for ids in sample.nodes.values()) + sum(e.src.nbytes + e.dst.nbytes for e in edges) + weights
