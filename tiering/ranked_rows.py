"""Rows of a feature table in rank order, within a memory budget, by the cheapest way.

In order   the table lies in rank order: read it front to back.
Gather     the table fits the free memory as page cache: read it in, take row by row.
Passes     a window of ranks is filled while the whole table streams past, window after window: the table is read once
           per window.
Scatter    the table streams past once and its rows go to one file per window; each file is then read into its window:
           three times the bytes of the table, however many windows there are.

Random     rows are read from the disk in rank order, hundreds in flight: where the disk takes no longer for that than
           for reading and writing everything in sequence, which is measured.

Up to three windows, passes move no more bytes than a scatter and need no room on disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.execution import Budget
from tiering.execution.costs import kernel_seconds, read_seconds, write_seconds
from tiering.execution.memory import available_memory
from tiering.execution.rates import Rates
from tiering.formats.feature_rows import CHUNK_BYTES, chunk_rows, map_rows
from tiering.formats.features import FeatureTable
from tiering.io.blocks import ALIGNMENT, aligned_bytes
from tiering.io.random_rows import measure_rows, open_rows
from tiering.io.segments import SegmentFile, padded
from tiering.io.storage import storage_errors
from tiering.io.streaming import Streamed, bytes_on_disk, uncached_bytes
from tiering.progress import progress

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[Any]

SMALL_ROW, LARGEST_ROW = 256, 1 << 20
"""Bytes of rows that may be read at random: below, sectors of 4 KiB make it sixteen times as much; above, it is as good
as in sequence."""
_WORTH_MEASURING = 1 << 30
"""Bytes of a table below which the disk is not asked."""
_RANDOM_SPACE = 4 << 20
"""Bytes for reads in flight, and what is known of the reads of a chunk."""
MOST_PASSES = 3
"""Windows up to which the table is read once for each."""
_WRITERS = 4
"""Files written side by side."""
BUFFERS = 7
"""Chunks held beside a window: two the caller writes, two being read with their ranks, two being sorted by file."""
WHOLE_BUFFERS = 2
"""Chunks held without windows: one being read, one the caller writes, who may hold copies of his own."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a table come into rank order."""

    strategy: str
    """``in order``, ``gather``, ``passes``, ``scatter`` or ``random``."""
    window_rows: int
    """Ranks filled together; all where there are no windows."""
    memory: int
    """Bytes held at the most."""
    bytes_read: int
    """Bytes read from disk."""
    bytes_scratch: int
    """Bytes written to disk for a while, besides the result."""
    passes: int = 1
    """How often the table is read."""

    @property
    def windows(self) -> bool:
        """Whether rows come from windows; then chunks that the caller copies are counted in `memory`."""
        return self.strategy in ("passes", "scatter")


