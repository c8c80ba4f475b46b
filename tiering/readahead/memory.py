"""The division of a loader's memory: batches, samplers, the page cache, the buffer for rows of the ssd tier."""

from __future__ import annotations

import math
import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tiering import native
from tiering.artifacts.artifact import Artifact
from tiering.memory import Budget
from tiering.readahead.config import (
    BATCHES_SHARE,
    KNOWN_SHARE,
    NUMBERS_SHARE,
    UNLIMITED,
    ReadaheadConfig,
    Rows,
    SsdTables,
    choose_config,
    divide_slots,
    known_bytes,
    max_known,
)
from tiering.readahead.disk_speed import MAX_READ, DiskSpeed
from tiering.text.units import parse_threads

PREFETCH = 2  # batches that a loader keeps ready, by default
WORKERS = min(4, max(1, parse_threads("auto") // 2))  # sampling threads of a loader, by default
_MAPPED_SHARE = 1 / 3  # of memory, for files that sampling reads through the page cache
LEAST_LISTS = 16 << 20  # bytes of lists; fewer are read again sooner than windows of batches are planned
MAX_WINDOW = 64  # batches; half as many where memory holds less than a quarter of lists and rows
_WINDOW_SHARE = 1 / 4  # of what batches leave, for windows at most: more is worth more to rows
_BATCH_FACTOR = 2.5  # bytes of a batch in windows per byte of its nodes and edges
LEAST_SLOTS = 64  # for rows of each size: parts of batches of a few rows each. Useful buffers have many more


@dataclass(frozen=True)
class BatchMemory:
    """Memory of the batches of a loader, in bytes."""

    outputs: int  # of batches that are ready or in the consumer's hands
    work: int  # of these, and of batches that are being sampled

    @classmethod
    def of(cls, rows: int, sampled: int, prefetch: int = PREFETCH, workers: int = WORKERS) -> BatchMemory:
        """Return the memory of batches of `rows` bytes of delivered rows, and of `sampled` bytes of nodes and edges."""
        outputs = (prefetch + workers) * int(1.25 * rows)
        return cls(outputs, outputs + (2 * workers + 2) * 4 * sampled)


def page_cache_for(mapped: int, room: int) -> int:
    """Return the bytes of `room` that are left to the page cache for `mapped` bytes of files."""
    return min(mapped, int(_MAPPED_SHARE * room))


def all_rows_fit(needed: int, mapped: int, room: int) -> bool:
    """Return whether `room` holds all rows and batches, `needed` bytes, in addition to mapped files."""
    return needed + page_cache_for(mapped, room) <= room


def room_for_all(needed: int, mapped: int) -> int:
    """Return the least room for which `all_rows_fit`."""
    return min(needed + mapped, math.ceil(needed / (1 - _MAPPED_SHARE)) + 1)


@dataclass
class WindowMemory:
    """Memory of windows of batches, which read neighbor lists that memory does not hold, in bytes."""

    lists: int  # of all lists
    left: int  # of the loader's memory
    room: int  # of windows now: the one that is sampled, and the one before it
    least: int = 0  # of windows of one batch
    most: int = MAX_WINDOW  # batches of a window

    @classmethod
    def find(cls, lists: int, around: int, left: int, page_cache: int | None = None) -> WindowMemory | None:
        """Return the windows of a loader of whose memory so much is left; ``None`` where lists stay mapped.

        They do where the page cache (by default the part of `page_cache_for`) holds `lists` and what is mapped `around`
        them, and where they are small.
        """
        cached = int(_MAPPED_SHARE * left) if page_cache is None else page_cache
        return None if lists <= max(LEAST_LISTS, cached - around) else cls(lists, left, int(_WINDOW_SHARE * left))

    def fit(self, batch_bytes: int, rows: int) -> None:
        """Take memory for one batch now, of so many bytes; `rows`: bytes of all rows."""
        self.least, whole = int(_BATCH_FACTOR * batch_bytes), 4 * self.left >= rows + self.lists
        self.room, self.most = self.least, MAX_WINDOW if whole else MAX_WINDOW // 2

    def grow(self, spare: int) -> int:
        """Take up to `spare` bytes more, as far as windows need them; returns how many."""
        before, self.room = self.room, max(self.room, min(self.most * self.least, self.room + spare))
        return self.room - before

    @property
    def batches(self) -> int:
        """Batches of a window, about; real ones are bounded by the memory that they take."""
        return max(1, min(self.most, self.room // max(1, self.least)))


@dataclass(frozen=True)
class BufferMemory:
    """The needs of a buffer for rows of the ssd tier, and what takes memory in addition, in bytes."""

    fixed: int  # batches that are ready, samplers, staging memory of reads, state of the plan
    least: int  # of the smallest buffer
    mapped: int  # files that sampling reads through the page cache
    kept: int = 0  # of each batch that is known ahead, where all are kept until their turn

    @classmethod
    def of(
        cls, tables: SsdTables, outputs: int, mapped: int, nodes: int, edges: int, depth: int,
        workers: int = WORKERS, processes: int = 1, kept: int = 0,
    ) -> BufferMemory:  # fmt: skip
        """Return the memory for batches of at most `nodes` and `edges`, with `depth` reads in flight a stripe file."""
        fixed = sum((
            outputs,
            processes * (2 * workers + 2) * (48 * nodes + 16 * edges),  # samplers
            native.buffer_staging_bytes(tables.rows, tables.shape, tables.images, depth, MAX_READ),
            native.lookahead_state_bytes(tables.num_rows, 0),
            2 * kept,
        ))  # fmt: skip
        least = sum(LEAST_SLOTS * (row_bytes + 8) for row_bytes in {size for _, size, *_ in tables.rows})
        return cls(fixed, least, mapped, kept)

    @property
    def minimum(self) -> int:
        """Room that the smallest buffer takes, with batches to come."""
        return math.ceil((self.fixed + self.least) / (1 - KNOWN_SHARE - NUMBERS_SHARE))

    def _spare(self, budget: Budget) -> int:
        """Return the bytes of a budget beyond the minimum."""
        return max(0, int(budget.left() * (1 - KNOWN_SHARE - NUMBERS_SHARE)) - self.fixed - self.least)

    def with_windows(self, windows: WindowMemory, budget: Budget, processes: int = 1) -> BufferMemory:
        """Let the windows of all processes grow into their share of what is spare, and return the needs with that."""
        grown = processes * windows.grow(int(_WINDOW_SHARE * self._spare(budget)) // processes)
        return replace(self, fixed=self.fixed + grown)

    def plan(
        self, tables: SsdTables, budget: Budget, batches: Sequence[Rows], speed: DiskSpeed,
        windows: Sequence[int] | None = None, slots_room: int | None = None,
    ) -> BufferPlan:  # fmt: skip
        """Return the buffer for some batches, by their rows, thinned ones too; `BudgetError` if it would be small.

        `windows`: see `choose_config`. `slots_room`: bytes for slots that lie on a GPU.
        """
        budget.require(self.minimum, "the loader's buffer for rows of the ssd tier, and batches,")
        left, scale, sizes = budget.left(), tables.thinning, Counter[int]()
        for batch in batches:
            sizes.update(tables.row_bytes_of(batch))

        def pools(numbers: int) -> list[tuple[int, int]]:
            room = left - self.fixed - math.ceil(KNOWN_SHARE * left) - numbers
            room = room - page_cache_for(self.mapped, room) if slots_room is None else slots_room
            return divide_slots(tables, max(self.least, room), sizes)

        numbers = int(NUMBERS_SHARE * left)
        if self.kept:
            numbers = min(int(BATCHES_SHARE * left), numbers + self._spare(budget) // 4)
        known = max_known(numbers, batches, scale, self.kept)
        choice = choose_config(tables, pools(numbers), batches, speed, windows, known, scale)
        if windows is None and choice.window < UNLIMITED:  # what is not known ahead is the buffer's
            numbers = known_bytes(choice, batches, scale, sum(slots for _, slots in pools(numbers)), self.kept)
        return BufferPlan(pools(numbers), choice, numbers)


@dataclass(frozen=True)
class BufferPlan:
    """A buffer's (bytes of a row, slots), its reading, and bytes for the numbers of rows of batches to come."""

    pools: list[tuple[int, int]]
    choice: ReadaheadConfig
    numbers: int


def mapped_files(artifact: Artifact) -> Iterator[tuple[Path, mmap.mmap]]:
    """Yield the files of an artifact, and of its parts, that are mapped by now."""
    for name, array in artifact.manifest.arrays.items():
        if isinstance(mapping := getattr(array, "_mmap", None), mmap.mmap):
            yield artifact.path / name, mapping
    for part in artifact.parts().values():
        yield from mapped_files(part)
