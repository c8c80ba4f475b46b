"""The adjacency of a relation under new ids within a memory budget: the old entries stream past windows of the new.

A window is a run of 64 MiB blocks of the file being made, as long as memory allows: all of it where it fits. The old
entries are read front to back, once for each window; nothing is read at random from disk. (Two windows of half the
size, one written while the other is filled, would double the reading to hide the writing: never better.) Blocks are
written when all entries have passed, so a killed run goes on from the first block that is missing, even with another
budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.execution import Budget
from tiering.formats.artifact import ArtifactWriter
from tiering.io.blocks import BlockFile, aligned_bytes
from tiering.io.checksum import BLOCK_BYTES
from tiering.io.storage import open_raw
from tiering.io.streaming import Streamed
from tiering.progress import progress
from tiering.units import format_count

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

CHUNK_ENTRIES = 1 << 22
"""Entries of a chunk; two of them are held where they come from a disk."""


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
        return 8 if self.num_src >= 2**31 else 4

    def chunks(self) -> int:
        """Bytes of the two chunks being read."""
        widest = max(self.id_bytes, *self.item_bytes, 1)
        return 2 * widest * min(CHUNK_ENTRIES, self.num_edges)

    def fixed(self) -> int:
        """Bytes beside the window: 8 for each destination node, an id for each source node, two chunks."""
        return 8 * (self.num_dst + 1) + self.id_bytes * self.num_src + self.chunks()

    def in_memory(self) -> int:
        """Bytes with which the old entries are read once for each array: `fixed` and the largest array."""
        return self.fixed() + self.num_edges * max(self.id_bytes, *self.item_bytes, 1)

    def least(self) -> int:
        """Bytes with which it can be done at all: `fixed` and one block of 64 MiB, or the largest array if smaller."""
        return min(self.in_memory(), self.fixed() + BLOCK_BYTES + max(self.id_bytes, *self.item_bytes, 1))


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
    ValueError
        Naming an offset or an entry that is out of range.

    Notes
    -----
    Cost: one pass over the entries for each window of the result, and the same for each array of edge data.
    """
    sizes, name = old.sizes(), f"{folder}/indptr"
    what = f"{format_count(sizes.num_dst)} nodes, 8 bytes each, {format_count(sizes.num_src)} ids, a block of 64 MiB"
    names = [name, f"{folder}/indices", *(f"{folder}/{key}" for key in old.edge_data)]
    if writer.has(*names):
        return
    inside = 0 if isinstance(old.src_old_to_new, np.memmap) else old.src_old_to_new.nbytes
    budget.require(sizes.least() - inside, f"{folder}: {what}")
    indptr: AnyArray | None = None
    if not writer.has(name):
        whole = sizes.in_memory() - inside <= budget.left()
        indptr = native.relabel_indptr(old.indptr, old.dst_old_to_new, threads)
        put(writer, name, indptr)
        indptr = indptr if whole else None
    if indptr is None:
        indptr = open_raw(writer.path / name, np.dtype(np.int64), (sizes.num_dst + 1,))
    windows = _Windows(old, indptr, min(CHUNK_ENTRIES, max(1, sizes.num_edges)), budget, threads)
    windows.write(writer, f"{folder}/indices", np.dtype(f"int{8 * sizes.id_bytes}"), None)
    windows.forget_sources()
    for key, values in sorted(old.edge_data.items()):
        windows.write(writer, f"{folder}/{key}", values.dtype, values)


def put(writer: ArtifactWriter, name: str, array: AnyArray) -> None:
    """Write an array in blocks: past the page cache, several side by side."""
    with writer.blocks(name, array.dtype.name, array.shape) as file:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        missing = file.missing()
        if len(missing) == file.num_blocks:
            file.write(0, flat)
        else:
            for block in missing:
                file.write(block, flat[slice(*file.span(block))])


def held(array: AnyArray) -> AnyArray:
    """An array in memory, in huge pages where the system has them: what is read at random."""
    if not isinstance(array, np.memmap):
        return array
    copy: AnyArray = aligned_bytes(array.nbytes).view(array.dtype)
    with Streamed([array], CHUNK_ENTRIES) as stream:
        for first, end, (part,) in stream:
            copy[first:end] = part
    return copy


