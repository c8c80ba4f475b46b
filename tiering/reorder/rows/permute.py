"""Rows of a feature table in rank order, chunk after chunk; windows of ranks are filled while the table streams past.

The scratch file of a window holds its rows in no order, each with its place in the window. A segment, one for each
piece of the table, has the places, int32 (int64 for windows of 2^31 rows and more), padded to 64 bytes, and the rows
behind them; it ends at a multiple of 4096 bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.file_writer import WriteBehind
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import SegmentFile, bytes_on_disk, chunks, prefetch, uncached_bytes
from tiering.artifacts.storage import ALIGNMENT, LINE, AnyArray, Bytes, aligned_bytes, padded
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.formats.tier_rows import TierRows
from tiering.memory import Budget
from tiering.reorder.arrays import SIZES, PieceSizes, Rows, moved_bytes, source_of
from tiering.text.progress import progress
from tiering.text.units import format_bytes

Ids = AnyArray

_WRITERS = 4  # files written side by side
MAX_PASSES = 3  # windows up to which the table is read once for each
BUFFERS = 7
"""Chunks held next to a window: two the caller writes, two being read with their ranks, two being sorted by file.

Of rows that are encoded there are as many chunks as they are stored, and two that are read.
"""
WHOLE_BUFFERS = 2  # chunks held without windows: one being read, one the caller writes, who may hold copies of his own


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a table come into rank order."""

    strategy: str  # ``in order``, ``gather``, ``passes`` or ``scatter``
    window_rows: int  # ranks filled together; all where there are no windows
    memory: int  # bytes at the peak, copies that the caller makes of a chunk included
    bytes_scratch: int = 0  # bytes written to disk for a while, besides the result
    passes: int = 1  # how often the table is read
    sizes: PieceSizes = SIZES

    @property
    def windows(self) -> bool:
        """Whether rows come from windows."""
        return self.strategy in ("passes", "scatter")

    @property
    def how(self) -> str:
        """The strategy in words."""
        if self.strategy != "passes":
            return self.strategy
        return "one pass" if self.passes == 1 else f"{self.passes} passes"

    def disk_read(self, table: Rows) -> int:
        """Return the bytes read from disk, scratch apart: streams read all of a table or, if it is cached, nothing."""
        source = source_of(table)
        if not isinstance(source, FeatureTable):
            return self.passes * source.disk_bytes
        if not source.path.exists():  # it will have been written past the page cache
            return self.passes * source.bytes
        rows = map_rows(source, random=False)
        return self.passes * bytes_on_disk([rows]) if self.windows else uncached_bytes(rows)


def _held(table: Rows, chunk: int, buffers: int, read: int) -> int:
    """Return the bytes of so many chunks of rows, and, of rows that are encoded, of so many that are read."""
    if not isinstance(table, EncodedTable):
        return buffers * chunk
    return (buffers * table.row_bytes + read * table.source.row_bytes) * chunk // moved_bytes(table)


def minimum_memory(table: Rows, in_order: bool, sizes: PieceSizes | None = None, copies: int = 0) -> int:
    """Return the bytes with which rows can be brought into rank order at all; `plan_rows` explains the arguments."""
    sizes = sizes or SIZES
    chunk = max(sizes.chunk, moved_bytes(table))
    if in_order or sizes.cached(table):
        whole = table.rows * moved_bytes(table)
        held = _held(table, min(chunk, whole), WHOLE_BUFFERS, 1)
        return (held if isinstance(table, EncodedTable) else min(held, whole)) + copies
    return _held(table, chunk, BUFFERS, 2) + chunk