def plan_rows(table: FeatureTable, in_order: bool, budget: Budget) -> RowPlan:
    """Choose how to bring the rows of a table into rank order.

    Parameters
    ----------
    in_order
        The table lies in rank order.

    Raises
    ------
    BudgetError
        If fewer than 8 chunks of 32 MiB, or of one row where rows are larger, are left.

    Notes
    -----
    Memory: 2 chunks, or tables if they are smaller, without windows; else 7 chunks, and with ``passes`` a window of
    what is left, with ``scatter`` two of half the size.
    """
    chunk = max(CHUNK_BYTES, table.row_bytes)
    fixed = BUFFERS * chunk
    if in_order or table.bytes < available_memory() // 2:
        memory = WHOLE_BUFFERS * min(chunk, table.bytes)
        return RowPlan("in order" if in_order else "gather", max(1, table.rows), memory, table.bytes, 0)
    budget.require(fixed + chunk, f"rows of {table.path.name}: eight chunks of {chunk >> 20} MiB")
    window = max(1, min(table.rows, (budget.left() - fixed) // table.row_bytes))
    count = -(-table.rows // window)
    held = BUFFERS * min(chunk, table.bytes)  # what small tables take is less than what is asked for
    memory = held + window * table.row_bytes
    if count > 1 and _random_is_faster(table, min(count, MOST_PASSES)):
        return RowPlan("random", table.rows, WHOLE_BUFFERS * chunk + _RANDOM_SPACE, _random_bytes(table), 0)
    if count <= MOST_PASSES:
        return RowPlan("passes", window, memory, count * table.bytes, 0, count)
    window = max(1, window // 2)  # one is used, the next is read
    count = -(-table.rows // window)
    scratch = table.bytes + count * ALIGNMENT * -(-table.rows // chunk_rows(table.row_bytes))
    return RowPlan("scatter", window, held + 2 * window * table.row_bytes, table.bytes + scratch, scratch)


def _random_bytes(table: FeatureTable) -> int:
    """Bytes that reads of single rows move: rows widened to whole sectors at both ends."""
    return table.rows * (-(-table.row_bytes // ALIGNMENT) + (0 if table.row_bytes % ALIGNMENT == 0 else 1)) * ALIGNMENT


def _random_is_faster(table: FeatureTable, times: int) -> bool:
    """Whether reading rows at random takes less time than reading the table so many times in sequence."""
    suited = SMALL_ROW <= table.row_bytes <= LARGEST_ROW and table.bytes >= _WORTH_MEASURING
    if not suited or not table.path.exists():
        return False
    speed = measure_rows(table.path, table.offset, table.rows, table.row_bytes)
    return table.rows / speed.rows < times * table.bytes / speed.stream


@dataclass(frozen=True)
class RowForecast:
    """What bringing rows into rank order takes, while something is done with each chunk."""

    plan: RowPlan
    disk_read: int
    """Bytes read from disk, scratch apart."""
    before: float
    """Seconds before the first row, and between windows."""
    loading: float
    """Seconds that chunks take to arrive while the ones before are written, the disk apart."""
    reading: float
    """Seconds of the disk meanwhile."""
    one_disk: bool
    """The rows are read from the disk that the result is written to."""
    threads: int = 1
    """Threads that load."""
    chunk_share: float = 0.0
    """Share of the rows that a chunk has."""

    @property
    def how(self) -> str:
        """The strategy in words."""
        return self.plan.strategy if self.plan.strategy != "passes" else f"{self.plan.passes} passes"

    def seconds_with(self, writing: float, compute: float = 0.0) -> float:
        """Seconds in all, where writing keeps the disk busy so long, and one thread has so much to compute for it."""
        disk = self.reading + writing if self.one_disk else max(self.reading, writing)
        ends = (self.loading + self.reading + writing) * self.chunk_share  # nothing is beside the first and the last
        return self.before + max(disk, compute, self.loading + compute / self.threads) + ends


def predict_rows(
    table: FeatureTable, in_order: bool, budget: Budget, rates: Rates, *, cached: bool = False
) -> RowForecast:
    """What `RankedRows` takes.

    Parameters
    ----------
    cached
        The page cache holds the table; else that is looked at.

    Raises
    ------
    BudgetError
        As `plan_rows`.
    """
    plan = plan_rows(table, in_order, budget)
    share = min(1.0, CHUNK_BYTES / max(1, table.bytes))
    once = 0 if cached else _uncached(table, plan)
    reading = read_seconds(once, rates.source)
    moving = kernel_seconds("row", table.rows, rates, table.rows, table.row_bytes)
    moving += kernel_seconds("row byte", table.bytes, rates)
    if plan.strategy == "random":
        speed = measure_rows(table.path, table.offset, table.rows, table.row_bytes)
        reading = table.rows / speed.rows
        return RowForecast(plan, plan.bytes_read, 0.0, moving, reading, rates.one_disk, rates.threads, share)
    if plan.strategy in ("in order", "gather"):
        return RowForecast(plan, once, 0.0, moving, reading, rates.one_disk, rates.threads, share)
    if plan.strategy == "passes":
        passes = plan.passes
        streaming = kernel_seconds("row", passes * table.rows, rates) + moving
        copying = kernel_seconds("row byte", table.bytes, rates)
        return RowForecast(
            plan, passes * once, max(passes * reading, streaming), copying, 0.0, rates.one_disk, rates.threads, share
        )
    scratch = write_seconds(plan.bytes_scratch, rates.target)
    first = max(reading + scratch if rates.one_disk else max(reading, scratch), moving)
    return RowForecast(
        plan, once, first, 2 * moving, read_seconds(plan.bytes_scratch, rates.target), True, rates.threads, share
    )


def _uncached(table: FeatureTable, plan: RowPlan) -> int:
    """Bytes of a table that are read from disk each time; streams read all of it or nothing."""
    if not table.path.exists():  # it will have been written past the page cache
        return table.bytes
    rows = map_rows(table, random=False)
    return bytes_on_disk([rows]) if plan.windows else uncached_bytes(rows)


class RankedRows:
    """Rows by rank; a context manager that removes its scratch files.

    Parameters
    ----------
    table
        Where the rows lie.
    new_to_old, old_to_new
        Row of the table for each rank and the other way round, int32 or int64, shape (rows,); ``None`` if the table is
        in rank order.
    budget
        What to stay within.
    scratch
        Directory for files that are needed for a while; made and removed here.
    threads
        Threads that copy rows; the rows are the same for any number.
    """

    def __init__(
        self,
        table: FeatureTable,
        new_to_old: Ids | None,
        old_to_new: Ids | None,
        *,
        budget: Budget,
        scratch: Path,
        threads: int,
    ) -> None:
        none = np.empty(0, np.int64)
        self.table, self._in_order = table, new_to_old is None or old_to_new is None
        self._new_to_old = none if new_to_old is None else new_to_old
        self._old_to_new = none if old_to_new is None else old_to_new
        self.plan = plan_rows(table, self._in_order, budget)
        """How the rows are brought into order."""
        self._scratch, self._threads = scratch, threads
        self._window: tuple[int, Bytes] | None = None
        self._ahead: tuple[int, Future[Bytes]] | None = None
        self._reader = ThreadPoolExecutor(1)
        self._buckets: list[SegmentFile] = []
        self._unused: list[Bytes] = []  # memory of windows

    def chunks(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[int, Bytes]]:
        """Rows `begin`..`end` in pieces of whole multiples of `multiple` rows: (first rank, uint8 (n, row_bytes)).

        Ranges must come in ascending order. A piece is valid until the one after the next is asked for.
        """
        if begin == end:
            return
        step = chunk_rows(self.table.row_bytes, multiple)
        fill = self._filler()
        shape = (min(step, end - begin), self.table.row_bytes)
        buffers = [np.empty(shape, np.uint8) for _ in range(2 if end - begin > step else 1)]

        def load(first: int) -> Bytes:
            chunk = buffers[(first - begin) // step % len(buffers)][: min(step, end - first)]
            fill(first, chunk)
            return chunk

        with ThreadPoolExecutor(1) as reader:
            pending = reader.submit(load, begin)
            for first in range(begin, end, step):
                chunk = pending.result()
                if first + step < end:
                    pending = reader.submit(load, first + step)
                yield first, chunk

    def _filler(self) -> Callable[[int, Bytes], None]:
        """A function that fills a chunk with the rows from a rank on."""
        if self.plan.windows:
            return self._fill_from_windows
        if self.plan.strategy == "random":
            rows = open_rows(self.table.path, self.table.offset, self.table.row_bytes)
            return lambda first, chunk: rows.read(self._new_to_old[first : first + chunk.shape[0]], chunk)
        table = map_rows(self.table, random=not self._in_order)

        def copy(first: int, chunk: Bytes) -> None:
            chunk[:] = table[first : first + chunk.shape[0]]

        def gather(first: int, chunk: Bytes) -> None:
            native.gather_rows(table, self._new_to_old[first : first + chunk.shape[0]], chunk, self._threads)

        return copy if self._in_order else gather

    def _fill_from_windows(self, first: int, chunk: Bytes) -> None:
        """Copies, so that a window's memory is free when the next one is made."""
        done = 0
        while done < chunk.shape[0]:
            done += self._copy(first + done, chunk[done:])

    def _copy(self, first: int, out: Bytes) -> int:
        """Fill what the window of rank `first` has of it; the number of rows."""
        start = first - first % self.plan.window_rows
        if self._window is None or self._window[0] != start:
            self._drop_window()  # its memory is for the next
            self._window = (start, self._load(start))
        found = self._window[1][first - start : first - start + out.shape[0]]
        out[: found.shape[0]] = found
        return int(found.shape[0])

    def _load(self, start: int) -> Bytes:
        """The window that begins at a rank. With files per window the next one is read while this one is used."""
        if self.plan.strategy == "passes":
            return self._pass(start)
        if not self._buckets:
            self._scatter()
        ahead, self._ahead = self._ahead, None
        rows = ahead[1].result() if ahead is not None and ahead[0] == start else self._collect(start)
        following = start + self.plan.window_rows
        if following < self.table.rows:
            self._ahead = (following, self._reader.submit(self._collect, following))
        return rows

    def _drop_window(self) -> None:
        if self._window is not None:
            self._unused.append(self._window[1])
            self._window = None

    def _new_window(self, start: int) -> Bytes:
        """Memory for the window that begins at a rank: that of an earlier one if there is any."""
        if not self._unused:
            memory = aligned_bytes(self.plan.window_rows * self.table.row_bytes)
            self._unused.append(memory.reshape(self.plan.window_rows, self.table.row_bytes))
        whole = self._unused.pop()
        return whole if whole.shape[0] <= self.table.rows - start else whole[: self.table.rows - start]

    def _stream(self, desc: str) -> Iterator[tuple[int, Bytes, Ids]]:
        """Number of the first row, rows, and their ranks, of every chunk of the table."""
        table = map_rows(self.table, random=False)
        step = chunk_rows(self.table.row_bytes)
        with (
            Streamed([table, self._old_to_new], step) as stream,
            progress(self.table.bytes, desc, "B", scale=True) as bar,
        ):
            for first, _, (rows, ranks) in stream:
                yield first, rows, ranks
                bar.update(rows.nbytes)

    def _pass(self, start: int) -> Bytes:
        """Fill a window while the table streams past."""
        out = self._new_window(start)
        for _, rows, ranks in self._stream(f"rows from rank {start}"):
            native.scatter_rows(rows, np.ascontiguousarray(ranks), start, out, self._threads)
        return out

    def _collect(self, start: int) -> Bytes:
        """Fill a window from its file, which goes."""
        out = self._new_window(start)
        step, row_bytes = chunk_rows(self.table.row_bytes), self.table.row_bytes
        bucket, parts = self._buckets[start // self.plan.window_rows], iter(range(0, self.table.rows, step))
        for segment in bucket.read(2 * CHUNK_BYTES):
            first = next(parts)
            ranks = np.ascontiguousarray(self._old_to_new[first : first + step], np.int64) - start
            own = ranks[(ranks >= 0) & (ranks < out.shape[0])]
            native.scatter_rows(segment.reshape(-1, row_bytes), own, 0, out, self._threads)
        bucket.remove()
        return out

    def _scatter(self) -> None:
        """Send every row to the file of its window, in the table's order; each chunk is a segment of each file."""
        row_bytes, window = self.table.row_bytes, self.plan.window_rows
        count, step = -(-self.table.rows // window), chunk_rows(self.table.row_bytes)
        with storage_errors(self._scratch):
            self._scratch.mkdir(parents=True, exist_ok=True)
        for k in range(count):
            size = min(window, self.table.rows - k * window) * row_bytes + -(-self.table.rows // step) * ALIGNMENT
            self._buckets.append(SegmentFile(self._scratch / f"window-{k}", size))
        staging = [aligned_bytes(step * row_bytes + count * ALIGNMENT) for _ in range(2)]
        jobs: list[list[Future[None]]] = [[], []]  # of the buffers: one is filled while the other is written
        with ThreadPoolExecutor(_WRITERS) as pool:
            for turn, (_, rows, ranks) in enumerate(self._stream("scatter rows")):
                owner = (np.asarray(ranks) // window).astype(np.uint16 if count < 1 << 16 else np.int64)
                order, at = np.argsort(owner, kind="stable"), 0
                ends = np.cumsum(np.bincount(owner, minlength=count))
                for job in jobs[turn % 2]:
                    job.result()
                jobs[turn % 2] = []
                for bucket, begin, end in zip(self._buckets, [0, *ends[:-1]], ends, strict=True):
                    nbytes = (end - begin) * row_bytes
                    part = staging[turn % 2][at : at + padded(nbytes)]
                    native.gather_rows(rows, order[begin:end], part[:nbytes].reshape(-1, row_bytes), self._threads)
                    jobs[turn % 2].append(pool.submit(bucket.write, part, bucket.add(nbytes)))
                    at += part.size
            for job in jobs[0] + jobs[1]:
                job.result()

    def close(self) -> None:
        """Remove the scratch files and give the memory back."""
        self._reader.shutdown()
        self._window = self._ahead = None
        self._unused = []
        for bucket in self._buckets:
            bucket.remove()
        self._buckets = []
        if self.plan.strategy == "scatter":
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> RankedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()
