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
import numpy.typing as npt

from tiering import native
from tiering.artifacts.file_writer import WriteBehind
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import SegmentFile, chunks, prefetch
from tiering.artifacts.storage import LINE, aligned_bytes, padded
from tiering.formats.feature_rows import RowStream, map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget
from tiering.progress import progress
from tiering.reorder.rows.plan import RowPlan, plan_rows, segment_bytes
from tiering.reorder.sizes import Rows, Sizes

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[Any]

_WRITERS = 4  # files written side by side


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
        """Return the rows from rank `first` on, as many as `out` has: copied to it, or where they lie.

        Where they lie they stay while the next `step` rows are asked for.
        """
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
        """Return the memory for the window that begins at a rank: that of an earlier one if there is any."""
        row_bytes = self._table.row_bytes
        memory = self._unused.pop() if self._unused else aligned_bytes(self._plan.window_rows * row_bytes)
        rows = min(self._plan.window_rows, self._table.rows - start)
        return _Window(start, memory[: rows * row_bytes].reshape(rows, row_bytes), memory)

    def _stream(self, desc: str) -> Iterator[tuple[Bytes, Ids]]:
        """Yield rows and their ranks, of every piece of the table."""
        table, step = self._table, self._plan.sizes.piece_rows(self._table)
        with progress(table.bytes, desc, "B", scale=True) as bar:
            if isinstance(table, FeatureTable):
                pairs = (parts for _, _, parts in chunks([map_rows(table, random=False), self._old_to_new], step))
            else:
                ids = chunks([self._old_to_new], step)
                pairs = ([rows, *part] for (_, rows), (_, _, part) in zip(table.pieces(step), ids, strict=True))
            for rows, ranks in pairs:
                yield rows, np.ascontiguousarray(ranks)
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


class PermutedRows(AbstractContextManager["PermutedRows"]):
    """Rows by rank; a context manager that removes the directory `scratch`, which it makes if it needs files.

    `new_to_old`, `old_to_new`: ``None`` if the table is in rank order. `copies`: bytes that the caller copies of a
    chunk.
    """

    def __init__(
        self,
        table: Rows,
        new_to_old: Ids | None,
        old_to_new: Ids | None,
        *,
        budget: Budget,
        scratch: Path,
        threads: int,
        sizes: Sizes | None = None,
        copies: int = 0,
    ) -> None:
        self.table, self._threads = table, threads
        self._new_to_old: Any = new_to_old  # taken row by row only where rows are gathered
        in_order = new_to_old is None or old_to_new is None
        self.plan = plan_rows(table, in_order, budget, sizes, copies)  # how the rows are brought into order
        self._windows: Windows | None = None
        if old_to_new is not None and self.plan.windows:
            self._windows = Windows(table, self.plan, old_to_new, scratch, threads)

    def chunks(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[int, Bytes]]:
        """Yield rows `begin`..`end` in whole multiples of `multiple` rows: (first rank, uint8 (n, row_bytes)).

        Ranges must come in ascending order. A piece is valid until the next is asked for.
        """
        if begin == end:
            return
        step = self.plan.sizes.rows(self.table.row_bytes, multiple)
        if isinstance(self.table, RowStream) and self._windows is None:
            yield from self.table.pieces(step, begin)
            return
        fill = self._filler()
        shape = (min(step, end - begin), self.table.row_bytes)
        buffers = [np.empty(shape, np.uint8) for _ in range(2 if end - begin > step else 1)]

        def load(first: int) -> Bytes:
            return fill(first, buffers[(first - begin) // step % len(buffers)][: min(step, end - first)], step)

        firsts = range(begin, end, step)
        yield from zip(firsts, prefetch(load, firsts), strict=True)

    def _filler(self) -> Callable[[int, Bytes, int], Bytes]:
        """Return a function that returns the rows from a rank on: copied to its chunk, or where they lie."""
        if self._windows is not None:
            return self._windows.rows
        source: Any = self.table
        table = map_rows(source, random=self.plan.strategy == "gather")

        def copy(first: int, chunk: Bytes, _: int) -> Bytes:
            chunk[:] = table[first : first + chunk.shape[0]]
            if source.verifier is not None:
                source.verifier.update(source.offset + first * source.row_bytes, chunk.reshape(-1).data)
            return chunk

        def gather(first: int, chunk: Bytes, _: int) -> Bytes:
            native.gather_rows(table, self._new_to_old[first : first + chunk.shape[0]], chunk, self._threads)
            return chunk

        return gather if self.plan.strategy == "gather" else copy

    def __exit__(self, *_: object) -> None:
        if self._windows is not None:
            self._windows.close()
