"""The loader's lookahead: batches sampled ahead, and the buffer into which their rows of the ssd tier are read."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.formats.layout import Layout
from tiering.loader.batches.pipeline import PipelineStage
from tiering.loader.memory import MemoryDecision
from tiering.loader.options import LoaderOptions
from tiering.loader.process import ForkLock, warn_once
from tiering.loader.processes.client import BufferClient, ClientEpoch
from tiering.loader.processes.machine import Key
from tiering.loader.processes.server import BufferServer
from tiering.loader.tables.gather import FeatureRows
from tiering.loader.tables.ssd import find_depth, in_page_cache
from tiering.loader.tables.ssd_buffer import SsdBuffer, buffer_name
from tiering.readahead.config import (
    KNOWN_SHARE,
    TRIAL_BATCHES,
    TRIAL_SECONDS,
    UNLIMITED,
    ReadaheadConfig,
    Rows,
    SsdTables,
    choose_config,
    max_known,
    trial_rows,
)
from tiering.readahead.disk_speed import DiskSpeed, measured_speed
from tiering.readahead.memory import BufferMemory
from tiering.text.units import format_bytes, format_count, parse_threads

if TYPE_CHECKING:
    from tiering import cuda
    from tiering.loader.batches.batch import Batch
    from tiering.loader.gpu.drives import GpuDrives
    from tiering.sampling import SampledBatch

_log = logging.getLogger("tiering.loader")
Ids = npt.NDArray[np.int64]
Sampled: TypeAlias = "SampledBatch | GpuSample"  # ids of types with rows on SSD lie in host memory
Draw: TypeAlias = Callable[[int], Sampled]  # samples a batch by its number
RowsAhead: TypeAlias = SsdBuffer | BufferClient  # this process's own buffer, or a client of another's
BufferEpoch: TypeAlias = native.RowBuffer | ClientEpoch  # takes the rows of batches


@dataclass(frozen=True)
class GpuSample:
    """A batch that a GPU sampled ahead of its turn: nodes and edges in its memory."""

    batch: Batch
    ready: cuda.Event  # event after which nodes and edges are complete
    seeds: Ids  # seeds in the order given
    nodes: dict[str, Ids]  # ids in host memory, of the types whose rows are read ahead
    hops: tuple[Mapping[Any, Any], ...] = ()  # edges in host memory: none

    @property
    def unique_nodes(self) -> dict[str, Ids]:
        """Ids of `nodes`, which are unique: no GPU samples disjoint batches."""
        return self.nodes

    @property
    def nbytes(self) -> int:
        """Memory of the batch, on the GPU and the host."""
        on_gpu = sum(tensor.numel() * tensor.element_size() for tensor in self.batch.tensors())
        return on_gpu + sum(ids.nbytes for ids in self.nodes.values())


class PrefetchSampler:
    """A sampler of one epoch's batches, ahead of the consumer in its own thread; `trial`: those sampled already."""

    def __init__(
        self,
        types: Sequence[str],
        reading: BufferEpoch,
        order: Sequence[int],
        draw: Draw,
        trial: Mapping[int, Sampled],
        workers: int,
        kept_bytes: int,
    ) -> None:
        self._types, self._reading, self._order, self._draw = types, reading, order, draw
        self._workers, self._most_kept_bytes = workers, kept_bytes
        self._kept = dict(trial)
        self._kept_bytes = sum(kept.nbytes for kept in self._kept.values())
        self._fed, self._over, self._stopped = 0, False, False
        self._error: BaseException | None = None
        self._process, self._changed = os.getpid(), threading.Condition()
        _running.add(self)
        self._thread = threading.Thread(target=self._feed, name="tiering-look-ahead", daemon=True)
        self._thread.start()

    def sample(self, place: int) -> Sampled:
        """Return the batch at a place in the order, once it was sampled ahead: as kept, or sampled again."""
        with self._changed:
            self._changed.wait_for(lambda: place < self._fed or self._over or self._stopped)
            if self._stopped:
                raise InputError("the epoch was ended")
            if place >= self._fed and self._error is not None:
                raise self._error
            kept = self._kept.pop(place, None)
            if kept is not None:
                self._kept_bytes -= kept.nbytes
        return kept if kept is not None else self._draw(self._order[place])

    def abort(self) -> None:
        """Let all waiting threads return: no batch is wanted any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._reading.stop()

    def stop(self, *, cancel: bool = False) -> None:
        """End sampling and reading ahead, and wait for the thread; `cancel` ends the core's threads, too."""
        if self._process == os.getpid():  # a fork has no such thread, and may find the condition locked
            self.abort()
            self._thread.join()
        if cancel:
            self._reading.cancel()

    def _feed(self) -> None:
        """Sample to the end, or to the first batch that fails; the batches before it are read all the same."""
        error: BaseException | None = None
        try:
            self._feed_all()
        except BaseException as met:
            error = met
        with self._changed:
            self._error, self._over = error, True
            self._changed.notify_all()
        self._reading.end()

    def _feed_all(self) -> None:
        waiting: deque[Future[Sampled]] = deque()
        places = iter(range(len(self._order)))

        def kept_or_drawn(place: int) -> Sampled:
            kept = self._kept.get(place)
            return kept if kept is not None else self._draw(self._order[place])

        with ThreadPoolExecutor(self._workers, thread_name_prefix="tiering-look-ahead") as pool:
            for place in range(len(self._order)):
                while len(waiting) <= self._workers and (ahead := next(places, None)) is not None:
                    waiting.append(pool.submit(kept_or_drawn, ahead))
                sample = waiting.popleft().result()
                # False: ended, or readers met an error, which extraction reports.
                if not self._reading.add([sample.unique_nodes[t] for t in self._types]):
                    for future in waiting:
                        future.cancel()
                    return
                with self._changed:
                    self._fed, size = place + 1, sample.nbytes
                    if place not in self._kept and self._kept_bytes + size <= self._most_kept_bytes:
                        self._kept[place] = sample
                        self._kept_bytes += size
                    self._changed.notify_all()