class _Windows:
    """Makes files whose entries lie in the order of the new columns."""

    def __init__(self, old: OldRelation, indptr: AnyArray, chunk: int, budget: Budget, threads: int) -> None:
        self._old, self._indptr, self._chunk = old, indptr, chunk
        self._budget, self._threads = budget, threads
        self._places = old.dst_old_to_new
        self._sources: AnyArray = np.empty(0, np.int32)
        self._column_bytes = 8 if isinstance(indptr, np.memmap) else 0  # else all of it is there
        self._memory = aligned_bytes(0)

    def write(self, writer: ArtifactWriter, name: str, dtype: np.dtype[Any], values: AnyArray | None) -> None:
        """Write one file: `values` by edge, or the sources."""
        if writer.has(name):
            return
        if values is None and self._sources.size == 0:
            self._sources = held(self._old.src_old_to_new)
            if self._old.dst_old_to_new is self._old.src_old_to_new:
                self._places = self._sources
        item = dtype.itemsize if values is None else item_bytes(values)
        shape = self._old.indices.shape if values is None else values.shape
        with writer.blocks(name, dtype.name, shape) as file:
            while missing := file.missing():
                self._make(file, self._window(file, missing, item), item, values)
        self._memory = aligned_bytes(0)

    def forget_sources(self) -> None:
        """Give the source map's memory back."""
        self._sources, self._places = np.empty(0, np.int32), self._old.dst_old_to_new

    def _window(self, file: BlockFile, missing: Sequence[int], item: int) -> range:
        """As many of the first missing blocks in a row as there is memory for, one at least."""
        room = self._budget.left() + self._memory.size - 2 * item * self._chunk
        first = end = missing[0]
        for block in missing:
            begin, stop = file.span(first)[0], file.span(block)[1]
            columns = self._columns(begin // item, -(-stop // item))
            if block != end or (block > first and stop - begin + 2 * item + self._column_bytes * len(columns) > room):
                break
            end = block + 1
        return range(first, end)

    def _columns(self, first: int, end: int) -> range:
        """New columns that have entries in [first, end)."""
        low = int(np.searchsorted(self._indptr, first, "right")) - 1
        return range(low, int(np.searchsorted(self._indptr, end, "left")))

    def _make(self, file: BlockFile, blocks: range, item: int, values: AnyArray | None) -> None:
        """Fill a window and write it."""
        begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
        first, end = begin // item, -(-stop // item)
        columns = self._columns(first, end)
        starts = held(self._indptr[columns.start : columns.stop])
        window = self._room((end - first) * item)
        desc = f"{file.path.name} {blocks.start + 1}-{blocks.stop} of {file.num_blocks}"
        place, arrays = (self._place_ids, self._old.indices) if values is None else (self._place_values, values)
        with Streamed([arrays], self._chunk) as stream, progress(len(arrays), desc, "edge", scale=True) as bar:
            for from_, to, (part,) in stream:
                place(part, from_, first, columns.start, starts, window)
                bar.update(to - from_)
        file.write(blocks.start, window[begin - first * item : stop - first * item])

    def _room(self, nbytes: int) -> Bytes:
        """Memory for a window; that of the window before is used again where it is enough."""
        if self._memory.size < nbytes:
            self._memory = aligned_bytes(0)  # goes before the next is taken
            self._memory = aligned_bytes(nbytes)
        return self._memory[:nbytes]

    def _place_ids(
        self, part: AnyArray, entry: int, first: int, first_column: int, starts: AnyArray, window: Bytes
    ) -> None:
        native.place_relabelled(
            part, entry, self._old.indptr, self._places, self._sources, first, first_column, starts, window,
            self._threads,
        )  # fmt: skip

    def _place_values(
        self, part: AnyArray, entry: int, first: int, first_column: int, starts: AnyArray, window: Bytes
    ) -> None:
        data = np.ascontiguousarray(part).reshape(part.shape[0], -1).view(np.uint8)
        native.place_relabelled_data(
            data, entry, self._old.indptr, self._places, first, first_column, starts, window, self._threads
        )
