"""The adjacency of a relation under new ids within a memory budget: the old entries stream past windows of the new.

A window is a run of 64 MiB blocks of the new file, as long as memory allows; the old entries are read front to back,
once for each. Sources get their new ids when all of a window's entries are placed, from the source map in memory or in
pieces. Blocks are written when all entries have passed: a killed run goes on from the first that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import AnyArray, Bytes, open_raw
from tiering.artifacts.writer import DirectoryWriter
from tiering.formats.shape import value_bytes, value_rows
from tiering.memory import Budget
from tiering.reorder.arrays import SIZES, NodeWindows, PieceSizes, in_memory, memory_of, rows_of_blocks
from tiering.text.progress import progress
from tiering.text.units import format_count

PIECES = 3  # pieces of the entries that are held: two being read, one of another array or copied


@dataclass(frozen=True)
class RelabelSizes:
    """Sizes that decide the memory of a relation, and the decisions: those of a dry run and of the run alike."""

    num_edges: int
    num_src: int
    num_dst: int
    item_bytes: tuple[int, ...] = ()  # bytes of a value of each array that runs along the edges
    sizes: PieceSizes = SIZES

    @property
    def id_bytes(self) -> int:
        """Bytes of a source's id: 4, or 8 where the source type has 2^31 nodes or more."""
        return id_bytes(self.num_src)

    def parts(self) -> tuple[int, int, int]:
        """Return the bytes of the source map, of the new indptr (8 for each node), and of the largest array by edge."""
        widest = max(self.id_bytes, *self.item_bytes, 1)
        return self.id_bytes * self.num_src, 8 * (self.num_dst + 1), widest * self.num_edges

    @property
    def piece(self) -> int:
        """Bytes of a piece in which entries, or the map of sources, are read: an eighth of them or 1 MiB, if small."""
        largest = max(self.parts())
        return min(self.sizes.entries, max(min(1 << 20, largest), largest // 8))

    def in_memory(self) -> int:
        """Return the bytes with which old entries are read once for each array: all of `parts`, and three pieces."""
        return sum(self.parts()) + PIECES * self.piece

    def minimum(self) -> int:
        """Return the least bytes of memory: at most 64 MiB of each of `parts`, and three pieces."""
        return sum(min(part, self.sizes.block) for part in self.parts()) + PIECES * self.piece

    def require(self, what: str, budget: Budget) -> None:
        """Raise `BudgetError` unless the relation can be relabelled."""
        columns, sources = format_count(self.num_dst), format_count(self.num_src)
        whose = f"{what}: {columns} columns, {sources} sources, {self.num_edges} edges"
        budget.require(self.minimum(), f"{whose}, in pieces of 64 MiB,")

    def resident_bytes(self, budget: Budget, inverse: int, indices: bool) -> tuple[int, int]:
        """Return the bytes of node maps and new indptr that stay in memory while a file along the entries is made.

        `inverse` bytes of maps are there already; for `indices` the map of sources is, if a block fits next to it.
        """
        sources, offsets, _ = self.parts()
        block, left = self.sizes.block, budget.left()
        fits = sources <= block or sources + block + min(offsets, block) + PIECES * self.piece <= left
        return max(inverse, sources if indices and fits else 0), offsets if self.in_memory() <= left else 0

    def room(self, budget: Budget, inverse: int, indices: bool) -> int:
        """Return the bytes for a window and its columns' starts, unless all stay; arguments: see `resident_bytes`."""
        return budget.left() - PIECES * self.piece - sum(self.resident_bytes(budget, inverse, indices))


@dataclass
class OldRelation:
    """A relation in old ids, and where its nodes go."""

    indptr: AnyArray
    indices: AnyArray
    edge_data: Mapping[str, AnyArray]
    dst_old_to_new: AnyArray  # new id of each destination; read front to back
    src_old_to_new: AnyArray  # new id of each source; read at random

    def sizes(self, sizes: PieceSizes) -> RelabelSizes:
        """Return the sizes of this relation that decide its memory."""
        items = tuple(map(value_bytes, self.edge_data.values()))
        num_src, num_dst = self.src_old_to_new.shape[0], self.dst_old_to_new.shape[0]
        return RelabelSizes(self.indices.shape[0], num_src, num_dst, items, sizes)


def write_relation(writer: DirectoryWriter, folder: str, old: OldRelation, windows: NodeWindows) -> None:
    """Write the files of a relation under new ids that are missing, each in one pass for each window of the result.

    `RefusedError` names an offset or an entry that is out of range.
    """
    if writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *old.edge_data))):
        return
    sizes = old.sizes(windows.sizes)
    sizes.require(folder, windows.budget)
    indptr = _write_indptr(writer, f"{folder}/indptr", old, windows, sizes)
    for key, values in (("indices", None), *sorted(old.edge_data.items())):
        dtype = f"int{8 * sizes.id_bytes}" if values is None else values.dtype.name
        shape = old.indices.shape if values is None else values.shape
        if not writer.has(f"{folder}/{key}"):
            with writer.file(f"{folder}/{key}", dtype, shape) as file:
                _Entries(file, old, values, indptr, windows, sizes).write()


