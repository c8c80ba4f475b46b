"""Simulated reading of feature rows from SSD, before a layout or a training exists.

All rows lie on SSD in the order of a score, as in the ssd tier of `tiering layout`, and memory has room for some of
them. Two policies decide which rows a batch reads; a `DiskSpeed` prices the reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.cache_order import IntArray, Rows
from tiering.evaluation.counting import ReferenceEpochs
from tiering.evaluation.memory import ReadingMemory
from tiering.formats.layout import SsdRows
from tiering.progress import Progress, progress
from tiering.readahead.config import ReadaheadConfig, SsdTables, choose_config, divide_slots, max_known
from tiering.readahead.disk_speed import DiskSpeed
from tiering.units import Size, format_bytes, format_count, parse_size

BLOCK = 4096
"""Reads begin and end at multiples of this number of bytes."""
STATIC, LOOK_AHEAD = "static", "look-ahead"
POLICIES = (STATIC, LOOK_AHEAD)
"""``static``: the hottest rows stay in memory, as in a tier; ``look-ahead``: the loader's plan."""
_MIN_BATCHES = 3
"""With fewer batches, nothing fills the memory before reads are counted."""


@dataclass(frozen=True)
class ReadCost:
    """Reads of a batch, on average."""

    seconds: float
    requests: float
    bytes: float

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {f"{name}_per_batch": value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class MemoryReading:
    """Reads with one size of memory, rows in the order of one score."""

    memory: Size
    bytes: int
    """The size in bytes."""
    rows: int
    """Rows in memory."""
    policies: dict[str, ReadCost]
    """Per name of `POLICIES`."""
    choice: ReadaheadConfig
    """Window, horizon and gap that the loader would choose."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        policies = {name: cost.to_json() for name, cost in self.policies.items()}
        choice = self.choice
        policies[LOOK_AHEAD] |= {"window": choice.window, "horizon": choice.horizon, "gap_bytes": choice.gap}
        return {"memory": self.memory.text, "bytes": self.bytes, "rows": self.rows, "policies": policies}


@dataclass(frozen=True)
class SsdReading:
    """Simulated reads for some sizes of memory and all scores."""

    speed: DiskSpeed
    batches: int
    """Batches simulated."""
    counted: int
    """The last batches, whose reads are counted: those before fill the memory."""
    scores: dict[str, list[MemoryReading]]
    """Per score, and the oracle last: each size of memory."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; see `tiering.evaluation.result.Evaluation.to_json`."""
        return {
            "ssd_model": asdict(self.speed),
            "batches": self.batches,
            "counted_batches": self.counted,
            "scores": {name: [entry.to_json() for entry in entries] for name, entries in self.scores.items()},
        }


@dataclass(frozen=True)
class ReadingSpec:
    """Rows, sizes of memory and the disk to simulate."""

    rows: Rows
    sizes: tuple[Size, ...]
    page_bytes: int
    speed: DiskSpeed

    @classmethod
    def parse(cls, rows: Rows, sizes: Sequence[str | int], page_bytes: int, speed: DiskSpeed) -> ReadingSpec:
        """Check the sizes that the user typed."""
        parsed = tuple(parse_size(size, "rows in memory") for size in sizes)
        for size in parsed:
            if size.auto or not size.of(rows.bytes):
                raise InputError(f"rows in memory: expected a size such as 4GiB or 10%, found {size.text!r}")
        return cls(rows, parsed, page_bytes, speed)

    @property
    def max_bytes(self) -> int:
        """Bytes of the largest memory, at most those of all rows."""
        return min(self.rows.bytes, max(size.of(self.rows.bytes) for size in self.sizes))

    @cached_property
    def tables(self) -> SsdTables:
        """All rows as in a layout that has nothing but an ssd tier: types by name."""
        entries, first_page = [], 0
        for _, count, size in sorted(zip(self.rows.types, self.rows.counts, self.rows.row_bytes, strict=True)):
            place = SsdRows.plan(first_page, count, size, self.page_bytes)
            entries.append((count, size, place.first_page, place.stride, place.rows_per_page))
            first_page += place.num_pages
        return SsdTables(sorted(self.rows.types), entries, [0] * len(entries), self.page_bytes, 1)

    def check(self, batches: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse a size that has no room for one of the batches, given by `Rows` numbers."""
        sizes, kinds = np.unique(self.rows.row_bytes, return_inverse=True)
        counts = [
            np.bincount(kinds[np.searchsorted(self.rows.starts, batch, "right") - 1], minlength=sizes.size)
            for batch in batches
        ]
        used = dict(zip(sizes.tolist(), np.sum(counts, axis=0).tolist(), strict=True))
        for size in self.sizes:
            slots = dict(divide_slots(self.tables, size.of(self.rows.bytes), used))
            for row_bytes, needed in zip(sizes.tolist(), np.max(counts, axis=0).tolist(), strict=True):
                if slots[row_bytes] < needed:
                    raise InputError(
                        f"rows in memory: {size.text} has room for {format_count(slots[row_bytes])} rows of "
                        f"{format_bytes(row_bytes)} and 8 bytes each, and a batch uses {format_count(needed)} of them; "
                        "give more, or make batches smaller"
                    )

    def sample(self, epochs: ReferenceEpochs, room: ReadingMemory) -> list[npt.NDArray[Any]]:
        """Sample the first batches, by `Rows` numbers: as many as fill the largest memory about three times.

        A third of them reads as many different bytes as the memory has, or three times as many with repetition. The
        epochs end earlier, and so does the `room` for rows.
        """
        rows, different, used, goal = 0, 0, 0, 0
        seen = np.zeros(self.rows.size, bool)
        batches: list[npt.NDArray[Any]] = []
        with closing(epochs.map_batches(self._number_rows, "sampling for simulated reading")) as sampled:
            for batch in sampled:
                rows += batch.size
                if rows > room.rows:
                    if len(batches) < _MIN_BATCHES:
                        room.refuse(_MIN_BATCHES * max(map(len, [batch, *batches])))
                    break
                batches.append(batch)
                different += self._bytes(batch[~seen[batch]])
                used += self._bytes(batch)
                seen[batch] = True
                if not goal and (different >= self.max_bytes or used >= 3 * self.max_bytes):
                    goal = 3 * len(batches)
                if len(batches) == goal:
                    break
        self.check(batches)
        return batches

    def simulate(
        self, orders: Iterable[tuple[str, npt.NDArray[Any]]], batches: Sequence[npt.NDArray[Any]]
    ) -> SsdReading:
        """Simulate all sizes for each order of the rows, hottest first; `batches` hold `Rows` numbers."""
        with progress(None, "simulating reads", "policy") as bar:
            scores = {name: self._simulate_order(order, batches, bar) for name, order in orders}
        return SsdReading(self.speed, len(batches), len(batches) - len(batches) // 3, scores)

    def _simulate_order(
        self, order: npt.NDArray[Any], batches: Sequence[npt.NDArray[Any]], bar: Progress
    ) -> list[MemoryReading]:
        positions = self._disk_positions(order)
        hottest, read = positions[order], [np.sort(positions[batch]) for batch in batches]
        del positions
        used: dict[int, int] = {}
        for rows in read:
            for row_bytes, count in self.tables.row_bytes_of(rows).items():
                used[row_bytes] = used.get(row_bytes, 0) + count
        readings = []
        for size in self.sizes:
            nbytes = size.of(self.rows.bytes)
            slots = divide_slots(self.tables, nbytes, used)
            static = self._read_static(hottest, dict(slots), read)
            bar.update(1)
            choice = choose_config(self.tables, slots, read, self.speed, max_known=max_known(nbytes, read))
            bar.update(1)
            costs = (static, ReadCost(choice.seconds, choice.reads, choice.read_bytes))
            policies = dict(zip(POLICIES, costs, strict=True))
            readings.append(MemoryReading(size, nbytes, sum(count for _, count in slots), policies, choice))
        return readings

    def _read_static(
        self, hottest: npt.NDArray[np.uint32], slots: Mapping[int, int], batches: Sequence[npt.NDArray[np.uint32]]
    ) -> ReadCost:
        """Return the cost where the first rows of `hottest`, size by size, stay in memory; all are disk positions."""
        resident = np.zeros(hottest.size, bool)
        ends = np.cumsum([count for count, *_ in self.tables.rows])
        for row_bytes, count in slots.items():
            of_size = np.array([size == row_bytes for _, size, *_ in self.tables.rows])
            rows = hottest if of_size.all() else hottest[of_size[np.searchsorted(ends, hottest, "right")]]
            resident[rows[:count]] = True
        counted = batches[len(batches) // 3 :]
        return mean_cost(self.speed, [read_pages(*row_spans(self.tables, rows[~resident[rows]])) for rows in counted])

    def _number_rows(self, nodes: Mapping[str, IntArray]) -> npt.NDArray[Any]:
        """Return the `Rows` numbers of a batch from its nodes per type."""
        parts = {t: nodes[t] + self.rows.starts[index] for index, t in enumerate(self.rows.types)}
        return self.rows.join(parts).astype(np.uint32 if self.rows.size < 2**32 else np.int64)

    def _bytes(self, rows: npt.NDArray[Any]) -> int:
        if self.rows.one_size:
            return rows.size * self.rows.row_bytes[0]
        kinds = np.bincount(np.searchsorted(self.rows.starts, rows, "right") - 1, minlength=len(self.rows.types))
        return int(kinds @ np.array(self.rows.row_bytes))

    def _disk_positions(self, order: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """Return the position on disk of each row."""
        positions, first = np.empty(self.rows.size, np.uint32), 0
        by_type = dict(zip(self.rows.types, self.rows.split(order), strict=True))
        for node_type in self.tables.types:
            rows = by_type[node_type]
            positions[rows] = np.arange(first, first + rows.size, dtype=np.uint32)
            first += rows.size
        return positions


def row_spans(tables: SsdTables, rows: npt.NDArray[np.uint32]) -> tuple[IntArray, IntArray]:
    """Return the first byte on disk of each of some rows, ascending, and the byte behind its last."""
    begins, ends = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    cut = first = 0
    for count, row_bytes, first_page, stride, per_page in tables.rows:
        part = slice(cut, cut := int(np.searchsorted(rows, first + count)))
        numbers = rows[part].astype(np.int64) - first
        place = SsdRows(first_page, 0, stride, per_page)
        begins[part] = first_page * tables.page_bytes + place.begins(numbers, tables.page_bytes)
        ends[part] = begins[part] + row_bytes
        first += count
    return begins, ends


def read_pages(begins: IntArray, ends: IntArray) -> tuple[int, int]:
    """Return requests and bytes of reading each page by itself; a row of several pages is one request."""
    first, last = begins // BLOCK, (ends - 1) // BLOCK
    shared = last[:-1] - first[1:] + 1  # blocks in common with the row before, if above 0
    together = shared > 0
    blocks = int((last - first + 1).sum() - shared[together].sum())
    return begins.size - int(np.count_nonzero(together)), blocks * BLOCK


def mean_cost(speed: DiskSpeed, reads: Sequence[tuple[int, int]]) -> ReadCost:
    """Return the mean of batches of so many requests and bytes, each read by itself."""
    requests, nbytes = np.mean(reads, axis=0).tolist()
    return ReadCost(float(np.mean([speed.seconds(*read) for read in reads])), requests, nbytes)
