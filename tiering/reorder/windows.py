"""The adjacency of a relation under new ids within a memory budget: the old entries stream past windows of the new.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows: all of it where it fits. The old
entries are read front to back, once for each window; nothing is read at random from disk. (Two windows of half the
size, one written while the other is filled, would double the reading to hide the writing: never better. Two in the same
memory, where the system is slow to give memory: measured, no better either.) Where not
even one block fits beside the source map and the places of its columns, those are taken in parts, too, and the entries
pass once for each combination. Blocks are written when all entries have passed, so a killed run goes on from the first
block that is missing, even with another budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import open_raw
from tiering.artifacts.streaming import Streamed
from tiering.artifacts.windows import Window, make_missing
from tiering.artifacts.writer import ArtifactWriter
from tiering.memory import Budget
from tiering.progress import progress
from tiering.reorder.arrays import held, put, write_offsets
from tiering.units import format_count

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

CHUNK_BYTES = 16 << 20
"""Entries are read in pieces of about this size, and up to `WIDEST_CHUNK` where there is memory and it pays."""
WIDEST_CHUNK = 256 << 20
LARGE_MAP = 160 << 20
"""Bytes from which a source map is looked up by parts, for a piece of the entries at a time: the larger the better."""
BUFFERS = 3
"""Pieces held: two being read, one of another array, copied, or looked up by parts."""


@dataclass(frozen=True)
class RelabelSizes:
    """What decides the memory of a relation."""

    num_edges: int
    num_src: int
    num_dst: int
    item_bytes: tuple[int, ...] = ()
    """Bytes of a value of each array that runs along the edges."""

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
        return BUFFERS * min(CHUNK_BYTES, self.parts()[2])

    def in_memory(self) -> int:
        """Bytes with which the old entries are read once for each array: all of `parts`, and three pieces."""
        return sum(self.parts()) + self.pieces()

    def least(self) -> int:
        """Bytes with which it can be done at all: 64 MiB of each of `parts` at the most, and three pieces."""
        return sum(min(part, BLOCK_BYTES) for part in self.parts()) + self.pieces()


def widened(room: int, nbytes: int) -> int:
    """Bytes of a piece of the entries, `nbytes` in all, where they are looked up by parts and `room` is left."""
    return max(CHUNK_BYTES, min(CHUNK_BYTES + max(0, room) // BUFFERS, WIDEST_CHUNK, nbytes))


def require_relabel(folder: str, sizes: RelabelSizes, budget: Budget, inside: int = 0) -> None:
    """Raise `BudgetError` unless the relation can be relabelled; `inside` bytes of its maps are in memory already."""
    what = f"{format_count(sizes.num_dst)} columns, {format_count(sizes.num_src)} sources, {sizes.num_edges} edges"
    budget.require(sizes.least() - inside, f"{folder}: {what}, in pieces of 64 MiB,")


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

    def sizes(self) -> RelabelSizes:
        """Sizes of the relation."""
        items = tuple(item_bytes(values) for values in self.edge_data.values())
        return RelabelSizes(self.indices.shape[0], self.src_old_to_new.shape[0], self.dst_old_to_new.shape[0], items)


def item_bytes(values: AnyArray) -> int:
    """Bytes of one edge's value."""
    return values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))


def write_relation(writer: ArtifactWriter, folder: str, old: OldRelation, budget: Budget, threads: int) -> None:
    """Write ``indptr``, ``indices`` and the edge data of a relation under new ids; what is there already stays.

    Raises
    ------
    BudgetError
        If `RelabelSizes.least` is more than the budget leaves.
    RefusedError
        Naming an offset or an entry that is out of range.

    Notes
    -----
    Cost: one pass over the entries for each window of the result, and the same for each array of edge data.
    """
    sizes, name = old.sizes(), f"{folder}/indptr"
    if writer.has(name, f"{folder}/indices", *(f"{folder}/{key}" for key in old.edge_data)):
        return
    inside = 0 if isinstance(old.src_old_to_new, np.memmap) else old.src_old_to_new.nbytes
    require_relabel(folder, sizes, budget, inside)
    indptr = _write_indptr(writer, name, old, budget, threads, sizes.in_memory() - inside <= budget.left())
    windows = _Windows(old, indptr, budget, threads)
    windows.write(writer, f"{folder}/indices", np.dtype(f"int{8 * sizes.id_bytes}"), None)
    windows.forget_sources()
    for key, values in sorted(old.edge_data.items()):
        windows.write(writer, f"{folder}/{key}", values.dtype, values)


