"""Simulated reading of feature rows from SSD, before a layout or a training exists.

All rows lie on SSD in the order of a score, as in the ssd tier of `tiering layout`, and memory has room for some of
them. Two policies decide which rows a batch reads; a `DiskSpeed` prices the reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.evaluation.cache_order import IntArray, Rows, read_spans
from tiering.evaluation.counting import SLACK, EvaluationMemory, ReferenceEpochs
from tiering.formats.ssd_rows import SsdRows
from tiering.memory import Budget
from tiering.readahead.config import NUMBERS_SHARE, ReadaheadConfig, SsdTables, choose_config, divide_slots, max_known
from tiering.readahead.disk_speed import DiskSpeed, read_speed
from tiering.text.progress import progress
from tiering.text.units import Size, format_bytes, format_count, parse_size

BLOCK = 4096  # reads begin and end at multiples of this number of bytes
POLICIES = STATIC, LOOK_AHEAD = ("static", "look-ahead")
"""``static``: the hottest rows stay in memory, as in a tier; ``look-ahead``: the loader's plan."""
ACCESS_BYTES = 32  # per row of each batch: its number in the graph and on disk, and the planner's state
_SIMULATED = "evaluate: reading that is simulated, with its batches,"
_MIN_BATCHES = 3  # with fewer batches, nothing fills the memory before reads are counted


@dataclass(frozen=True)
class ReadCost:
    """Reads of a batch, on average."""

    seconds: float
    requests: float
    bytes: float


@dataclass(frozen=True)
class MemoryReading:
    """Reads with one size of memory, as given and in bytes, which holds so many rows in the order of one score."""

    memory: str
    bytes: int
    rows: int
    policies: dict[str, ReadCost]  # per name of `POLICIES`
    choice: ReadaheadConfig  # window, horizon and gap that the loader would choose

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        policies = {
            name: {f"{key}_per_batch": value for key, value in vars(cost).items()}
            for name, cost in self.policies.items()
        }
        chosen = {"window": self.choice.window, "horizon": self.choice.horizon, "gap_bytes": self.choice.gap}
        policies[LOOK_AHEAD].update(chosen)
        return {"memory": self.memory, "bytes": self.bytes, "rows": self.rows, "policies": policies}


@dataclass(frozen=True)
class SsdReading:
    """Simulated reads: for each score, and the oracle last, with each size of memory."""

    speed: DiskSpeed
    batches: int
    counted: int  # the last batches, whose reads are counted: those before fill the memory
    scores: dict[str, list[MemoryReading]]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        scores = {name: [entry.to_json() for entry in entries] for name, entries in self.scores.items()}
        batches = {"batches": self.batches, "counted_batches": self.counted}
        return {"ssd_model": self.speed.as_dict(), **batches, "scores": scores}