def _write_indptr(
    writer: DirectoryWriter, name: str, old: OldRelation, windows: NodeWindows, sizes: RelabelSizes
) -> AnyArray:
    """Write the new offsets unless they are there; return them, memory-mapped unless they are to stay in memory."""
    if not writer.has(name):
        native.check_indptr(old.indptr, old.indices.shape[0], windows.threads)
        others = windows.without(memory_of(old.src_old_to_new))
        if old.indptr.nbytes <= others.budget.left():
            indptr: AnyArray = native.relabel_indptr(old.indptr, old.dst_old_to_new, windows.threads)
            writer.put(name, indptr)
            if sizes.resident_bytes(windows.budget, 0, indices=False)[1]:
                return indptr
            del indptr
        else:
            with writer.file(name, "int64", old.indptr.shape) as file:
                others.offsets(file, old.indptr, old.dst_old_to_new)
    return open_raw(writer.path / name, np.dtype(np.int64), old.indptr.shape)


class _Entries:
    """Writes a file whose entries lie in the order of the new columns: `values` by edge, or the sources."""

    def __init__(
        self, file: FileWriter, old: OldRelation, values: AnyArray | None, indptr: AnyArray, windows: NodeWindows,
        sizes: RelabelSizes,
    ) -> None:  # fmt: skip
        self._file, self._old, self._values, self._indptr = file, old, values, indptr
        self._windows, self._sizes, self._threads, self._piece = windows, windows.sizes, windows.threads, sizes.piece
        self._item = sizes.id_bytes if values is None else value_bytes(values)
        at = windows.budget, memory_of(old.src_old_to_new), values is None
        self._room = sizes.room(*at)
        self._sources = self._places = old.src_old_to_new
        if values is None and sizes.resident_bytes(*at)[0] and file.missing():
            self._sources = self._places = in_memory(old.src_old_to_new, windows.sizes)
        if old.dst_old_to_new is not old.src_old_to_new:
            self._places = old.dst_old_to_new

    def write(self) -> None:
        self._windows.make(self._file, self._item, self._fill, lambda blocks: self._memory(blocks) <= self._room)

    def _columns(self, first: int, end: int) -> range:
        low = int(np.searchsorted(self._indptr, first, "right")) - 1
        return range(low, int(np.searchsorted(self._indptr, end, "left")))

    def _memory(self, blocks: range) -> int:
        """Return the bytes of a window, and of the starts of its columns unless all are in memory."""
        first, end = rows_of_blocks(self._file, blocks, self._item)
        starts = 8 * len(self._columns(first, end)) if isinstance(self._indptr, np.memmap) else 0
        return (end - first) * self._item + starts

    def _fill(self, first: int, window: Bytes) -> None:
        out = window.reshape(-1)
        for column, starts in self._starts(self._columns(first, first + len(window)), self._room - out.size):
            self._place((first, column, starts, out), f"{self._file.path.name} from edge {first}")
            del starts  # before the next are made
        if self._values is None:
            self._rename(out)

    def _starts(self, columns: range, room: int) -> Iterator[tuple[int, AnyArray]]:
        """Yield the first column and starts of the columns of a window, in parts if they do not fit the room."""
        step = len(columns)
        if isinstance(self._indptr, np.memmap):
            step = min(step, max(self._sizes.block, room - 3 * 8 * self._sizes.nodes) // 8)  # read in pieces
        for column in range(columns.start, columns.stop, max(1, step)):
            yield column, in_memory(self._indptr[column : min(columns.stop, column + step)], self._sizes)

    def _place(self, at: tuple[int, int, AnyArray, Bytes], desc: str) -> None:
        """Copy entries to their places in a window: `at` is its first entry, first column, starts and memory."""
        old, entries = self._old, self._old.indices if self._values is None else self._values
        step = max(1, self._piece // value_bytes(entries))
        with progress(entries.shape[0], desc, "edge", scale=True) as bar:
            for first, end, (part,) in chunks([entries], step):
                num_src = old.src_old_to_new.shape[0] if self._values is None else None
                place_entries(part, first, old.indptr, self._places, num_src, at, self._threads)
                bar.update(end - first)

    def _rename(self, window: Bytes) -> None:
        """Give the entries of a window, complete, their new ids."""
        count, step = self._sources.shape[0], max(1, self._piece // self._sources.itemsize)
        pieces = chunks([self._sources], step if isinstance(self._sources, np.memmap) else max(1, count))
        for first, _, (part,) in pieces:
            native.rename_sources(window, part, first, count, self._threads)


def place_entries(
    entries: AnyArray, first: int, indptr: AnyArray, places: AnyArray, num_src: int | None,
    at: tuple[int, int, AnyArray, Bytes], threads: int,
) -> None:  # fmt: skip
    """Copy entries from number `first` on, ids of sources with `num_src`, to their columns' places in a window.

    `at`: the window's first entry and column, where its columns start, and its memory.
    """
    if entries.size and num_src is None:
        native.place_values(value_rows(entries), first, indptr, places, *at, threads)
    elif entries.size and num_src is not None:
        native.place_indices(entries, first, indptr, places, num_src, *at, threads)