_running: weakref.WeakSet[PrefetchSampler] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop running epochs before the interpreter ends threads inside the core, which would abort."""
    for epoch in list(_running):
        epoch.stop(cancel=True)


class Lookahead:
    """The lookahead of one loader over tables whose ssd tier is read from disk; `buffers`: the open layout's.

    The first epoch samples some batches, chooses the window by simulated reading (`tiering.readahead.config`) and makes
    the buffer; later epochs use both. Loaders with the same memory share a buffer; GPU loaders, which do not read
    in a fork, do not share it with host loaders.
    """

    def __init__(
        self,
        layout: Layout,
        features: Mapping[str, FeatureRows],
        options: LoaderOptions,
        decision: MemoryDecision,
        buffers: MutableMapping[Any, SsdBuffer],
        drives: GpuDrives | None = None,
    ) -> None:
        self.tables = SsdTables.of(layout, list(features))
        self._layout, self._features, self._options, self._decision = layout, dict(features), options, decision
        self._drives = drives
        self._threads, self._buffers, self._lock = parse_threads(options.reading.threads), buffers, ForkLock()
        self.choice: ReadaheadConfig | None = None  # the chosen configuration, from the first epoch on
        self.speed: DiskSpeed | None = None  # the model of the disks, from the first epoch on
        self.depth = find_depth(layout, options.reading, options.memory.speed)  # reads in flight
        self.buffer: RowsAhead | None = None  # from the first epoch on
        self.cached = False  # whether the last epoch took its rows from the page cache
        self._begun, self._reads = -1, 0  # that epoch, and reads of the tables before it
        self._known = int(KNOWN_SHARE * decision.budget.left())
        self._kept_bytes = self._known if decision.kept_bytes is None else min(decision.kept_bytes, self._known)
        self._windows = decision.windows  # with them, the buffer leaves memory for all batches sampled ahead
        machine, page_locked = decision.machine, options.device.index is not None
        group = None if machine is None else machine.group
        self._key = (options.reading, options.memory.memory, page_locked, *self.tables.types, group, layout.sizes)
        self._server: BufferServer | None = None
        self._client: BufferClient | None = None
        if machine is not None:
            self._server = BufferServer(machine, self) if machine.group.rank == 0 else None
            address = machine.ask_owner("" if self._server is None else self._server.address)
            self._client = BufferClient(machine, address, buffer_name(layout), self.tables, features, page_locked)

    @property
    def in_turn(self) -> bool:
        """Whether batches take their rows one after the other, because another process may fill the buffer."""
        return self._client is not None

    @contextmanager
    def epoch(self, epoch: int, order: Sequence[int], whole: int, draw: Draw) -> Iterator[PrefetchSampler | None]:
        """Sample and read ahead for `order`, of the `whole` batches of an epoch; ``None`` where another epoch does."""
        machine = self._decision.machine
        if machine is not None and machine.group.pid != os.getpid():
            warn_once(f"{self._layout.path}: a forked process reads each batch by itself")
            yield None
            return
        again = self._begun == epoch and self.lost()
        self.cached = not again and self._in_page_cache()
        self._begun, self._reads = epoch, self._count_reads() if self.cached else 0
        if self.cached:
            yield None
            return
        with self._begin_reading(epoch, order, whole, draw) as (begun, trial):
            if begun is None:
                warn_once(f"{self._layout.path}: another epoch uses the buffer: this one reads each batch by itself")
                yield None
                return
            workers, kept_bytes = self._decision.workers, self._kept_bytes if self._windows is None else sys.maxsize
            run = PrefetchSampler(self.tables.types, begun, order, draw, trial, workers, kept_bytes)
            try:
                yield run
            finally:
                run.stop()

    def _in_page_cache(self) -> bool:
        """Return whether batches of the host take their rows from the page cache, which has them."""
        decision, reading = self._decision, self._options.reading
        alone = decision.machine is None and self._windows is None and self._options.device.index is None
        room = decision.output_bytes <= decision.budget.left()
        return alone and room and not reading.verify and in_page_cache(self._layout, reading)

    def _count_reads(self) -> int:
        return sum(table.counters.ssd_reads for table in self._features.values())

    def lost(self) -> bool:
        """Return whether the page cache has lost rows since the epoch began, so that the rest is to be read ahead."""
        return self.cached and self._count_reads() > self._reads

    @contextmanager
    def _begin_reading(
        self, epoch: int, order: Sequence[int], whole: int, draw: Draw
    ) -> Iterator[tuple[BufferEpoch | None, dict[int, Sampled]]]:
        """Begin an epoch of the buffer; yields it, and batches that were sampled to choose it by."""
        trial: dict[int, Sampled] = {}
        if self._client is None:
            with self._lock:
                if self.choice is None:
                    every = self._decision.rank.resumed_batches(whole, len(order))
                    trial = _among(order, every, self._prepare(every, draw))
            assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
            with self.buffer.epoch(self.choice) as reading:
                yield reading, trial
            return
        key = self._client.key(epoch)
        if self._server is not None:
            with self._lock:
                if self.choice is None:
                    trial = self._offer(self._server, self._client, key, order, whole, draw)
        with self._client.epoch(key) as shared:
            self.choice, self.buffer = self._client.choice, self._client
            self._kept_bytes = min(self._kept_bytes, self._client.kept_bytes)
            if self._windows is not None:
                self._windows.memory.room = self._client.kept_bytes
            yield shared, trial

    def _offer(
        self, server: BufferServer, client: BufferClient, key: Key, order: Sequence[int], whole: int, draw: Draw
    ) -> dict[int, Sampled]:
        """Make the buffer of all processes of this machine, chosen for their batches; return this one's samples."""
        machine = self._decision.machine
        assert machine is not None
        together = machine.interleaved(whole, len(order))
        try:
            trial = self._prepare(together, draw)
        except BaseException as error:
            server.refuse(key, error)
            raise
        assert self.choice is not None and isinstance(self.buffer, SsdBuffer)
        client.memory = self.buffer.memory
        kept_bytes = self._known // machine.size if self._windows is None else self._windows.memory.room
        server.offered = (self.buffer, self.choice, kept_bytes)
        return _among(order, together, trial, machine.size)

    def gather(self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Fill `outs` with the rows of a batch; see `SsdBuffer.gather`."""
        assert self.buffer is not None
        self.buffer.gather(batch, ids, outs, self._threads)

    def _prepare(self, order: Sequence[int], draw: Draw) -> dict[int, Sampled]:
        """Sample batches of a whole epoch, choose a configuration, and make the buffer. Return the samples by place."""
        layout, tables, memory = self._layout, self.tables, self._options.memory
        if memory.speed is not None:
            self.speed = memory.speed
        elif self._drives is not None:  # the stripe files may be gone
            self.speed = self._drives.speed
        else:
            self.speed = measured_speed(layout.image_places, layout.path.absolute().parent)
        self.depth = find_depth(layout, self._options.reading, self.speed)
        with ThreadPoolExecutor(1, thread_name_prefix="tiering-trial") as pool:  # a thread that works on a GPU is ours
            samples, rows = pool.submit(self._sample_trial, order, draw).result()
        windows = None if memory.window == "auto" else [min(int(memory.window), UNLIMITED)]
        buffer, scale = self._buffers.get(self._key), tables.thinning
        if buffer is None:
            slots_room = None if self._drives is None else self._drives.slots_room
            needs, budget = self._buffer_memory(samples), self._decision.budget
            plan = needs.plan(tables, budget, rows, self.speed, windows, slots_room)
            shared = self._decision.machine is not None
            reading = replace(self._options.reading, depth=self.depth.depth)
            buffer = SsdBuffer(layout, self._features, tables, plan.pools, reading, shared, self._drives)
            buffer.numbers_bytes, self.choice = plan.numbers, plan.choice
            self._buffers[self._key] = buffer
        else:
            if self._windows is not None:
                self._windows.memory.grow(self._decision.budget.left() // 4)
            most = max_known(buffer.numbers_bytes, rows, scale, self._batch_bytes(samples))
            self.choice = choose_config(tables, buffer.pools, rows, self.speed, windows, most, scale)
        self.buffer = buffer
        _log.info(
            "%s: buffer of %s for rows of the ssd tier (%s), %s; disks: %s; %s; estimate: %.4f s of reading per batch",
            layout.path, format_bytes(buffer.nbytes),
            ", ".join(f"{format_count(slots)} of {row_bytes} bytes" for row_bytes, slots in buffer.pools),
            self.choice, self.speed, self.depth, self.choice.seconds,
        )  # fmt: skip
        return samples

    def _buffer_memory(self, samples: Mapping[int, Sampled]) -> BufferMemory:
        decision, windows = self._decision, self._windows
        processes = 1 if decision.machine is None else decision.machine.size
        nodes = max(sum(ids.size for ids in s.nodes.values()) for s in samples.values())
        edges = max(sum(e.src.size for hop in s.hops for e in hop.values()) for s in samples.values())
        outputs = decision.output_bytes + (0 if windows is None else processes * windows.memory.room)
        needs = BufferMemory.of(
            self.tables, outputs, decision.mapped_bytes, nodes, edges, self.depth.depth, decision.workers, processes,
            self._batch_bytes(samples),
        )  # fmt: skip
        return needs if windows is None else needs.with_windows(windows.memory, decision.budget, processes)

    def _batch_bytes(self, samples: Mapping[int, Sampled]) -> int:
        """Return the bytes that each batch known ahead takes in addition to its rows' numbers."""
        return 0 if self._windows is None else sum(sample.nbytes for sample in samples.values()) // len(samples)

    def _sample_trial(self, order: Sequence[int], draw: Draw) -> tuple[dict[int, Sampled], list[Rows]]:
        """Sample the first batches of an epoch; return those that memory may keep, and the thinned rows of all."""
        tables, samples, rows = self.tables, dict[int, Sampled](), list[Rows]()
        enough = trial_rows(tables, self._decision.budget.left())
        start, total, held = time.perf_counter(), 0, 0
        for place, batch in enumerate(order[:TRIAL_BATCHES]):
            sample = draw(batch)
            rows.append(tables.thinned(tables.among(sample.unique_nodes)))
            total += len(rows[-1])
            held += sample.nbytes
            if self._windows is not None or held < self._kept_bytes or not samples:
                samples[place] = sample
            full = self._windows is not None and held >= self._kept_bytes
            if place and (time.perf_counter() - start > TRIAL_SECONDS or total > enough or full):
                break
        return samples, rows


def _among(
    order: Sequence[int], tried: Sequence[int], samples: dict[int, Sampled], size: int = 1
) -> dict[int, Sampled]:
    """Return the samples of `tried`, batches of `size` processes in turn, by their places in `order`."""
    places = ((place, place // size, sample) for place, sample in samples.items())
    return {at: sample for place, at, sample in places if at < len(order) and order[at] == tried[place]}


@contextmanager
def sampling_stage(
    lookahead: Lookahead | None, epoch: int, order: Sequence[int], whole: int, draw: Draw, workers: int
) -> Iterator[tuple[PipelineStage, PrefetchSampler | None]]:
    """Begin an epoch: yield the stage, which returns place in `order` and sampled batch, and what samples ahead."""
    with nullcontext() if lookahead is None else lookahead.epoch(epoch, order, whole, draw) as ahead:
        sample, abort = (lambda place: draw(order[place]), None) if ahead is None else (ahead.sample, ahead.abort)
        yield PipelineStage("sampling", lambda place: (place, sample(place)), workers, False, abort), ahead