def _write_indptr(
    writer: ArtifactWriter, name: str, old: OldRelation, budget: Budget, threads: int, keep: bool
) -> AnyArray:
    """Write the new offsets unless they are there; return them, memory-mapped unless to `keep`."""
    if not writer.has(name):
        native.check_indptr(old.indptr, old.indices.shape[0], threads)
        if old.indptr.nbytes <= budget.left():
            indptr: AnyArray = native.relabel_indptr(old.indptr, old.dst_old_to_new, threads)
            put(writer, name, indptr)
            if keep:
                return indptr
            del indptr
        else:
            write_offsets(writer, name, old.indptr, old.dst_old_to_new, budget, threads)
    return open_raw(writer.path / name, np.dtype(np.int64), old.indptr.shape)


class _Windows:
    """Makes files whose entries lie in the order of the new columns."""

    def __init__(self, old: OldRelation, indptr: AnyArray, budget: Budget, threads: int) -> None:
        self._old, self._indptr, self._budget, self._threads = old, indptr, budget, threads
        self._places, self._pieces = old.dst_old_to_new, old.sizes().pieces()
        self._sources: AnyArray = np.empty(0, np.int32)
        self._slice = 0  # sources of a part of the map
        self._memory = self._space = aligned_bytes(0)
        self._chunk = CHUNK_BYTES

    def write(self, writer: ArtifactWriter, name: str, dtype: np.dtype[Any], values: AnyArray | None) -> None:
        """Write one file: `values` by edge, or the sources."""
        if writer.has(name):
            return
        item = dtype.itemsize if values is None else item_bytes(values)
        shape = self._old.indices.shape if values is None else values.shape
        with writer.file(name, dtype.name, shape) as file:
            if values is None and (missing := file.missing()):
                self._load_sources(Window.of(file, range(missing[0], missing[0] + 1), item, self._indptr), item)
            room = self._left()
            make_missing(
                file,
                lambda blocks: self._memory_of(Window.of(file, blocks, item, self._indptr), item) <= room,
                lambda blocks: self._make(file, blocks, item, values),
            )
        self._memory = self._space = aligned_bytes(0)

    def forget_sources(self) -> None:
        """Give the source map's memory back."""
        self._sources, self._slice, self._places = np.empty(0, np.int32), 0, self._old.dst_old_to_new

    def _left(self) -> int:
        """Bytes for a window and its starts; the memory of the window before is free again."""
        return self._budget.left() + self._memory.size + self._space.size - self._pieces - self._sliced()

    def _sliced(self) -> int:
        """Bytes of a part of the source map, where it comes in parts."""
        return 0 if self._sources.size else self._slice * self._old.src_old_to_new.itemsize

    def _load_sources(self, window: Window, item: int) -> None:
        """Hold the source map if a window of one block fits beside it; else its parts get half of what is left."""
        whole, room = self._old.src_old_to_new, self._left()
        inside = not isinstance(whole, np.memmap) or whole.nbytes <= BLOCK_BYTES
        if inside or whole.nbytes + self._memory_of(window, item) <= room:
            self._sources, self._slice = held(whole), max(1, whole.shape[0])
            if self._old.dst_old_to_new is whole:
                self._places = self._sources
        else:
            self._slice = max(BLOCK_BYTES, room // 2) // whole.itemsize

    def _memory_of(self, window: Window, item: int) -> int:
        """Bytes of a window and of the starts of its columns."""
        return window.memory(item) if isinstance(self._indptr, np.memmap) else (window.end - window.first) * item

    def _starts(self, columns: range, room: int) -> Iterator[tuple[int, AnyArray]]:
        """First column and starts of the columns of a window, in parts if they do not fit the room."""
        step = len(columns)
        if isinstance(self._indptr, np.memmap):
            step = min(step, max(BLOCK_BYTES, room) // 8)
        for column in range(columns.start, columns.stop, max(1, step)):
            yield column, held(self._indptr[column : min(columns.stop, column + step)])

    def _maps(self) -> Iterator[tuple[int, AnyArray]]:
        """First source and new ids, of all sources or of a part after the other."""
        if self._sources.size:
            yield 0, self._sources
            return
        whole = self._old.src_old_to_new
        for first in range(0, whole.shape[0], self._slice):
            yield first, held(whole[first : first + self._slice])

    def _make(self, file: FileWriter, blocks: range, item: int, values: AnyArray | None) -> None:
        """Fill a window and write it."""
        window = Window.of(file, blocks, item, self._indptr)
        nbytes = (window.end - window.first) * item
        left = self._left()
        room, starts = left - nbytes, self._memory_of(window, item) - nbytes
        out = self._room(nbytes, left - starts)
        self._widen(values, room - starts)
        desc = f"{file.path.name} {blocks.start + 1}-{blocks.stop} of {file.num_blocks}"
        for column, begins in self._starts(window.columns, room):
            if values is None:
                self._pass_ids(desc, out, window.first, column, begins)
            else:
                self._pass_values(desc, values, out, window.first, column, begins)
        file.write(blocks.start, window.bytes_of(out, item))

    def _room(self, nbytes: int, most: int) -> Bytes:
        """Memory for a window; that of the window before is used again where it is enough, and not more than `most`:
        the last windows may have few entries and the starts of very many columns.
        """
        if self._memory.size < nbytes or self._memory.size > max(nbytes, most):
            self._memory = aligned_bytes(0)  # goes before the next is taken
            self._memory = aligned_bytes(nbytes)
        return self._memory[:nbytes]

    def _widen(self, values: AnyArray | None, room: int) -> None:
        """Choose how much is read at a time; take the space to look a large source map up by parts."""
        self._chunk, needed = CHUNK_BYTES, 0
        whole = self._sources.size == self._old.src_old_to_new.shape[0]
        if values is None and whole and self._sources.nbytes >= LARGE_MAP:
            self._chunk = needed = widened(room, self._old.indices.nbytes)
        if self._space.size != needed:
            self._space = aligned_bytes(0)
            self._space = aligned_bytes(needed)

    def _pass(self, array: AnyArray, desc: str) -> Iterator[tuple[int, AnyArray]]:
        """Number of the first entry, and entries, of every piece of an array."""
        step = max(1, self._chunk // item_bytes(array))
        with Streamed([array], step) as stream, progress(array.shape[0], desc, "edge", scale=True) as bar:
            for first, end, (part,) in stream:
                yield first, part
                bar.update(end - first)

    def _pass_ids(self, desc: str, window: Bytes, first: int, column: int, starts: AnyArray) -> None:
        old, num_src = self._old, self._old.src_old_to_new.shape[0]
        for source, sources in self._maps():
            for entry, part in self._pass(old.indices, desc):
                native.place_relabelled(
                    part, entry, old.indptr, self._places, sources, source, num_src, first, column, starts, window,
                    self._space, self._threads,
                )  # fmt: skip

    def _pass_values(
        self, desc: str, values: AnyArray, window: Bytes, first: int, column: int, starts: AnyArray
    ) -> None:
        for entry, part in self._pass(values, desc):
            data = np.ascontiguousarray(part).reshape(part.shape[0], -1).view(np.uint8)
            native.place_relabelled_data(
                data, entry, self._old.indptr, self._places, first, column, starts, window, self._threads
            )