def plan_rows(table: Rows, in_order: bool, budget: Budget, sizes: PieceSizes | None = None, copies: int = 0) -> RowPlan:
    """Choose how to bring the rows of a table into rank order; `in_order`: it lies in rank order.

    Memory: 2 chunks, or tables if they are smaller, and the caller's `copies` (bytes) without windows; else 7 chunks
    (and at least 8, of 32 MiB or of one row where rows are larger), and with ``passes`` a window of what is left,
    with ``scatter`` two of half the size. `BudgetError` if the budget has no room for that.
    """
    sizes = sizes or SIZES
    chunk, minimum = max(sizes.chunk, moved_bytes(table)), minimum_memory(table, in_order, sizes, copies)
    budget.require(minimum, f"rows of {table.path.name}, in chunks of {format_bytes(min(chunk, table.bytes))},")
    if in_order or sizes.cached(table):
        return RowPlan("in order" if in_order else "gather", max(1, table.rows), minimum, sizes=sizes)
    window = max(1, min(table.rows, (budget.left() - _held(table, chunk, BUFFERS, 2)) // table.row_bytes))
    count = -(-table.rows // window)
    most = min(chunk, table.rows * moved_bytes(table))  # what small tables take is less than what is asked for
    held = _held(table, most, BUFFERS, 2)
    if count <= MAX_PASSES:
        return RowPlan("passes", window, held + window * table.row_bytes, passes=count, sizes=sizes)
    window = max(1, window // 2)  # one is used, the next is read
    count = -(-table.rows // window)
    pieces = -(-table.rows // sizes.piece_rows(table)) + 1  # as if every file, which ends with a page, had one more
    scratch = segment_bytes(table.rows, table.row_bytes, window, count * pieces)
    return RowPlan("scatter", window, held + 2 * window * table.row_bytes, scratch, sizes=sizes)


def segment_bytes(rows: int, row_bytes: int, window_rows: int, segments: int = 1) -> int:
    """Return at most how many bytes so many rows take in so many segments of scratch files."""
    return rows * (row_bytes + id_bytes(window_rows)) + segments * (LINE + ALIGNMENT)


@dataclass(frozen=True)
class _Window:
    start: int  # first rank
    rows: Bytes
    memory: Bytes  # the memory that holds the rows


class WindowFile(SegmentFile):
    """The scratch file of a window of so many rows, in at most `segments` segments."""

    def __init__(self, path: Path, rows: int, row_bytes: int, segments: int) -> None:
        super().__init__(path, segment_bytes(rows, row_bytes, rows, segments))
        self._row_bytes, self._place = row_bytes, np.dtype(f"i{id_bytes(rows)}")
        self.counts: list[int] = []

    def _rows_at(self, count: int) -> int:
        return -(-count * self._place.itemsize // LINE) * LINE

    def parts(self, segment: Bytes, count: int) -> tuple[Ids, Bytes]:
        """Return the places and rows of a segment of `count` rows."""
        begin = self._rows_at(count)
        places = segment[: count * self._place.itemsize].view(self._place)
        return places, segment[begin : begin + count * self._row_bytes].reshape(count, self._row_bytes)

    def segment(self, memory: Bytes, count: int) -> tuple[Bytes, Ids, Bytes]:
        """Return a segment at the begin of aligned memory, and in it the positions and rows to be filled in."""
        segment = memory[: padded(self._rows_at(count) + count * self._row_bytes)]
        return segment, *self.parts(segment, count)

    def add_rows(self, count: int) -> int:
        """Return the offset of the next segment, of `count` rows."""
        self.counts.append(count)
        return self.add(self._rows_at(count) + count * self._row_bytes)


class Windows:
    """The rows of a table in rank order, window after window; ranks are asked for in ascending order."""

    def __init__(self, table: Rows, plan: RowPlan, old_to_new: Ids, scratch: Path, threads: int) -> None:
        self._table, self._plan, self._old_to_new = table, plan, old_to_new
        self._scratch, self._threads = scratch, threads
        self._window: _Window | None = None
        self._following: Generator[_Window, None, None] | None = None
        """Windows read from their files, the next one ahead."""
        self._next_start = 0  # first rank of the next of them
        self._files: list[WindowFile] = []
        self._unused: list[Bytes] = []  # memory of windows
        self._buffers: list[Bytes] = []  # what files are read into

    def rows(self, first: int, out: Bytes, step: int) -> Bytes:
        """Return as many rows from rank `first` on as `out` has: copied to it, or in place for the next `step` rows."""
        window, done = self._of(first), 0
        rows = window.rows[first - window.start :]
        if rows.shape[0] >= 2 * step:  # not the last of a window: its memory goes to the window after the next
            return rows[: out.shape[0]]
        while True:
            part = window.rows[first + done - window.start :][: out.shape[0] - done]
            out[done : done + part.shape[0]] = part
            done += part.shape[0]
            if done == out.shape[0]:
                return out
            window = self._of(first + done)

    def _of(self, rank: int) -> _Window:
        start = rank - rank % self._plan.window_rows
        if self._window is None or self._window.start != start:
            if self._window is not None:
                self._unused.append(self._window.memory)  # for the next
                self._window = None
            self._window = self._load(start)
        return self._window

    def _load(self, start: int) -> _Window:
        """Load the window that begins at a rank. With files per window the next one is read while it is used."""
        if self._plan.strategy == "passes":
            return self._pass(start)
        if not self._files:
            self._scatter()
        if self._following is None or start != self._next_start:  # the first, or ranks were skipped
            self._close_following()
            self._following = prefetch(self._collect, range(start, self._table.rows, self._plan.window_rows))
        self._next_start = start + self._plan.window_rows
        return next(self._following)

    def _close_following(self) -> None:
        if self._following is not None:
            self._following.close()
        self._following = None

    def _new_window(self, start: int) -> _Window:
        """Return memory for the window that begins at a rank: an earlier window's if there is one."""
        row_bytes = self._table.row_bytes
        memory = self._unused.pop() if self._unused else aligned_bytes(self._plan.window_rows * row_bytes)
        rows = min(self._plan.window_rows, self._table.rows - start)
        return _Window(start, memory[: rows * row_bytes].reshape(rows, row_bytes), memory)

    def _stream(self, desc: str) -> Iterator[tuple[Bytes, Ids]]:
        """Yield rows and their ranks, of every piece of the table."""
        table, step = self._table, self._plan.sizes.piece_rows(self._table)
        with progress(table.bytes, desc, "B", scale=True) as bar:
            source = source_of(table)
            if isinstance(source, FeatureTable):
                pairs = (parts for _, _, parts in chunks([map_rows(source, random=False), self._old_to_new], step))
            else:
                ids = chunks([self._old_to_new], step)
                pairs = ([rows, *part] for (_, rows), (_, _, part) in zip(source.pieces(step), ids, strict=True))
            for rows, ranks in pairs:
                yield encoded(table, rows, self._threads), np.ascontiguousarray(ranks)
                bar.update(rows.nbytes)

    def _pass(self, start: int) -> _Window:
        """Fill a window while the table streams past."""
        window = self._new_window(start)
        for rows, ranks in self._stream(f"rows from rank {start}"):
            native.scatter_rows(rows, ranks, start, window.rows, self._threads)
        return window

    def _collect(self, start: int) -> _Window:
        """Fill a window from its file, which stays: the disk does nothing else while a large file is removed."""
        window, file = self._new_window(start), self._files[start // self._plan.window_rows]
        for count, segment in zip(file.counts, file.read(self._buffers), strict=True):
            places, rows = file.parts(segment, count)
            native.scatter_rows(rows, places, 0, window.rows, self._threads)
        return window

    def _scatter(self) -> None:
        """Send every row to the file of its window, in the table's order; a piece of the table is a segment of each."""
        step, count = self._plan.sizes.piece_rows(self._table), -(-self._table.rows // self._plan.window_rows)
        self._scratch.mkdir(parents=True, exist_ok=True)
        for k in range(count):
            size = min(self._plan.window_rows, self._table.rows - k * self._plan.window_rows)
            path, pieces = self._scratch / f"window-{k}", -(-self._table.rows // step)
            self._files.append(WindowFile(path, size, self._table.row_bytes, min(size, pieces)))
        room = segment_bytes(step, self._table.row_bytes, self._plan.window_rows, min(step, count))
        staging = [aligned_bytes(room) for _ in range(2)]
        with closing(WriteBehind(staging, _WRITERS)) as behind:
            for rows, ranks in self._stream("scatter rows"):
                for file, segment, offset in self._sort(rows, ranks, behind.next_buffer()):
                    behind.submit(file.write, segment, offset)
            behind.finish()
        self._buffers = staging  # each has room for any segment

    def _sort(self, rows: Bytes, ranks: Ids, memory: Bytes) -> Iterator[tuple[WindowFile, Bytes, int]]:
        """Yield the rows of a piece by file: file, segment and its offset, made one after the other in `memory`."""
        window, count, at = self._plan.window_rows, len(self._files), 0
        owner = (ranks // window).astype(np.uint16 if count < 1 << 16 else np.int64)
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=count))
        for k, file in enumerate(self._files):
            chosen = order[ends[k - 1] if k else 0 : ends[k]]
            if chosen.size == 0:
                continue
            segment, places, target = file.segment(memory[at:], chosen.size)
            places[:] = ranks[chosen] - k * window
            native.gather_rows(rows, chosen, target, self._threads)
            yield file, segment, file.add_rows(chosen.size)
            at += segment.size

    def close(self) -> None:
        """Remove the files and give the memory back."""
        self._close_following()
        self._window = None
        self._unused, self._buffers = [], []
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(WindowFile.remove, self._files))
        self._files = []
        if self._plan.strategy == "scatter":
            shutil.rmtree(self._scratch, ignore_errors=True)


def encoded(table: Rows, rows: Bytes, threads: int, out: Bytes | None = None) -> Bytes:
    """Return rows as their table stores them, in `out` where they change and it is given."""
    return table.encode(rows, threads, out) if isinstance(table, EncodedTable) else rows


class PermutedRows(AbstractContextManager["PermutedRows"]):
    """Rows by rank; a context manager that removes the directory `scratch`, which it makes if it needs files.

    The maps are ``None`` if the table is in rank order. `copies`: bytes that the caller copies of a chunk.
    """

    def __init__(
        self, table: Rows, new_to_old: Ids | None, old_to_new: Ids | None, *, budget: Budget, scratch: Path,
        threads: int, sizes: PieceSizes | None = None, copies: int = 0,
    ) -> None:  # fmt: skip
        self.table, self._threads = table, threads
        self._new_to_old: Any = new_to_old  # taken row by row only where rows are gathered
        in_order = new_to_old is None or old_to_new is None
        self.plan = plan_rows(table, in_order, budget, sizes, copies)  # how the rows are brought into order
        self._windows: Windows | None = None
        if old_to_new is not None and self.plan.windows:
            self._windows = Windows(table, self.plan, old_to_new, scratch, threads)

    def chunks(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[int, Bytes]]:
        """Yield (first rank, rows), valid until the next, in multiples of `multiple` rows; ranges must ascend."""
        if begin == end:
            return
        step = self.plan.sizes.rows(moved_bytes(self.table), multiple)
        if isinstance(self.table, TierRows) and self._windows is None:
            yield from self.table.pieces(step, begin)
            return
        fill = self._filler(min(step, end - begin))
        rows, row_bytes = min(step, end - begin), self.table.row_bytes
        memory = (aligned_bytes(rows * row_bytes) for _ in range(2 if end - begin > step else 1))
        buffers = [part.reshape(rows, row_bytes) for part in memory]

        def load(first: int) -> Bytes:
            return fill(first, buffers[(first - begin) // step % len(buffers)][: min(step, end - first)], step)

        firsts = range(begin, end, step)
        yield from zip(firsts, prefetch(load, firsts), strict=True)

    def _filler(self, step: int) -> Callable[[int, Bytes, int], Bytes]:
        """Return a function that returns at most `step` rows from a rank on: in its chunk, or where they lie."""
        if self._windows is not None:
            return self._windows.rows
        source: Any = source_of(self.table)
        table = map_rows(source, random=self.plan.strategy == "gather")
        count = step if isinstance(self.table, EncodedTable) else 0
        unencoded = aligned_bytes(count * source.row_bytes).reshape(count, source.row_bytes)

        def copy(first: int, chunk: Bytes, _: int) -> Bytes:
            rows = unencoded[: chunk.shape[0]] if unencoded.size else chunk
            rows[:] = table[first : first + chunk.shape[0]]
            if source.verifier is not None:
                source.verifier.update(source.offset + first * source.row_bytes, rows.reshape(-1).data)
            return encoded(self.table, rows, self._threads, chunk)

        def gather(first: int, chunk: Bytes, _: int) -> Bytes:
            rows = unencoded[: chunk.shape[0]] if unencoded.size else chunk
            native.gather_rows(table, self._new_to_old[first : first + chunk.shape[0]], rows, self._threads)
            return encoded(self.table, rows, self._threads, chunk)

        return gather if self.plan.strategy == "gather" else copy

    def __exit__(self, *_: object) -> None:
        if self._windows is not None:
            self._windows.close()
