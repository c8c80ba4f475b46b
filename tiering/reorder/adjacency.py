"""The adjacency of a relation under new ids within a memory budget: the old entries stream past windows of the new.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows: all of it where it fits. The old
entries are read front to back, once for each window; nothing is read at random from disk. (Two windows of half the
size, one written while the other is filled, would double the reading to hide the writing: never better.) Sources get
their new ids when all of a window's entries are placed: from the source map in memory, or, where that does not fit
beside a block, from pieces of it that are read front to back. Where not even the places of a window's columns fit, they
are taken in parts, and the entries pass once for each. Blocks are written when all entries have passed, so a killed run
goes on from the first block that is missing, even with another budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import open_raw
from tiering.artifacts.streaming import Streamed
from tiering.artifacts.windows import Window, make_missing
from tiering.artifacts.writer import ArtifactWriter
from tiering.memory import Budget
from tiering.progress import progress
from tiering.reorder.arrays import NodeWindows, held, put, rows
from tiering.reorder.sizes import SIZES, Sizes
from tiering.units import format_count

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

PIECES = 3
"""Pieces of the entries that are held: two being read, one of another array or copied."""


@dataclass(frozen=True)
class RelabelSizes:
    """What decides the memory of a relation."""

    num_edges: int
    num_src: int
    num_dst: int
    item_bytes: tuple[int, ...] = ()
    """Bytes of a value of each array that runs along the edges."""
    sizes: Sizes = SIZES

    @property
    def id_bytes(self) -> int:
        """Bytes of a source's id: 4, or 8 where the source type has 2^31 nodes or more."""
        return id_bytes(self.num_src)

    def parts(self) -> tuple[int, int, int]:
        """Bytes of the source map, of the new indptr (8 for each node), and of the largest array by edge."""
        widest = max(self.id_bytes, *self.item_bytes, 1)
        return self.id_bytes * self.num_src, 8 * (self.num_dst + 1), widest * self.num_edges

    def pieces(self) -> int:
        """Bytes of the pieces in which entries are read."""
        return PIECES * min(self.sizes.entries, self.parts()[2])

    def in_memory(self) -> int:
        """Bytes with which the old entries are read once for each array: all of `parts`, and three pieces."""
        return sum(self.parts()) + self.pieces()

    def minimum(self) -> int:
        """Bytes with which it can be done at all: 64 MiB of each of `parts` at the most, and three pieces."""
        return sum(min(part, self.sizes.block) for part in self.parts()) + self.pieces()


def require_relabel(folder: str, sizes: RelabelSizes, budget: Budget, inside: int = 0) -> None:
    """Raise `BudgetError` unless the relation can be relabelled; `inside` bytes of its maps are in memory already."""
    what = f"{format_count(sizes.num_dst)} columns, {format_count(sizes.num_src)} sources, {sizes.num_edges} edges"
    budget.require(sizes.minimum() - inside, f"{folder}: {what}, in pieces of 64 MiB,")


@dataclass
class OldRelation:
    """A relation in old ids, and where its nodes go."""

    indptr: AnyArray
    indices: AnyArray
    edge_data: Mapping[str, AnyArray]
    dst_old_to_new: AnyArray
    """New id of each destination; read front to back."""
    src_old_to_new: AnyArray
    """New id of each source; read at random."""

    def sizes(self, sizes: Sizes) -> RelabelSizes:
        """Sizes of the relation."""
        items = tuple(item_bytes(values) for values in self.edge_data.values())
        num_src, num_dst = self.src_old_to_new.shape[0], self.dst_old_to_new.shape[0]
        return RelabelSizes(self.indices.shape[0], num_src, num_dst, items, sizes)


def item_bytes(values: AnyArray) -> int:
    """Bytes of one edge's value."""
    return values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))


def write_relation(writer: ArtifactWriter, folder: str, old: OldRelation, windows: NodeWindows) -> None:
    """Write ``indptr``, ``indices`` and the edge data of a relation under new ids; what is there already stays.

    Parameters
    ----------
    windows
        Budget, sizes and threads; writes the offsets.

    Raises
    ------
    BudgetError
        If `RelabelSizes.minimum` is more than the budget leaves.
    RefusedError
        Naming an offset or an entry that is out of range.

    Notes
    -----
    Cost: one pass over the entries for each window of the result, and the same for each array of edge data.
    """
    sizes, budget = old.sizes(windows.sizes), windows.budget
    if writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *old.edge_data))):
        return
    inside = 0 if isinstance(old.src_old_to_new, np.memmap) else old.src_old_to_new.nbytes
    require_relabel(folder, sizes, budget, inside)
    keep = sizes.in_memory() - inside <= budget.left()
    indptr = _write_indptr(writer, f"{folder}/indptr", old, windows, keep)
    files = _EntryFiles(writer, old, indptr, windows)
    files.write(f"{folder}/indices", np.dtype(f"int{8 * sizes.id_bytes}"), None)
    for key, values in sorted(old.edge_data.items()):
        files.write(f"{folder}/{key}", values.dtype, values)


