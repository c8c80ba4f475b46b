"""Cache policies of other systems, simulated: the rows that each batch reads from SSD, and their price.

Rows of one size are numbered by their position on disk; `Future` has the batches that use them. A policy returns, batch
by batch, the missing rows. A batch finds the rows that the batch before left in memory, and the rows it reads are kept
as far as there is room. Cost: a few passes per batch over its rows and over the rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.evaluation.cache_order import IntArray, read_spans
from tiering.formats.ssd_rows import SsdRows
from tiering.readahead.config import NUMBERS_SHARE, SsdTables, choose_config, max_known
from tiering.readahead.disk_speed import MAX_READ, DiskSpeed

DiskRows: TypeAlias = "npt.NDArray[np.uint32]"
"""Positions of rows on disk."""
Keys: TypeAlias = "Callable[[int, DiskRows], npt.NDArray[Any]]"
"""After a batch (its number): a value for each of some rows; those with the lowest values stay."""
BLOCK = 4096  # reads begin and end at multiples of this number of bytes
LOOK_AHEAD = "look-ahead"  # the loader's plan
BUFFERED_WINDOWS = (4, 8, 16)
"""Batches that GIDS looks ahead (Park et al., VLDB'24)."""


@dataclass(frozen=True)
class Future:
    """Batches in order, each with the rows that it uses, ascending."""

    batches: Sequence[DiskRows]
    num_rows: int

    @cached_property
    def next_uses(self) -> list[npt.NDArray[np.int32]]:
        """Per batch and row: the number of the next batch that uses the row; that behind the last if none does."""
        coming = np.full(self.num_rows, len(self.batches), np.int32)
        uses: list[npt.NDArray[np.int32]] = []
        for number in reversed(range(len(self.batches))):
            rows = self.batches[number]
            uses.append(coming[rows])
            coming[rows] = number
        return uses[::-1]


def held_throughout(future: Future, held: DiskRows) -> Iterator[DiskRows]:
    """Yield missing rows where the same rows are always in memory: the hottest (`static`), or any (`random`)."""
    cached = np.zeros(future.num_rows, bool)
    cached[held] = True
    return (rows[~cached[rows]] for rows in future.batches)


def at_random(future: Future, slots: int, seed: int) -> Iterator[DiskRows]:
    """Yield missing rows where rows drawn at random are in memory."""
    return held_throughout(future, np.random.default_rng(seed).permutation(future.num_rows)[:slots].astype(np.uint32))


def replacing(future: Future, slots: int, keys: Keys) -> Iterator[DiskRows]:
    """Yield missing rows where, after each batch, the rows of the lowest keys stay of those in memory and read."""
    cached = np.zeros(future.num_rows, bool)
    held = np.empty(0, np.uint32)
    for number, rows in enumerate(future.batches):
        missing = rows[~cached[rows]]
        yield missing
        cached[missing] = True
        held = np.concatenate([held, missing])
        values = keys(number, held)
        if held.size > slots:
            order = np.argpartition(values, slots)
            cached[held[order[slots:]]] = False
            held = held[order[:slots]]


def least_recently_used(future: Future, slots: int) -> Iterator[DiskRows]:
    """Yield missing rows where those used longest ago give way; of one batch, those farthest back on disk."""
    used = np.zeros(future.num_rows, np.int32)

    def keys(number: int, held: DiskRows) -> npt.NDArray[np.int64]:
        used[future.batches[number]] = number
        return _ordered(number - used[held], held)

    return replacing(future, slots, keys)


def belady(future: Future, slots: int) -> Iterator[DiskRows]:
    """Yield missing rows where those of the farthest next use give way, as in Ginex; no policy misses fewer rows."""
    coming = np.zeros(future.num_rows, np.int32)

    def keys(number: int, held: DiskRows) -> npt.NDArray[np.int64]:
        coming[future.batches[number]] = future.next_uses[number]
        return _ordered(coming[held], held)

    return replacing(future, slots, keys)


def window_buffering(future: Future, slots: int, window: int, seed: int) -> Iterator[DiskRows]:
    """Yield missing rows where those of the next `window` batches give way only if there are no others.

    That is how GIDS keeps rows: its cache evicts at random, and its window buffer pins what the next batches need.
    """
    coming, rng = np.zeros(future.num_rows, np.int32), np.random.default_rng([seed, window])

    def keys(number: int, held: DiskRows) -> npt.NDArray[np.float64]:
        coming[future.batches[number]] = future.next_uses[number]
        last = min(number + window, len(future.batches) - 1)
        return rng.random(held.size) + (coming[held] > last)

    return replacing(future, slots, keys)


def _ordered(values: npt.NDArray[np.int32], rows: DiskRows) -> npt.NDArray[np.int64]:
    """Return the keys by value, ties by row."""
    return values.astype(np.int64) << 32 | rows


def read_merged(tables: SsdTables, rows: DiskRows, gap: int) -> tuple[int, int]:
    """Return requests and bytes where neighboring pages, and pages up to `gap` bytes apart, are one read."""
    if not rows.size:
        return 0, 0
    begins, ends = row_spans(tables, rows)
    first, last = begins // BLOCK, (ends - 1) // BLOCK
    apart = np.flatnonzero((first[1:] - last[:-1] - 1) * BLOCK > gap)
    begins, ends = first[np.append(0, apart + 1)], last[np.append(apart, rows.size - 1)] + 1
    nbytes = (ends - begins) * BLOCK
    return int((-(-nbytes // MAX_READ)).sum()), int(nbytes.sum())


def simulate_policies(
    tables: SsdTables, speed: DiskSpeed, batches: Sequence[DiskRows], slots: int, seed: int
) -> dict[str, float]:
    """Return the seconds of reading per batch, by policy; `slots` rows of one size fit, hottest first on disk.

    The first third of the batches fills the memory and is not counted.
    """
    (row_bytes,) = {size for _, size, *_ in tables.rows}
    future, first = Future(batches, tables.num_rows), len(batches) // 3
    policies = {
        "random": at_random(future, slots, seed),
        "static": held_throughout(future, np.arange(slots, dtype=np.uint32)),
        "lru": least_recently_used(future, slots),
        **{f"window-{window}": window_buffering(future, slots, window, seed) for window in BUFFERED_WINDOWS},
    }
    seconds = {}
    for name, missing in policies.items():
        seconds[name] = mean_cost(speed, [read_pages(*row_spans(tables, rows)) for rows in missing][first:]).seconds
    best = list(belady(future, slots))[first:]
    seconds["belady"] = mean_cost(speed, [read_pages(*row_spans(tables, rows)) for rows in best]).seconds
    merged = ([read_merged(tables, rows, gap) for rows in best] for gap in (0, speed.gap))
    seconds["belady-merged"] = min(mean_cost(speed, reads).seconds for reads in merged)
    known = max_known(int(NUMBERS_SHARE * slots * (row_bytes + 8)), batches)
    seconds[LOOK_AHEAD] = choose_config(tables, [(row_bytes, slots)], batches, speed, max_known=known).seconds
    return seconds


@dataclass(frozen=True)
class ReadCost:
    """Reads of a batch, on average."""

    seconds: float
    requests: float
    bytes: float


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
