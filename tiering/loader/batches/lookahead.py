"""The loader's lookahead: batches sampled ahead, and the buffer into which their rows of the ssd tier are read.

The buffer is of one process, or of all of a machine.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.layout import Layout
from tiering.loader.batches.prefetch import PrefetchSampler, Reading, Sampled, SampledT
from tiering.loader.memory import MemoryDecision, page_cache_for
from tiering.loader.options import LoaderOptions
from tiering.loader.process import ForkLock, warn_once
from tiering.loader.processes.client import BufferClient
from tiering.loader.processes.epoch import Key
from tiering.loader.processes.server import BufferServer
from tiering.loader.tables.rows import FeatureRows
from tiering.loader.tables.ssd_buffer import SsdBuffer, buffer_name
from tiering.readahead.config import (
    KNOWN_SHARE,
    UNLIMITED,
    ReadaheadConfig,
    Rows,
    SsdTables,
    choose_config,
    divide_slots,
    max_known,
)
from tiering.readahead.disk_speed import MAX_READ, MEASURED, DiskSpeed, speed_of
from tiering.units import format_bytes, format_count, parse_threads

_log = logging.getLogger("tiering.loader")
Ids = npt.NDArray[np.int64]
_LEAST_SLOTS = 64
"""Slots for rows of each size, which hold parts of batches of a few rows each. Useful buffers have many more."""
_TRIAL_SECONDS = 1.5
"""Sampling before the first epoch, to choose the window by."""
_TRIAL_BATCHES = 4096


RowsAhead: TypeAlias = SsdBuffer | BufferClient
"""A buffer with the rows of batches to come: this process's own, or a client of another process's."""


class Lookahead:
    """The lookahead of one loader, made by `Loader`.

    The first epoch samples some batches, chooses the window by simulated reading (`tiering.readahead.config`) and makes
    the buffer; later epochs go on with both. Loaders with the same memory, such as those of training and validation,
    share a buffer; those of a GPU, which goes on reading in no fork, do not share with those of the host.

    Parameters
    ----------
    features
        Tables whose ssd tier is read from disk.
    buffers
        Buffers of the open layout.
    """

    def __init__(
        self,
        layout: Layout,
        features: Mapping[str, FeatureRows],
        options: LoaderOptions,
        decision: MemoryDecision,
        buffers: MutableMapping[Any, SsdBuffer],
    ) -> None:
        self.tables = SsdTables.of(layout, list(features))
        self._layout, self._features, self._options, self._decision = layout, dict(features), options, decision
        self._threads, self._buffers, self._lock = parse_threads(options.reading.threads), buffers, ForkLock()
        self.choice: ReadaheadConfig | None = None
        """The chosen configuration; ``None`` before the first epoch."""
        self.speed: DiskSpeed | None = None
        """The model of the disks; ``None`` before the first epoch."""
        self.buffer: RowsAhead | None = None
        """The buffer, or a client of the owner's; ``None`` before the first epoch."""
        self._known = int(KNOWN_SHARE * decision.budget.left())
        self._kept_bytes = self._known if decision.kept_bytes is None else min(decision.kept_bytes, self._known)
        machine, page_locked = decision.machine, options.device.index is not None
        group = None if machine is None else machine.group
        self._key = (options.reading, options.memory.memory, page_locked, *self.tables.types, group)
        self._server: BufferServer | None = None
        self._client: BufferClient | None = None
        if machine is not None:
            self._server = BufferServer(machine, self) if machine.own == 0 else None
            address = machine.ask_owner("" if self._server is None else self._server.address)
            self._client = BufferClient(machine, address, buffer_name(layout), self.tables, features, page_locked)

    @contextmanager
    def epoch(
        self, epoch: int, order: Sequence[int], whole: int, draw: Callable[[int], SampledT]
    ) -> Iterator[PrefetchSampler[SampledT] | None]:
        """Sample and read ahead for the batches of an epoch; ``None`` where another epoch of this loader does.

        `order`: numbers of this process's batches among the `whole` of the epoch; `draw` makes one of them.
        """
        machine = self._decision.machine
        if machine is not None and machine.group.pid != os.getpid():
            warn_once(f"{self._layout.path}: a fork of a rank reads each batch by itself")
            yield None
            return
        with self._begin_reading(epoch, order, whole, draw) as (reading, trial):
            if reading is None:
                warn_once(f"{self._layout.path}: another epoch uses the buffer: this one reads each batch by itself")
                yield None
                return
            workers, kept_bytes = self._decision.workers, self._kept_bytes
            run = PrefetchSampler(self.tables.types, reading, order, draw, trial, workers, kept_bytes)
            try:
                yield run
            finally:
                run.stop()

    @contextmanager
    def _begin_reading(
        self, epoch: int, order: Sequence[int], whole: int, draw: Callable[[int], SampledT]
    ) -> Iterator[tuple[Reading | None, dict[int, SampledT]]]:
        """Begin an epoch of the buffer; yields it, and batches that were sampled to choose it by."""
        trial: dict[int, SampledT] = {}
        if self._client is None:
            with self._lock:
                if self.choice is None:
                    trial = self._prepare(order, draw)
            assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
            with self.buffer.epoch(self.choice) as reading:
                yield reading, trial
            return
        key = self._client.key(epoch)
        if self._server is not None:
            with self._lock:
                if self.choice is None:
                    trial = self._offer(self._server, self._client, key, whole, draw)
        with self._client.epoch(key) as shared:
            self.choice, self.buffer = self._client.choice, self._client
            self._kept_bytes = min(self._kept_bytes, self._client.kept_bytes)
            yield shared, trial

    def _offer(
        self, server: BufferServer, client: BufferClient, key: Key, whole: int, draw: Callable[[int], SampledT]
    ) -> dict[int, SampledT]:
        """Make the buffer of all processes of this machine, chosen for their batches in the order in which they come.

        Returns the samples of this process's own batches.
        """
        machine = self._decision.machine
        assert machine is not None
        try:
            trial = self._prepare(machine.interleaved(whole, self._options.seeds.drop_last), draw)
        except BaseException as error:
            server.refuse(key, error)
            raise
        assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
        client.adopt(self.buffer.memory)
        server.offered = (self.buffer, self.choice, self._known // machine.size)
        return {place // machine.size: sampled for place, sampled in trial.items() if place % machine.size == 0}

    def gather(self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Fill `outs` with the rows of a batch; see `SsdBuffer.gather`."""
        assert self.buffer is not None
        self.buffer.gather(batch, ids, outs, self._threads)

    def _prepare(self, order: Sequence[int], draw: Callable[[int], SampledT]) -> dict[int, SampledT]:
        """Sample some batches, choose a configuration, and make the buffer. Returns the samples by place in `order`."""
        layout, tables, memory = self._layout, self.tables, self._options.memory
        self.speed = speed_of(layout.image_places, memory.ssd_model or MEASURED, layout.path.absolute().parent)
        with ThreadPoolExecutor(1, thread_name_prefix="tiering-trial") as pool:  # a thread that works on a GPU is ours
            samples, rows = pool.submit(self._sample_trial, order, draw).result()
        sizes: dict[int, int] = {}
        for batch in rows:
            for row_bytes, count in tables.row_bytes_of(batch).items():
                sizes[row_bytes] = sizes.get(row_bytes, 0) + count
        buffer = self._buffers.get(self._key)
        pools = self._new_pools(samples, sizes) if buffer is None else buffer.pools
        most = max_known(self._decision.budget.left(), rows, tables.thinning)
        windows = None if memory.window == "auto" else [min(int(memory.window), UNLIMITED)]
        self.choice = choose_config(tables, pools, rows, self.speed, windows, most, tables.thinning)
        if buffer is None:
            shared = self._decision.machine is not None
            buffer = SsdBuffer(layout, self._features, tables, pools, self._options.reading, shared)
            self._buffers[self._key] = buffer
        self.buffer = buffer
        _log.info(
            "%s: buffer of %s for rows of the ssd tier (%s), %s; disks: %s; estimate: %.4f s of reading a batch",
            layout.path, format_bytes(self.buffer.arena.size),
            ", ".join(f"{format_count(slots)} of {row_bytes} bytes" for row_bytes, slots in pools),
            self.choice, self.speed, self.choice.seconds,
        )  # fmt: skip
        return samples

    def _new_pools(self, samples: Mapping[int, Sampled], sizes: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return the slots that fit the memory; `BudgetError` if they are too few.

        `sizes`: rows of the sampled batches, by their bytes.
        """
        tables, decision = self.tables, self._decision
        processes = 1 if decision.machine is None else decision.machine.size
        nodes = max(sum(ids.size for ids in s.nodes.values()) for s in samples.values())
        edges = max(sum(e.src.size for hop in s.hops for e in hop.values()) for s in samples.values())
        depth = int(self._options.reading.depth)
        fixed = sum((
            decision.output_bytes,
            processes * (2 * decision.workers + 2) * (48 * nodes + 16 * edges),  # samplers
            native.buffer_staging_bytes(tables.rows, tables.page_bytes, tables.images, depth, MAX_READ),
            native.lookahead_state_bytes(tables.num_rows, 0),
        ))  # fmt: skip
        to_come = 3 * KNOWN_SHARE  # a share of all memory for batches to come
        least = sum(_LEAST_SLOTS * (row_bytes + 8) for row_bytes in sizes)
        needed = math.ceil((fixed + least) / (1 - to_come))
        decision.budget.require(needed, "the loader's buffer for rows of the ssd tier, and batches,")
        left = decision.budget.left()
        room = left - fixed - math.ceil(to_come * left)
        return divide_slots(tables, max(least, room - page_cache_for(decision.mapped_bytes, room)), sizes)

    def _sample_trial(
        self, order: Sequence[int], draw: Callable[[int], SampledT]
    ) -> tuple[dict[int, SampledT], list[Rows]]:
        """Sample the first batches of an epoch: as many as choosing may take, with at most twice the rows of memory.

        Returns those that memory may keep, by place in `order`, and the rows of all, `SsdTables.thinned`.
        """
        tables = self.tables
        row_bytes = min(size for _, size, *_ in tables.rows)
        enough = 2 * min(tables.num_rows, self._decision.budget.left() // row_bytes)
        samples: dict[int, SampledT] = {}
        rows: list[Rows] = []
        start, total, held = time.perf_counter(), 0, 0
        for place, batch in enumerate(order[:_TRIAL_BATCHES]):
            sample = draw(batch)
            rows.append(tables.thinned(tables.among(sample.nodes)))
            total += len(rows[-1])
            held += sample.nbytes
            if held < self._kept_bytes or not samples:
                samples[place] = sample
            if place and (time.perf_counter() - start > _TRIAL_SECONDS or total > enough):
                break
        return samples, rows