def _write_indptr(writer: ArtifactWriter, name: str, old: OldRelation, windows: NodeWindows, keep: bool) -> AnyArray:
    """Write the new offsets unless they are there; return them, memory-mapped unless to `keep`."""
    if not writer.has(name):
        native.check_indptr(old.indptr, old.indices.shape[0], windows.threads)
        if old.indptr.nbytes <= windows.budget.left():
            indptr: AnyArray = native.relabel_indptr(old.indptr, old.dst_old_to_new, windows.threads)
            put(writer, name, indptr)
            if keep:
                return indptr
            del indptr
        else:
            with writer.file(name, "int64", old.indptr.shape) as file:
                windows.offsets(file, old.indptr, old.dst_old_to_new)
    return open_raw(writer.path / name, np.dtype(np.int64), old.indptr.shape)


class _EntryFiles:
    """Writes files whose entries lie in the order of the new columns, one after the other."""

    def __init__(self, writer: ArtifactWriter, old: OldRelation, indptr: AnyArray, windows: NodeWindows) -> None:
        self._writer, self._old, self._indptr = writer, old, indptr
        self._budget, self._sizes, self._threads = windows.budget, windows.sizes, windows.threads
        self._pieces = old.sizes(windows.sizes).pieces()

    def write(self, name: str, dtype: np.dtype[Any], values: AnyArray | None) -> None:
        """Write one file: `values` by edge, or the sources."""
        if self._writer.has(name):
            return
        old = self._old
        item = dtype.itemsize if values is None else item_bytes(values)
        shape = old.indices.shape if values is None else values.shape
        with self._writer.file(name, dtype.name, shape) as file:
            places = sources = old.dst_old_to_new
            if values is None:
                sources = self._sources(file, item)
                places = sources if old.src_old_to_new is old.dst_old_to_new else places
            room = self._room()

            def make(blocks: range) -> None:
                window = Window.of(file, blocks, item, self._indptr)
                out = aligned_bytes((window.end - window.first) * item)
                desc = f"{file.path.name} {blocks.start + 1}-{blocks.stop} of {file.num_blocks}"
                for column, starts in self._starts(window.columns, room - out.size):
                    at = window.first, column, starts, out
                    self._place(self._passing(old.indices if values is None else values, desc), places, at, values)
                if values is None:
                    self._rename(out, sources)
                file.write(blocks.start, window.bytes_of(out, item))

            make_missing(file, lambda blocks: self._memory(file, blocks, item) <= room, make)

    def _room(self) -> int:
        """Bytes for a window and the starts of its columns."""
        return self._budget.left() - self._pieces

    def _memory(self, file: FileWriter, blocks: range, item: int) -> int:
        """Bytes of a window, and of the starts of its columns unless all are in memory."""
        window = Window.of(file, blocks, item, self._indptr)
        return window.memory(item) if isinstance(self._indptr, np.memmap) else (window.end - window.first) * item

    def _sources(self, file: FileWriter, item: int) -> AnyArray:
        """The source map: in memory if it is small, or a window of one block fits beside it; else where it lies."""
        whole, missing = self._old.src_old_to_new, file.missing()
        if not missing:
            return whole
        window = self._memory(file, range(missing[0], missing[0] + 1), item)
        small = whole.nbytes <= self._sizes.block
        return held(whole, self._sizes) if small or whole.nbytes + window <= self._room() else whole

    def _starts(self, columns: range, room: int) -> Iterator[tuple[int, AnyArray]]:
        """First column and starts of the columns of a window, in parts if they do not fit the room."""
        step = len(columns)
        if isinstance(self._indptr, np.memmap):
            step = min(step, max(self._sizes.block, room) // 8)
        for column in range(columns.start, columns.stop, max(1, step)):
            yield column, held(self._indptr[column : min(columns.stop, column + step)], self._sizes)

    def _passing(self, array: AnyArray, desc: str) -> Iterator[tuple[int, AnyArray]]:
        """Number of the first entry, and entries, of every piece of an array."""
        step = max(1, self._sizes.entries // item_bytes(array))
        with Streamed([array], step) as stream, progress(array.shape[0], desc, "edge", scale=True) as bar:
            for first, end, (part,) in stream:
                yield first, part
                bar.update(end - first)

    def _place(
        self,
        pieces: Iterator[tuple[int, AnyArray]],
        places: AnyArray,
        at: tuple[int, int, AnyArray, Bytes],
        values: AnyArray | None,
    ) -> None:
        """Copy entries to their places in a window: `at` is its first entry, first column, starts and memory."""
        indptr, num_src = self._old.indptr, self._old.src_old_to_new.shape[0]
        for first, part in pieces:
            if values is None:
                native.place_indices(part, first, indptr, places, num_src, *at, self._threads)
            else:
                native.place_values(rows(np.ascontiguousarray(part)), first, indptr, places, *at, self._threads)

    def _rename(self, window: Bytes, sources: AnyArray) -> None:
        """Give the entries of a window, complete, their new ids."""
        if not isinstance(sources, np.memmap):
            native.rename_sources(window, sources, 0, sources.shape[0], self._threads)
            return
        with Streamed([sources], max(1, self._sizes.entries // sources.itemsize)) as stream:
            for first, _, (part,) in stream:
                native.rename_sources(window, part, first, sources.shape[0], self._threads)
