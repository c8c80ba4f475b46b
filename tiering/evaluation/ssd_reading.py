"""Seconds that reading rows from SSD would take, before a training exists: policies in the same memory, simulated.

All rows lie on SSD, as `tiering layout` lays out its ssd tier: in the order of a score. Memory has slots for some of
them. What a batch finds there is not read; what that is depends on the policy (`tiering.evaluation.ssd_policies`, and
`tiering.lookahead.choice` for what the loader does). Reads are priced by a `DiskSpeed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.counting import JudgedEpochs
from tiering.evaluation.line import IntArray, Rows
from tiering.evaluation.memory_need import ReadingRoom
from tiering.evaluation.ssd_policies import (
    BUFFERED_WINDOWS,
    DiskRows,
    Future,
    at_random,
    belady,
    held_throughout,
    least_recently_used,
    window_buffering,
)
from tiering.formats.layout import SsdRows
from tiering.lookahead.choice import Choice, SsdTables, choose, most_known, slots_for
from tiering.lookahead.disk_speed import MAX_READ, DiskSpeed
from tiering.progress import Progress, progress
from tiering.units import Size, format_bytes, format_count, parse_size

_FEWEST = 3
"""Batches: with fewer, nothing is filled before what is counted."""
BLOCK = 4096
"""Reads begin and end at multiples of it."""
MERGED, LOOK_AHEAD = "belady-merged", "look-ahead"
"""Names of the policies whose reads are merged; all others read page by page."""
POLICIES = (
    "random", "static", "lru", *(f"window-{window}" for window in BUFFERED_WINDOWS), "belady", MERGED, LOOK_AHEAD
)  # fmt: skip
"""Names of all policies."""


@dataclass(frozen=True)
class Reading:
    """What a policy reads, a batch in the mean."""

    seconds: float
    requests: float
    bytes: float

    def to_json(self) -> dict[str, float]:
        """JSON form."""
        return {f"{name}_per_batch": value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class MemoryReading:
    """What all policies read in one size of memory, with rows in the order of one score."""

    memory: Size
    bytes: int
    """The size in bytes."""
    rows: int
    """Rows in memory."""
    policies: dict[str, Reading]
    """Per name of `POLICIES`."""
    choice: Choice
    """How the loader would look ahead."""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        policies: dict[str, dict[str, Any]] = {name: found.to_json() for name, found in self.policies.items()}
        choice = self.choice
        policies[LOOK_AHEAD] |= {"window": choice.window, "horizon": choice.horizon, "gap_bytes": choice.gap}
        return {"memory": self.memory.text, "bytes": self.bytes, "rows": self.rows, "policies": policies}


@dataclass(frozen=True)
class SsdReading:
    """Reading from SSD, simulated for some sizes of memory and all scores."""

    speed: DiskSpeed
    batches: int
    """Batches simulated."""
    counted: int
    """The last so many of them are counted: those before fill the memory."""
    scores: dict[str, list[MemoryReading]]
    """Per score, and the oracle last: each size of memory."""

    def to_json(self) -> dict[str, Any]:
        """JSON form; see `tiering.evaluation.result.Evaluation.to_json`."""
        return {
            "ssd_model": asdict(self.speed),
            "batches": self.batches,
            "counted_batches": self.counted,
            "scores": {name: [entry.to_json() for entry in found] for name, found in self.scores.items()},
        }


@dataclass(frozen=True)
class ReadingQuestion:
    """What is asked: how long reads of these rows take on such a disk, in memory of some sizes."""

    rows: Rows
    sizes: tuple[Size, ...]
    page_bytes: int
    speed: DiskSpeed

    @classmethod
    def parse(cls, rows: Rows, sizes: Sequence[str | int], page_bytes: int, speed: DiskSpeed) -> ReadingQuestion:
        """From what the user gave."""
        parsed = tuple(parse_size(size, "rows in memory") for size in sizes)
        for size in parsed:
            if size.auto or not size.of(rows.bytes):
                raise InputError(f"rows in memory: expected a size such as 4GiB or 10%, found {size.text!r}")
        return cls(rows, parsed, page_bytes, speed)

    @property
    def most_bytes(self) -> int:
        """Memory of the largest size, less what all rows have no use for."""
        return min(self.rows.bytes, max(size.of(self.rows.bytes) for size in self.sizes))

    @cached_property
    def tables(self) -> SsdTables:
        """All rows as a layout with nothing but an ssd tier has them: types by name."""
        entries, first_page = [], 0
        for _, count, size in sorted(zip(self.rows.types, self.rows.counts, self.rows.row_bytes, strict=True)):
            place = SsdRows.plan(first_page, count, size, self.page_bytes)
            entries.append((count, size, place.first_page, place.stride, place.rows_per_page))
            first_page += place.num_pages
        return SsdTables(sorted(self.rows.types), entries, [0] * len(entries), self.page_bytes, 1)

    def check(self, batches: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse a size that has no room for one of the batches, given by `Rows` numbers."""
        kinds, places = np.unique(self.rows.row_bytes, return_inverse=True)
        counts = [
            np.bincount(places[np.searchsorted(self.rows.starts, batch, "right") - 1], minlength=kinds.size)
            for batch in batches
        ]
        most, every = np.max(counts, axis=0), np.sum(counts, axis=0)
        used = dict(zip(kinds.tolist(), every.tolist(), strict=True))
        for size in self.sizes:
            slots = dict(slots_for(self.tables, size.of(self.rows.bytes), used))
            for row_bytes, needed in zip(kinds.tolist(), most.tolist(), strict=True):
                if slots[row_bytes] < needed:
                    raise InputError(
                        f"rows in memory: {size.text} has room for {format_count(slots[row_bytes])} rows of "
                        f"{format_bytes(row_bytes)} and 8 bytes each, and a batch uses {format_count(needed)} of them; "
                        "give more, or make batches smaller"
                    )

    def sample(self, judged: JudgedEpochs, room: ReadingRoom) -> list[npt.NDArray[Any]]:
        """Rows of the first batches, by `Rows` numbers: as many as fill the largest memory about three times.

        A third of them uses as many different rows as there is room for, or as many as three times that, each counted
        as often as it is used. No more are taken than the epochs have, and not more rows than the `room` has place for.
        """
        rows, used, different, goal = 0, 0, 0, 0
        seen = np.zeros(self.rows.size, bool)
        batches: list[npt.NDArray[Any]] = []
        with closing(judged.each(self._joined, "sampling for simulated reading")) as coming:
            for batch in coming:
                rows += batch.size
                if rows > room.rows and len(batches) < _FEWEST:
                    room.refuse(_FEWEST * max(map(len, [batch, *batches])))
                if rows > room.rows:
                    break
                batches.append(batch)
                different += self._bytes(batch[~seen[batch]])
                used += self._bytes(batch)
                seen[batch] = True
                if not goal and (different >= self.most_bytes or used >= 3 * self.most_bytes):
                    goal = 3 * len(batches)
                if len(batches) == goal:
                    break
        self.check(batches)
        return batches

    def answer(
        self, lines: Iterable[tuple[str, npt.NDArray[Any]]], batches: Sequence[npt.NDArray[Any]], seed: int
    ) -> SsdReading:
        """Simulate all sizes for rows in the order of each of `lines`, with batches given by `Rows` numbers."""
        with progress(None, "simulating reads", "policy") as bar:
            found = {name: self._of_line(line, batches, seed, bar) for name, line in lines}
        return SsdReading(self.speed, len(batches), len(batches) - len(batches) // 3, found)

    def _of_line(
        self, line: npt.NDArray[Any], batches: Sequence[npt.NDArray[Any]], seed: int, bar: Progress
    ) -> list[MemoryReading]:
        numbers = self._numbers(line)
        disk = Disk(self.tables, self.speed)
        simulation = Simulation(disk, numbers[line], [np.sort(numbers[batch]) for batch in batches], seed)
        del numbers
        return [simulation.of_size(size, size.of(self.rows.bytes), bar) for size in self.sizes]

    def _joined(self, nodes: Mapping[str, IntArray]) -> npt.NDArray[Any]:
        """Rows of a batch from its nodes per type."""
        parts = {t: nodes[t] + self.rows.starts[index] for index, t in enumerate(self.rows.types)}
        return self.rows.join(parts).astype(np.uint32 if self.rows.size < 2**32 else np.int64)

    def _bytes(self, rows: npt.NDArray[Any]) -> int:
        if self.rows.one_size:
            return rows.size * self.rows.row_bytes[0]
        kinds = np.bincount(np.searchsorted(self.rows.starts, rows, "right") - 1, minlength=len(self.rows.types))
        return int(kinds @ np.array(self.rows.row_bytes))

    def _numbers(self, line: npt.NDArray[Any]) -> DiskRows:
        """Place on disk of each row."""
        numbers, first = np.empty(self.rows.size, np.uint32), 0
        for node_type in self.tables.types:
            part = self.rows.part(self.rows.types.index(node_type))
            own = line if len(self.rows.types) == 1 else line[(line >= part.start) & (line < part.stop)]
            numbers[own] = np.arange(first, first + own.size, dtype=np.uint32)
            first += own.size
        return numbers


@dataclass(frozen=True)
class Disk:
    """Rows on disk, and what reading some of them costs."""

    tables: SsdTables
    speed: DiskSpeed

    @cached_property
    def ends(self) -> IntArray:
        """Rows up to the end of each table."""
        return np.cumsum([rows for rows, *_ in self.tables.rows], dtype=np.int64)

    def blocks(self, rows: DiskRows) -> tuple[IntArray, IntArray]:
        """The first block that each of some rows, ascending, has bytes in, and the last."""
        first, last = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
        cuts, page = [0, *np.searchsorted(rows, self.ends).tolist()], self.tables.page_bytes
        for k, (count, row_bytes, first_page, stride, per_page) in enumerate(self.tables.rows):
            own = slice(cuts[k], cuts[k + 1])
            local = rows[own].astype(np.int64) - (self.ends[k] - count)
            begins = first_page * page + SsdRows(first_page, 0, stride, per_page).begins(local, page)
            first[own], last[own] = begins // BLOCK, (begins + row_bytes - 1) // BLOCK
        return first, last

    def page_by_page(self, rows: DiskRows) -> tuple[int, int]:
        """Requests and bytes of reading each page by itself; a row of several is one request."""
        first, last = self.blocks(rows)
        shared = last[:-1] - first[1:] + 1  # blocks that a row has in common with the one before: above 0 if any
        together = shared > 0
        blocks = int((last - first + 1).sum() - shared[together].sum())
        return rows.size - int(np.count_nonzero(together)), blocks * BLOCK

    def merged(self, rows: DiskRows, gap: int) -> tuple[int, int]:
        """Requests and bytes if neighbouring pages are read together, and gaps of up to `gap` bytes read through."""
        if not rows.size:
            return 0, 0
        first, last = self.blocks(rows)
        apart = np.flatnonzero((first[1:] - last[:-1] - 1) * BLOCK > gap)
        begins, ends = first[np.append(0, apart + 1)], last[np.append(apart, rows.size - 1)] + 1
        nbytes = (ends - begins) * BLOCK
        return int((-(-nbytes // MAX_READ)).sum()), int(nbytes.sum())

    def mean(self, reads: Sequence[tuple[int, int]]) -> Reading:
        """The mean of batches of so many requests and bytes, each read by itself."""
        seconds = float(np.mean([self.speed.seconds(*read) for read in reads]))
        requests, nbytes = np.mean(reads, axis=0).tolist()
        return Reading(seconds, requests, nbytes)


@dataclass(frozen=True)
class Pool:
    """Rows of one size, numbered by themselves; they compete for the same slots."""

    row_bytes: int
    future: Future
    line: DiskRows
    """All rows, hottest first."""
    offsets: tuple[IntArray, IntArray] | None
    """Ends of its tables by its own numbers, and what to add to these for each; ``None`` if it has all rows."""

    def to_disk(self, rows: DiskRows) -> DiskRows:
        """Numbers among all rows."""
        if self.offsets is None:
            return rows
        ends, shifts = self.offsets
        moved: DiskRows = (rows + shifts[np.searchsorted(ends, rows, "right")]).astype(np.uint32)
        return moved


class Simulation:
    """Policies on the rows of one score's order.

    `line` has all rows, hottest first, and `batches` those used, ascending; both by their numbers on disk.
    """

    def __init__(self, disk: Disk, line: DiskRows, batches: Sequence[DiskRows], seed: int) -> None:
        self._disk, self._batches, self._seed = disk, batches, seed
        sizes = [row_bytes for _, row_bytes, *_ in disk.tables.rows]
        self._pools = [self._pool(row_bytes, line) for row_bytes in sorted(set(sizes))]
        self._counted = slice(len(batches) // 3, None)

    def of_size(self, memory: Size, nbytes: int, bar: Progress) -> MemoryReading:
        """All policies in one size of memory."""
        tables, disk = self._disk.tables, self._disk
        used = {pool.row_bytes: sum(rows.size for rows in pool.future.batches) for pool in self._pools}
        slots = slots_for(tables, nbytes, used)
        known = most_known(nbytes, self._batches)
        found: dict[str, Reading] = {}
        for name, missing in self._missing(dict(slots)):
            if name == "belady":
                gaps = (0, disk.speed.gap)
                reads = [(disk.page_by_page(rows), *(disk.merged(rows, gap) for gap in gaps)) for rows in missing]
                single, *merged = zip(*reads[self._counted], strict=True)
                found[name] = disk.mean(single)
                found[MERGED] = min(map(disk.mean, merged), key=lambda reading: reading.seconds)
            else:
                found[name] = disk.mean([disk.page_by_page(rows) for rows in missing][self._counted])
            bar.update(1)
        choice = choose(tables, slots, self._batches, disk.speed, most_known=known)
        found[LOOK_AHEAD] = Reading(choice.seconds, choice.reads, choice.read_bytes)
        bar.update(1)
        return MemoryReading(memory, nbytes, sum(number for _, number in slots), found, choice)

    def _missing(self, slots: dict[int, int]) -> Iterator[tuple[str, Iterator[DiskRows]]]:
        """Per policy the rows that each batch reads, by their numbers on disk."""
        policies: dict[str, Callable[[Pool, int], Iterator[DiskRows]]] = {
            "random": lambda pool, room: at_random(pool.future, room, self._seed),
            "static": lambda pool, room: held_throughout(pool.future, pool.line[:room]),
            "lru": lambda pool, room: least_recently_used(pool.future, room),
            **{f"window-{window}": self._window(window) for window in BUFFERED_WINDOWS},
            "belady": lambda pool, room: belady(pool.future, room),
        }
        for name, policy in policies.items():
            yield name, self._together([policy(pool, slots[pool.row_bytes]) for pool in self._pools])

    def _window(self, window: int) -> Callable[[Pool, int], Iterator[DiskRows]]:
        return lambda pool, room: window_buffering(pool.future, room, window, self._seed)

    def _together(self, missing: Sequence[Iterator[DiskRows]]) -> Iterator[DiskRows]:
        if len(missing) == 1:
            return missing[0]
        return (
            np.sort(np.concatenate([pool.to_disk(rows) for pool, rows in zip(self._pools, parts, strict=True)]))
            for parts in zip(*missing, strict=True)
        )

    def _pool(self, row_bytes: int, line: DiskRows) -> Pool:
        tables, ends = self._disk.tables.rows, self._disk.ends
        member = np.array([size == row_bytes for _, size, *_ in tables])
        if member.all():
            return Pool(row_bytes, Future(self._batches, int(ends[-1])), line, None)
        counts = np.array([count for count, *_ in tables])
        own_ends = np.cumsum(counts[member])
        shift = np.zeros(counts.size, np.int64)
        shift[member] = ends[member] - own_ends

        def own(rows: DiskRows) -> DiskRows:
            table = np.searchsorted(ends, rows, "right")
            mine = member[table]
            local: DiskRows = (rows[mine] - shift[table[mine]]).astype(np.uint32)
            return local

        future = Future([own(rows) for rows in self._batches], int(own_ends[-1]))
        return Pool(row_bytes, future, own(line), (own_ends, shift[member]))
