"""The buffer in front of a layout's ssd tier: memory for rows of all node types, filled ahead of the batches."""

from __future__ import annotations

import itertools
import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError, TieringError
from tiering.formats.layout import Layout
from tiering.loader.options import ReadOptions
from tiering.loader.process import ForkLock
from tiering.loader.processes.peers import shared_memory
from tiering.loader.tables.gather import FeatureRows, TieredFeatures
from tiering.loader.tables.resident import SharedBlock, anonymous
from tiering.loader.tables.ssd import PageChecks, open_row_buffer, warn_of_fallback
from tiering.readahead.config import ReadaheadConfig, SsdTables

if TYPE_CHECKING:
    from tiering.loader.gpu.drives import GpuDrives, SlotFiller

Ids = npt.NDArray[np.int64]
Slots = npt.NDArray[np.uint32]
NO_SLOT = np.uint32(native.NO_SLOT)  # of rows that lie in none
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK, which `mmap` does not name: a child has zeros there and copies nothing
# Names of counters, and the core's names of them.
_COUNTERS = {
    "batches": "batches", "rounds": "rounds", "rows": "rows", "rows_needed": "needed", "rows_read": "missed",
    "reads": "reads", "read_bytes": "read_bytes", "used_bytes": "used_bytes",
}  # fmt: skip
NO_COUNTERS: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), "wait_seconds": 0.0, "idle_seconds": 0.0}
# Of the processes that this one is a fork of: destroying them would wait for threads that do not exist.
_kept_from_parents: list[native.RowBuffer] = []


class BufferSlots(ABC):
    """The slots of a buffer for whoever reads the rows there. `pools`: (bytes of a row, slots)."""

    tables: SsdTables
    pools: list[tuple[int, int]]
    _features: dict[str, FeatureRows]
    memory: SharedBlock  # of all slots, as this process maps it

    @abstractmethod
    def release(self, batch: int, part: int) -> None:
        """Release the slots of a part, which nobody reads any more; the parts of a batch are released in order."""

    @abstractmethod
    def _take(self, batch: int, part: int) -> tuple[Slots, Slots, int, bool]:
        """Wait for a part of a batch, held until `release`; returns as `RowBuffer.take`."""

    def gather(
        self, batch: int, ids: Mapping[str, Ids], outs: Mapping[str, npt.NDArray[np.uint8]], threads: int
    ) -> None:
        """Fill `outs` (by type: uint8, shape (ids, bytes of a row)) with the rows of a batch, once they were read."""
        types = self.tables.types
        features = [cast("TieredFeatures", self._features[t]) for t in types]
        number, last = 0, False
        while not last:
            slots, positions, batch_rows, last = self._take(batch, number)
            stats = native.gather_from_slots(
                self.memory.array, self.pools, slots, positions, batch_rows, number == 0,
                [f.table for f in features], [ids[t] for t in types], [outs[t] for t in types], threads,
            )  # fmt: skip
            for table, served in zip(features, stats, strict=True):
                table.counters.add(served, gathers=int(number == 0))
            self.release(batch, number)
            number += 1

    def slots(self, batch: int, part: int, ids: Mapping[str, Ids]) -> tuple[dict[str, Slots], bool]:
        """Return the slots of a part of a batch, once its rows were read, and whether it is the last.

        By type a slot for each id, counted from `origins`, or `NO_SLOT`; they are reserved until `release`.
        """
        types = self.tables.types
        held, positions, batch_rows, last = self._take(batch, part)
        slots = {t: np.full(ids[t].size, NO_SLOT) for t in types}
        native.spread_slots(
            held, positions, batch_rows, self.tables.begins,
            self.firsts, [ids[t] for t in types], list(slots.values()),
        )  # fmt: skip
        return slots, last

    @property
    def origins(self) -> dict[str, int]:
        """Offset in bytes of the first slot of each type in the memory of all slots."""
        sizes = [row_bytes * slots for row_bytes, slots in self.pools]
        return {t: sum(sizes[:pool]) for t, pool in zip(self.tables.types, self._pool_of_types(), strict=True)}

    @property
    def firsts(self) -> list[int]:
        """Number of the first slot of each type."""
        firsts = [0, *itertools.accumulate(slots for _, slots in self.pools)]
        return [firsts[pool] for pool in self._pool_of_types()]

    def _pool_of_types(self) -> list[int]:
        sizes = [row_bytes for row_bytes, _ in self.pools]
        return [sizes.index(row_bytes) for _, row_bytes, *_ in self.tables.rows]


