"""The adjacency of a relation under new ids within a memory budget: the old entries stream past windows of the new.

Old entries are read front to back, once for each window. Sources get their new ids when all of a window's entries are
placed, from the source map in memory or in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.artifacts.writer import DirectoryWriter
from tiering.formats.shape import value_bytes, value_rows
from tiering.memory import Budget
from tiering.reorder.arrays import SIZES, NodeArrays, PieceSizes, in_memory, memory_of
from tiering.run.move import MovePlan, move
from tiering.run.places import Window, WindowBuffer
from tiering.text.progress import progress
from tiering.text.units import format_bytes, format_count

PIECES = 3  # pieces of the entries that are held: two being read, one of another array or copied


@dataclass(frozen=True)
class RelabelSizes:
    """Sizes that decide the memory of a relation, and the decisions: the same for a dry run and the run."""

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

    def minimum(self) -> int:
        """Return the least bytes of memory: the new indptr, at most 64 MiB of the other `parts`, and three pieces."""
        sources, offsets, widest = self.parts()
        return offsets + min(sources, self.sizes.block) + min(widest, self.sizes.block) + PIECES * self.piece

    def require(self, what: str, budget: Budget) -> None:
        """Raise `BudgetError` unless the relation can be relabeled."""
        columns, sources = format_count(self.num_dst), format_count(self.num_src)
        whose = f"{what}: {columns} columns, {sources} sources, {self.num_edges} edges"
        budget.require(self.minimum(), f"{whose}, in pieces of {format_bytes(self.sizes.block)},")

    def sources_kept(self, budget: Budget) -> int:
        """Return the bytes of the source map if it stays in memory while sources pass: if a block fits next to it."""
        sources, offsets, _ = self.parts()
        room = budget.left() - offsets - PIECES * self.piece - self.sizes.block
        return sources if sources <= max(self.sizes.block, room) else 0

    def window(self, budget: Budget, inverse: int, item: int, *, indices: bool) -> int:
        """Return the bytes of a window of a file with values of `item` bytes.

        `inverse` bytes of maps are in memory already; for `indices` perhaps the map of sources.
        """
        maps = max(inverse, self.sources_kept(budget) if indices else 0)
        room = budget.left() - PIECES * self.piece - maps - self.parts()[1]
        return min(item * self.num_edges, max(self.sizes.block, room // self.sizes.block * self.sizes.block))

    def passes(self, budget: Budget) -> float:
        """Return how often the entries are read for the array that takes the most windows; inf: too little memory."""
        if self.minimum() > budget.left():
            return math.inf if self.num_edges else 0
        items = ((self.id_bytes, True), *((item, False) for item in self.item_bytes))
        counts = (-(-item * self.num_edges // self.window(budget, 0, item, indices=own)) for item, own in items)
        return max(counts) if self.num_edges else 0


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


def write_relation(writer: DirectoryWriter, folder: str, old: OldRelation, nodes: NodeArrays) -> None:
    """Write the files of a relation under new ids that are missing, each in one pass for each window of the result.

    `RefusedError` names an offset or an entry that is out of range.
    """
    if writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *old.edge_data))):
        return
    sizes = old.sizes(nodes.sizes)
    sizes.require(folder, nodes.budget)
    native.check_indptr(old.indptr, old.indices.shape[0], nodes.threads)
    indptr = native.relabel_indptr(old.indptr, old.dst_old_to_new, nodes.threads)
    if not writer.has(f"{folder}/indptr"):
        writer.put(f"{folder}/indptr", indptr)
    apart = old.dst_old_to_new is not old.src_old_to_new
    for key, values in (("indices", None), *sorted(old.edge_data.items())):
        if writer.has(name := f"{folder}/{key}"):
            continue
        item = sizes.id_bytes if values is None else value_bytes(values)
        dtype = f"int{8 * item}" if values is None else values.dtype.name
        window = sizes.window(nodes.budget, memory_of(old.src_old_to_new), item, indices=values is None)
        with writer.file(name, dtype, (old.indices if values is None else values).shape) as file:
            sources = old.src_old_to_new
            if values is None and sizes.sources_kept(nodes.budget) and file.missing():
                sources = in_memory(sources, nodes.sizes)
            places = old.dst_old_to_new if apart else sources
            entries = _Entries(old, values, indptr, sources, places, item, sizes.piece, nodes.threads, name)
            move([entries], [file], MovePlan(window, 0, ()), file.path, name)


@dataclass
class _Entries:
    """Entries on their way to the order of new columns: `values` by edge, or the sources, which get new ids."""

    old: OldRelation
    values: AnyArray | None
    indptr: AnyArray  # new offsets
    sources: AnyArray  # new id of each source
    places: AnyArray  # new id of each column
    item: int  # bytes of an entry of the result
    piece: int  # bytes of entries, or of the source map, that are read together
    threads: int
    desc: str

    @property
    def reach(self) -> int:
        return self.item - 1

    def fills(self, window: Window) -> bool:
        return window.begin < window.end

    def read(self, windows: Sequence[Window]) -> Iterator[tuple[int, AnyArray]]:
        """Yield the number of the first of some entries, and these."""
        entries = self.old.indices if self.values is None else self.values
        with progress(entries.shape[0], f"{self.desc} from byte {windows[0].begin}", "edge", scale=True) as bar:
            for first, end, (part,) in chunks([entries], max(1, self.piece // value_bytes(entries))):
                yield first, part
                bar.update(end - first)

    def place(self, piece: tuple[int, AnyArray], buffer: WindowBuffer) -> None:
        """Copy entries to their places in a window."""
        first, end = self._span(buffer.window)
        low = int(np.searchsorted(self.indptr, first, "right")) - 1
        high = int(np.searchsorted(self.indptr, end, "left"))
        num_src = self.old.src_old_to_new.shape[0] if self.values is None else None
        at = first, low, self.indptr[low:high], self._entries(buffer)
        place_entries(piece[1], piece[0], self.old.indptr, self.places, num_src, at, self.threads)

    def _span(self, window: Window) -> tuple[int, int]:
        """Return the entries of which a window has a byte, half-open."""
        return window.begin // self.item, -(-window.end // self.item)

    def _entries(self, buffer: WindowBuffer) -> Bytes:
        """Return the memory of all entries that a window has a byte of."""
        first, end = self._span(buffer.window)
        return buffer.span(first * self.item, end * self.item)

    def finish(self, buffer: WindowBuffer) -> None:
        """Give the sources in a window, complete, their new ids."""
        if self.values is not None:
            return
        count, step = self.sources.shape[0], max(1, self.piece // self.sources.itemsize)
        pieces = chunks([self.sources], step if isinstance(self.sources, np.memmap) else max(1, count))
        for first, _, (part,) in pieces:
            native.rename_sources(self._entries(buffer), part, first, count, self.threads)


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