@dataclass(frozen=True)
class ReadingMemory:
    """Memory of simulated reading in addition to the rest of an evaluation, in bytes."""

    budget: Budget
    least: int  # need of everything but the rows of its batches
    rows: int  # rows of all its batches together that have room
    bytes: int  # all of it

    @classmethod
    def plan(cls, budget: Budget, need: EvaluationMemory, rows: Rows, max_bytes: int) -> ReadingMemory:
        """Take half of what one thread's sampling leaves; `max_bytes`: the largest memory that is simulated."""
        # Each row's positions on disk, in the order and in the planner's maps; the planner's state of rows in memory.
        fixed = 24 * rows.size + 60 * (max_bytes // min(rows.row_bytes)) + SLACK
        budget.require(least := need.minimum + fixed, _SIMULATED)
        room = (budget.left() - least) // (2 * ACCESS_BYTES)
        return cls(budget, least, room, fixed + room * ACCESS_BYTES)


@dataclass(frozen=True)
class ReadingSpec:
    """Rows, sizes of memory and the disk to simulate."""

    rows: Rows
    sizes: tuple[Size, ...]
    page_bytes: int
    speed: DiskSpeed

    @classmethod
    def parse(
        cls, rows: Rows, sizes: Sequence[str | int], page_bytes: int, model: DiskSpeed | str | Path | None
    ) -> ReadingSpec | None:
        """Check what the user asked for; ``None`` for nothing."""
        if not sizes and model is None:
            return None
        if not sizes or model is None:
            what = "ssd model: expected the disk's speed" if sizes else "rows in memory: expected a size such as 4GiB"
            raise InputError(f"{what}, found nothing: simulated reading takes both")
        if not rows.bytes_known:
            raise InputError(
                "rows in memory: the graph has no features, and reading takes rows of known size; say what a row has "
                "with --row-bytes"
            )
        speed = model if isinstance(model, DiskSpeed) else read_speed(Path(model))
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
        """All rows as in a layout that has nothing but an ssd tier."""
        sizes = list(zip(self.rows.counts, self.rows.row_bytes, strict=True))
        unit, places = SsdRows.plan_all(sizes, self.page_bytes, 1)
        entries = [
            (count, size, place.first_unit, place.stride, place.rows_per_unit)
            for (count, size), place in zip(sizes, places, strict=True)
        ]
        return SsdTables(list(self.rows.types), entries, [0] * len(entries), (unit, self.page_bytes), 1)

    def check(self, batches: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse a size that has no room for one of the batches, given by `Rows` numbers."""
        counts = np.array([self._count_types(batch) for batch in batches])
        for size in self.sizes:
            for row_bytes, slots in divide_slots(self.tables, size.of(self.rows.bytes), self._count_sizes(batches)):
                needed = int(counts[:, np.equal(self.rows.row_bytes, row_bytes)].sum(axis=1).max())
                if slots < needed:
                    raise InputError(
                        f"rows in memory: {size.text} has room for {format_count(slots)} rows of "
                        f"{format_bytes(row_bytes)} and 8 bytes each, and a batch uses {format_count(needed)} of them; "
                        "give more, or make batches smaller"
                    )

    def sample(self, epochs: ReferenceEpochs, room: ReadingMemory) -> list[npt.NDArray[Any]]:
        """Sample the first batches, by `Rows` numbers: as many as fill the largest memory three times and have room.

        A third of them reads as many different bytes as the memory has, or three times as many with repetition.
        """
        rows, different, used, goal = 0, 0, 0, 0
        seen = np.zeros(self.rows.size, bool)
        batches: list[npt.NDArray[Any]] = []
        with closing(epochs.map_batches(self._number_rows, "sampling for simulated reading")) as sampled:
            for batch in sampled:
                rows += batch.size
                if rows > room.rows:
                    if len(batches) < _MIN_BATCHES:
                        most = max(_MIN_BATCHES * max(map(len, [batch, *batches])), room.rows + 1)
                        room.budget.require(room.least + 2 * ACCESS_BYTES * most, _SIMULATED)
                    break
                batches.append(batch)
                different += int(self._count_types(batch[~seen[batch]]) @ self.rows.row_bytes)
                used += int(self._count_types(batch) @ self.rows.row_bytes)
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
        used, scores = self._count_sizes(batches), {}
        with progress(None, "simulating reads", "policy") as bar:
            for name, order in orders:
                readings, positions = [], np.empty(self.rows.size, np.uint32)
                positions[np.concatenate(self.rows.split(order))] = np.arange(self.rows.size, dtype=np.uint32)
                hottest, read = positions[order], [np.sort(positions[batch]) for batch in batches]
                del positions
                for size in self.sizes:
                    nbytes = size.of(self.rows.bytes)
                    slots = divide_slots(self.tables, nbytes, used)
                    static = self._read_static(hottest, dict(slots), read)
                    bar.update(1)
                    known = max_known(int(NUMBERS_SHARE * nbytes), read)
                    choice = choose_config(self.tables, slots, read, self.speed, max_known=known)
                    bar.update(1)
                    ahead = ReadCost(choice.seconds, choice.reads, choice.read_bytes)
                    rows, policies = sum(count for _, count in slots), {STATIC: static, LOOK_AHEAD: ahead}
                    readings.append(MemoryReading(size.text, nbytes, rows, policies, choice))
                scores[name] = readings
        return SsdReading(self.speed, len(batches), len(batches) - len(batches) // 3, scores)

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

    def _count_types(self, batch: npt.NDArray[Any]) -> IntArray:
        """Return the rows of each type in a batch."""
        kinds = np.searchsorted(self.rows.starts, batch, "right") - 1
        return np.bincount(kinds, minlength=len(self.rows.types))

    def _count_sizes(self, batches: Sequence[npt.NDArray[Any]]) -> dict[int, int]:
        """Return the rows in all batches by bytes of a row."""
        counts = np.sum([self._count_types(batch) for batch in batches], axis=0)
        return {size: int(counts[np.equal(self.rows.row_bytes, size)].sum()) for size in self.rows.row_bytes}


def row_spans(tables: SsdTables, rows: npt.NDArray[np.uint32]) -> tuple[IntArray, IntArray]:
    """Return the first byte on disk of each of some rows, ascending, and the byte behind its last."""
    begins, ends = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
    cut = first = 0
    for count, row_bytes, first_unit, stride, per_unit in tables.rows:
        part = slice(cut, cut := int(np.searchsorted(rows, first + count)))
        numbers = rows[part].astype(np.int64) - first
        place, unit = SsdRows(first_unit, 0, stride, per_unit), tables.shape[0]
        begins[part] = first_unit * unit + place.begins(numbers, unit)
        ends[part] = begins[part] + row_bytes
        first += count
    return begins, ends


def read_pages(begins: IntArray, ends: IntArray) -> tuple[int, int]:
    """Return requests and bytes of reading each page by itself; a row of several pages is one request."""
    nbytes, _, requests = read_spans(begins, ends, BLOCK, BLOCK)
    return requests, nbytes


def mean_cost(speed: DiskSpeed, reads: Sequence[tuple[int, int]]) -> ReadCost:
    """Return the mean of batches of so many requests and bytes, each read by itself."""
    requests, nbytes = np.mean(reads, axis=0).tolist()
    return ReadCost(float(np.mean([speed.seconds(*read) for read in reads])), requests, nbytes)
