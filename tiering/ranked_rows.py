"""Rows of a feature table in rank order, within a memory budget, by the cheapest way.

In order   the table lies in rank order: read it front to back.
Gather     the table fits the free memory as page cache: read it in, take row by row.
Passes     a window of ranks is filled while the whole table streams past, window after window: the table is read once
           per window.
Scatter    the table streams past once and its rows go to one file per window; each file is then read into its window:
           three times the bytes of the table, however many windows there are.

Nothing is read at random from disk. Up to three windows, passes move no more bytes than a scatter and need no room on
disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.execution import Budget
from tiering.execution.memory import available_memory
from tiering.formats.feature_rows import CHUNK_BYTES, chunk_rows, map_rows
from tiering.formats.features import FeatureTable
from tiering.io.blocks import ALIGNMENT, aligned_bytes, open_direct, write_all
from tiering.io.storage import reserve, storage_errors
from tiering.io.streaming import Streamed
from tiering.progress import progress

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[Any]

MOST_PASSES = 3
"""Windows up to which the table is read once for each."""
_BUFFERS = 4
"""Chunks held beside a window: those the caller writes, and the one being moved."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a table come into rank order."""

    strategy: str
    """``in order``, ``gather``, ``passes`` or ``scatter``."""
    window_rows: int
    """Ranks filled together; all for the first two."""
    memory: int
    """Bytes held at the most."""
    bytes_read: int
    """Bytes read from disk."""
    bytes_scratch: int
    """Bytes written to disk for a while, besides the result."""


def plan_rows(table: FeatureTable, in_order: bool, budget: Budget) -> RowPlan:
    """Choose how to bring the rows of a table into rank order.

    Parameters
    ----------
    in_order
        The table lies in rank order.

    Raises
    ------
    BudgetError
        If fewer than 5 chunks of 32 MiB, or of one row where rows are larger, are left.

    Notes
    -----
    Memory: 4 chunks, and a window of what is left with ``passes`` and ``scatter``.
    """
    chunk = max(CHUNK_BYTES, table.row_bytes)
    fixed = _BUFFERS * chunk
    if in_order or table.bytes < available_memory() // 2:
        return RowPlan("in order" if in_order else "gather", max(1, table.rows), fixed, table.bytes, 0)
    budget.require(fixed + chunk, f"rows of {table.path.name}: five chunks of {chunk >> 20} MiB")
    window = max(1, min(table.rows, (budget.left() - fixed) // table.row_bytes))
    count = -(-table.rows // window)
    memory = fixed + window * table.row_bytes
    if count <= MOST_PASSES:
        return RowPlan("passes", window, memory, count * table.bytes, 0)
    scratch = table.bytes + count * ALIGNMENT * -(-table.rows // chunk_rows(table.row_bytes))
    return RowPlan("scatter", window, memory, table.bytes + scratch, scratch)


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
        self._buckets: list[_Bucket] = []

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
        if self.plan.strategy in ("passes", "scatter"):
            return self._fill_from_windows
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
            self._window = None
            size = min(self.plan.window_rows, self.table.rows - start)
            rows = aligned_bytes(size * self.table.row_bytes).reshape(size, self.table.row_bytes)
            (self._pass if self.plan.strategy == "passes" else self._collect)(start, rows)
            self._window = (start, rows)
        found = self._window[1][first - start : first - start + out.shape[0]]
        out[: found.shape[0]] = found
        return int(found.shape[0])

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

    def _pass(self, start: int, out: Bytes) -> None:
        for _, rows, ranks in self._stream(f"rows from rank {start}"):
            native.scatter_rows(rows, np.ascontiguousarray(ranks, np.int64) - start, out, self._threads)

    def _collect(self, start: int, out: Bytes) -> None:
        if not self._buckets:
            self._scatter()
        bucket = self._buckets[start // self.plan.window_rows]
        for first, last, rows in bucket.read(self.table.row_bytes):
            ranks = np.ascontiguousarray(self._old_to_new[first:last], np.int64) - start
            own = ranks[(ranks >= 0) & (ranks < out.shape[0])]
            native.scatter_rows(rows, own, out, self._threads)
        bucket.remove()

    def _scatter(self) -> None:
        """Send every row to the file of its window, in the table's order."""
        row_bytes, window = self.table.row_bytes, self.plan.window_rows
        count, step = -(-self.table.rows // window), chunk_rows(self.table.row_bytes)
        chunks = -(-self.table.rows // step)
        with storage_errors(self._scratch):
            self._scratch.mkdir(parents=True, exist_ok=True)
        for k in range(count):
            size = min(window, self.table.rows - k * window) * row_bytes + chunks * ALIGNMENT
            self._buckets.append(_Bucket(self._scratch / f"window-{k}", size))
        staging = aligned_bytes(step * row_bytes + count * ALIGNMENT)
        with ThreadPoolExecutor(4) as pool:
            for first, rows, ranks in self._stream("scatter rows"):
                owner = (np.asarray(ranks) // window).astype(np.uint16 if count < 1 << 16 else np.int64)
                order = np.argsort(owner, kind="stable")
                ends, at, jobs = np.cumsum(np.bincount(owner, minlength=count)), 0, []
                for k, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                    if begin == end:
                        continue
                    part = staging[at : at + (end - begin) * row_bytes]
                    native.gather_rows(rows, order[begin:end], part.reshape(-1, row_bytes), self._threads)
                    padded = -(-part.size // ALIGNMENT) * ALIGNMENT
                    jobs.append(
                        pool.submit(
                            self._buckets[k].append, first, first + len(ranks), part.size, staging[at : at + padded]
                        )
                    )
                    at += padded
                for job in jobs:
                    job.result()

    def close(self) -> None:
        """Remove the scratch files and give the memory back."""
        self._window = None
        for bucket in self._buckets:
            bucket.close()
        self._buckets = []
        if self.plan.strategy == "scatter":
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> RankedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()


class _Bucket:
    """A scratch file: rows of one window, segment by segment of the table, each segment aligned for direct I/O."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self._path, self._size = path, 0
        self._segments: list[tuple[int, int, int, int]] = []
        reserve(path, nbytes)
        with storage_errors(path):
            self._fd = os.open(path, os.O_RDWR)
        self._direct = open_direct(path)

    def append(self, first: int, last: int, nbytes: int, padded: Bytes) -> None:
        """Write the rows that come from rows [first, last) of the table."""
        with storage_errors(self._path, self._size + padded.size):
            write_all(self._fd if self._direct is None else self._direct, padded, self._size)
        self._segments.append((first, last, nbytes, self._size))
        self._size += padded.size

    def read(self, row_bytes: int) -> Iterator[tuple[int, int, Bytes]]:
        """Bounds of each segment in the table, and its rows; the next is read ahead."""
        data = np.memmap(self._path, np.uint8, "r")
        for number, (first, last, nbytes, offset) in enumerate(self._segments):
            for _, _, size, ahead in self._segments[number + 1 : number + 9]:
                os.posix_fadvise(self._fd, ahead, size, os.POSIX_FADV_WILLNEED)
            yield first, last, data[offset : offset + nbytes].reshape(-1, row_bytes)
            os.posix_fadvise(self._fd, offset, nbytes, os.POSIX_FADV_DONTNEED)

    def remove(self) -> None:
        """Delete the file: its window has what was in it."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        for fd in (self._fd, self._direct):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._fd, self._direct = -1, None
