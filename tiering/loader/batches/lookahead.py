"""How far a loader looks ahead, and the buffer into which rows of the ssd tier are read before batches need them: its
own, or one for all ranks of a machine.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.layout import Layout
from tiering.loader.batches.prefetch import PrefetchSampler, Reading, Sampled, SampledT
from tiering.loader.options import MemoryOptions, ReadOptions
from tiering.loader.process import ForkLock, warn_once
from tiering.loader.processes.client import BufferClient
from tiering.loader.processes.epoch import Key
from tiering.loader.processes.machine import MachineProcesses
from tiering.loader.processes.server import BufferServer
from tiering.loader.tables.gather import FeatureRows
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tables.ssd_buffer import SsdBuffer, buffer_name
from tiering.memory import Budget
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
from tiering.units import format_bytes, format_count

_log = logging.getLogger("tiering.loader")
Ids = npt.NDArray[np.int64]


_LEAST_SLOTS = 64
"""Slots for rows of each size, which hold parts of batches of a few rows each. Useful buffers have many more."""
_MAPPED_SHARE = 1 / 3
"""Of memory, for files that sampling reads through the page cache."""
_TRIAL_SECONDS = 1.5
"""Sampling before the first epoch, to choose the window by."""
_TRIAL_BATCHES = 4096


def page_cache_for(mapped: int, room: int) -> int:
    """Bytes of `room` that are left to the page cache for `mapped` bytes of files: a large adjacency gets a share."""
    return min(mapped, int(_MAPPED_SHARE * room))


class RowsAhead(Protocol):
    """A buffer with the rows of batches to come: of this process alone, or the way to that of all ranks."""

    @property
    def memory(self) -> SharedBlock:
        """The memory of all slots."""

    @property
    def origins(self) -> dict[str, int]:
        """Where the first slot of each type lies in it."""

    def gather(
        self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]], threads: int
    ) -> None:
        """Fill `outs` with the rows of a batch; see `SsdBuffer.gather`."""

    def slots(self, batch: int, part: int, ids: Mapping[str, Ids]) -> tuple[dict[str, npt.NDArray[np.uint32]], bool]:
        """Where the rows of a part of a batch lie, and whether it is the last; see `SsdBuffer.slots`."""

    def release(self, batch: int, part: int) -> None:
        """Nobody reads the slots of a part any more; parts are released in order, and others may be in use."""

    def counters(self) -> dict[str, Any]:
        """What the buffer did, JSON types only."""

    def reset_counters(self) -> None:
        """Begin counting again at zero."""


class Lookahead:
    """How one loader looks ahead, and the buffer that it reads into.

    Made by `Loader`. The first epoch samples some batches, chooses the window by simulated reading (see
    `tiering.readahead.config`) and makes the buffer; later ones go on with both.

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
    mapped_bytes
        Files that sampling reads through the page cache, which has a share of what the smallest buffer leaves.
    page_locked
        Whether a GPU reads the buffer: it is not shared with loaders of the host, which go on in forks.
    machine
        Ranks that have one buffer together; `budget` and `output_bytes` are of all of them then. The first owns it and
        reads for all.
    drop_last
        How batches are shared among ranks; see `tiering.loader.processes.rank.ProcessRank.batches`.
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
        mapped_bytes: int = 0,
        page_locked: bool = False,
        machine: MachineProcesses | None = None,
        drop_last: bool = False,
    ) -> None:
        self.tables = SsdTables.of(layout, list(features))
        self._layout, self._features = layout, dict(features)
        self._reading_options, self._memory, self._budget = reading, memory, budget
        self._outputs, self._workers, self._threads = output_bytes, workers, threads
        self.choice: ReadaheadConfig | None = None
        """What was chosen; ``None`` before the first epoch."""
        self.speed: DiskSpeed | None = None
        """The model of the disks; ``None`` before the first epoch."""
        self.buffer: RowsAhead | None = None
        """The buffer, or the way to that of the owner; ``None`` before the first epoch."""
        self._mapped_bytes = mapped_bytes
        self._known = int(KNOWN_SHARE * budget.left())
        self._kept_bytes = self._known if kept_bytes is None else min(kept_bytes, self._known)
        self._shared = shared
        self._key = (
            reading,
            memory.memory,
            page_locked,
            *self.tables.types,
            None if machine is None else machine.group,
        )
        self._lock, self._machine, self._drop_last = ForkLock(), machine, drop_last
        self._server: BufferServer | None = None
        self._client: BufferClient | None = None
        if machine is not None:
            self._server = BufferServer(machine, self) if machine.own == 0 else None
            address = machine.told_by_owner("" if self._server is None else self._server.address)
            self._client = BufferClient(machine, address, buffer_name(layout), self.tables, features, page_locked)

    @contextmanager
    def epoch(
        self, epoch: int, order: Sequence[int], whole: int, draw: Callable[[int], SampledT]
    ) -> Iterator[PrefetchSampler[SampledT] | None]:
        """Sample and read ahead for the batches of an epoch; ``None`` where another epoch of this loader does.

        `order`: numbers of the batches of this process among the `whole` of the epoch; `draw` makes one of them.
        """

        def sample(place: int) -> SampledT:
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
            run = PrefetchSampler(
                self.tables.types, reading, len(order), sample, trial, self._workers, self._kept_bytes
            )
            try:
                yield run
            finally:
                run.stop()

    @contextmanager
    def _reading(
        self, epoch: int, count: int, whole: int, sample: Callable[[int], SampledT], draw: Callable[[int], SampledT]
    ) -> Iterator[tuple[Reading | None, dict[int, SampledT]]]:
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
            self.choice, self.buffer = self._client.choice, self._client
            self._kept_bytes = min(self._kept_bytes, self._client.kept_bytes)
            yield shared, trial

    def _offer(
        self, server: BufferServer, client: BufferClient, key: Key, whole: int, draw: Callable[[int], SampledT]
    ) -> dict[int, SampledT]:
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
        client.adopt(self.buffer.memory)
        server.offer(self.buffer, self.choice, self._known // ranks)
        return {place // ranks: sampled for place, sampled in trial.items() if place % ranks == 0}

    def gather(self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Rows of a batch; see `SsdBuffer.gather`."""
        assert self.buffer is not None
        self.buffer.gather(batch, ids, outs, self._threads)

    def _prepare(self, count: int, sample: Callable[[int], SampledT]) -> dict[int, SampledT]:
        """Sample some batches, choose a configuration, and make the buffer. Returns the samples."""
        layout, tables = self._layout, self.tables
        self.speed = speed_of(layout.image_places, self._memory.ssd_model or MEASURED, layout.path.absolute().parent)
        with ThreadPoolExecutor(1, thread_name_prefix="tiering-trial") as pool:  # a thread that works on a GPU is ours
            samples, rows = pool.submit(self._trial, count, sample).result()
        sizes: dict[int, int] = {}
        for batch in rows:
            for row_bytes, count in tables.row_bytes_of(batch).items():
                sizes[row_bytes] = sizes.get(row_bytes, 0) + count
        buffer = self._shared.get(self._key)
        pools = self._new_pools(samples, sizes) if buffer is None else buffer.pools
        most = max_known(self._budget.left(), rows, tables.thinning)
        windows = None if self._memory.window == "auto" else [min(int(self._memory.window), UNLIMITED)]
        self.choice = choose_config(tables, pools, rows, self.speed, windows, most, tables.thinning)
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

    def _new_pools(self, samples: Mapping[int, Sampled], sizes: Mapping[int, int]) -> list[tuple[int, int]]:
        """Slots that the memory has room for; `BudgetError` if they are too few.

        `sizes`: rows of the batches that were sampled, by their bytes.
        """
        tables, ranks = self.tables, 1 if self._machine is None else self._machine.size
        nodes = max(sum(ids.size for ids in s.nodes.values()) for s in samples.values())
        edges = max(sum(e.src.size for hop in s.hops for e in hop.values()) for s in samples.values())
        overhead = {
            "outputs": self._outputs,
            "samplers": ranks * (2 * self._workers + 2) * (48 * nodes + 16 * edges),
            "reads": native.buffer_staging_bytes(
                tables.rows, tables.page_bytes, tables.images, int(self._reading_options.depth), MAX_READ
            ),
            "maps of rows": native.lookahead_state_bytes(tables.num_rows, 0),
        }
        fixed, to_come = sum(overhead.values()), 3 * KNOWN_SHARE  # batches to come: a share of all there is
        least = sum(_LEAST_SLOTS * (row_bytes + 8) for row_bytes in sizes)
        needed = math.ceil((fixed + least) / (1 - to_come))
        self._budget.require(needed, "the loader's buffer for rows of the ssd tier, and batches,")
        room = self._budget.left() - fixed - math.ceil(to_come * self._budget.left())
        return divide_slots(tables, max(least, room - page_cache_for(self._mapped_bytes, room)), sizes)

    def _trial(self, count: int, draw: Callable[[int], SampledT]) -> tuple[dict[int, SampledT], list[Rows]]:
        """The first batches of an epoch, and their rows, `SsdTables.thinned`: as many as choosing may take, twice what
        memory could hold at the most.
        """
        tables = self.tables
        row_bytes = min(size for _, size, *_ in tables.rows)
        enough = 2 * min(tables.num_rows, self._budget.left() // row_bytes)
        samples: dict[int, SampledT] = {}
        rows: list[Rows] = []
        start, total, held = time.perf_counter(), 0, 0
        for batch in range(min(count, _TRIAL_BATCHES)):
            sample = draw(batch)
            rows.append(tables.thinned(tables.among(sample.nodes)))
            total += len(rows[-1])
            held += sample.nbytes
            if held < self._kept_bytes or not samples:
                samples[batch] = sample
            if batch and (time.perf_counter() - start > _TRIAL_SECONDS or total > enough):
                break
        return samples, rows