class SsdBuffer(BufferSlots):
    """Buffer slots for rows of the ssd tier, of all node types in `features`; one epoch at a time uses them.

    `drives`: slots lie in memory of the GPU, which fills them.
    """

    def __init__(
        self,
        layout: Layout,
        features: Mapping[str, FeatureRows],
        tables: SsdTables,
        pools: Sequence[tuple[int, int]],
        reading: ReadOptions,
        shared: bool = False,
        drives: GpuDrives | None = None,
    ) -> None:
        self.tables, self._features = tables, dict(features)
        # Bytes of a row, and slots. Rows of a pool begin where their size allows the widest accesses of a GPU.
        self.pools = sorted(pools, key=lambda pool: pool[0] & -pool[0], reverse=True)
        self._checks = PageChecks(layout) if reading.verify and drives is None else None
        self._drives, self._filler = drives, cast("SlotFiller | None", None)
        self._layout, self._reading = layout, reading
        self.nbytes, self.descriptor = max(1, sum(row_bytes * slots for row_bytes, slots in pools)), -1
        if shared:
            self.descriptor, self.arena = shared_memory("tiering-buffer", self.nbytes)
            weakref.finalize(self, os.close, self.descriptor)
        else:
            self.arena = anonymous(self.nbytes if drives is None else 1)
        self.memory = SharedBlock(buffer_name(layout), self.arena)
        if drives is not None:  # what stands for memory of the GPU
            self.memory.registration = drives.make_slots(buffer_name(layout), self.nbytes)
        self._busy, self._lock, self._opening, self._process = False, ForkLock(), ForkLock(), 0
        self._native: native.RowBuffer | None = None
        self.rows_of = Counter[int]()  # rows planned for each process that reads through the buffer, by number
        self._begun = False
        self.numbers_bytes = 0  # memory in addition to the slots, for the numbers of rows of batches to come

    def __del__(self) -> None:
        self._native = None  # before the slots: unmapping them in the core as the program ends would abort

    @property
    def core(self) -> native.RowBuffer:
        """The core's buffer of this process; a fork begins with an empty one."""
        with self._opening:  # epochs may begin in several threads at once
            if self._native is None or self._process != os.getpid():
                if self._native is not None:
                    _kept_from_parents.append(self._native)
                # An old kernel refuses: a child then copies what the parent reads into, and does not use it.
                with suppress(OSError):
                    _mapping(self.arena).madvise(_WIPE_ON_FORK)
                self._native = open_row_buffer(
                    self._layout, self.tables, self.pools, self.arena, self._reading, self._checks
                )
                self._process = os.getpid()
                self._busy = self._begun = False
            return self._native

    @contextmanager
    def epoch(self, choice: ReadaheadConfig) -> Iterator[native.RowBuffer | None]:
        """Begin an epoch: yield the core's buffer; ``None`` where another epoch has it."""
        buffer = self.core
        with self._lock:
            free, self._busy = not self._busy, True
        if not free:
            yield None
            return
        try:
            with self.errors():
                # An empty buffer is filled by rounds that grow: the first batch comes soon.
                buffer.begin(choice.window, choice.horizon, choice.gap, growing=not self._begun)
            self._begun = True
            if self._drives is not None:
                begin = self.memory.registration.address
                begins = [begin + origin for origin in self.origins.values()]
                tables = list(zip(self.tables.rows, self.firsts, begins, strict=True))
                self._filler = self._drives.fill(buffer, tables)
            yield buffer
        finally:
            if buffer is self._native and self._process == os.getpid():  # else begun by a parent of this process
                if self._filler is not None:
                    buffer.stop()
                    self._filler.join()
                buffer.cancel()
                self._busy = False

    def _take(self, batch: int, part: int) -> tuple[Slots, Slots, int, bool]:
        with self.errors():
            return self.core.take(batch, part)

    def release(self, batch: int, part: int) -> None:
        """See `BufferSlots.release`; of any batch."""
        self.core.release(batch, part)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the core's errors into the loader's errors."""
        try:
            yield
        except (TieringError, ValueError) as error:
            if self._filler is not None and self._filler.error is not None:
                raise self._filler.error from None
            page = self.core.bad_page
            if page >= 0 and self._checks is not None:
                self._checks.refuse(page, self.tables.type_of_page(page))
            if isinstance(error, TieringError):
                raise
            raise InputError(f"{self._layout.path}: {error}") from None
        warn_of_fallback(self.core)

    def counters(self) -> dict[str, Any]:
        """Return the buffer's counters, JSON types only."""
        found = self.core.counters
        return {
            **{name: getattr(found, known) for name, known in _COUNTERS.items()},
            "wait_seconds": found.wait_nanoseconds * 1e-9, "idle_seconds": found.idle_nanoseconds * 1e-9,
        }  # fmt: skip

    def counters_of(self, number: int) -> dict[str, Any]:
        """Return the counters, and how many of the rows were planned for the processes before one, and for that one."""
        return {"before": sum(self.rows_of[k] for k in range(number)), "own": self.rows_of[number], **self.counters()}

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.core.reset_counters()


def buffer_name(layout: Layout) -> str:
    """Return the name of the memory of a layout's buffer in messages."""
    return f"{layout.path}: the buffer for rows of the ssd tier"


def _mapping(array: npt.NDArray[np.uint8]) -> mmap.mmap:
    base: Any = array
    while not isinstance(base, mmap.mmap):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base
