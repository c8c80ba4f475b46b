"""Arrays along nodes, moved into the order of new ids; the sizes of pieces of a reorder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import AnyArray, Bytes, aligned_bytes
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import CHUNK_BYTES
from tiering.formats.features import FeatureTable
from tiering.formats.shape import value_bytes, value_rows
from tiering.formats.tier_rows import TierRows
from tiering.memory import Budget, available_memory
from tiering.run.move import Items, MovePlan, ReadPlan, move_items, plan_moves
from tiering.run.places import Places

Rows: TypeAlias = FeatureTable | EncodedTable | TierRows
"""Rows in a file, perhaps to be encoded, or such as can be read front to back only."""


def source_of(table: Rows) -> FeatureTable | TierRows:
    """Return the table whose rows are read; of rows that are encoded on the way their source."""
    return table.source if isinstance(table, EncodedTable) else table


def moved_bytes(table: Rows) -> int:
    """Return the bytes of a row on its way: in the source or encoded, whichever is more."""
    return max(table.row_bytes, source_of(table).row_bytes)


@dataclass(frozen=True)
class PieceSizes:
    """Sizes of pieces."""

    block: int = BLOCK_BYTES
    """Bytes of a block of a file, of which windows are made: of nothing a smaller part is held."""
    entries: int = 16 << 20  # bytes of a piece in which entries and edge data pass a window
    nodes: int = 1 << 19  # nodes of a piece in which arrays along them pass a window
    node_bytes: int = 64  # bytes that a node of such a piece takes: what is read, twice, and what is made of it
    scores: int = 1 << 18  # scores of a piece where they are ranked a range at a time
    score_bins: int = 1 << 12  # parts a range of scores is counted in
    min_ranked: int = 1 << 16  # least number of nodes that are ranked together
    chunk: int = CHUNK_BYTES  # bytes of a chunk of rows: large sequential reads and writes, bounded memory
    free: int | None = None  # bytes that are free for the page cache; ``None``: as the system says

    @property
    def node_piece(self) -> int:
        """Bytes of the pieces of arrays along nodes, without a window."""
        return self.nodes * self.node_bytes

    @property
    def score_piece(self) -> int:
        """Bytes of a piece of scores: two being read, and keys, bins and masks of one."""
        return self.scores * 80

    def rows(self, row_bytes: int) -> int:
        """Return the rows of a chunk, at least one."""
        return max(1, self.chunk // row_bytes)

    def cached(self, table: Rows) -> bool:
        """Return whether the page cache has room for a table, which lies in one file."""
        free = available_memory() if self.free is None else self.free
        source = source_of(table)
        return isinstance(source, FeatureTable) and source.bytes < free // 2


SIZES = PieceSizes()  # sizes in production; tests use smaller ones


def in_memory(array: AnyArray, sizes: PieceSizes) -> AnyArray:
    """Read an array into memory for reads at random, in huge pages where the system has them."""
    if not isinstance(array, np.memmap):
        return array
    copy: AnyArray = aligned_bytes(array.nbytes).view(array.dtype)
    for first, end, (part,) in chunks([array], sizes.nodes):
        copy[first:end] = part
    return copy


def memory_of(array: AnyArray | None) -> int:
    """Return the bytes of memory that an array takes; none if it is mapped."""
    return 0 if array is None or isinstance(array, np.memmap) else array.nbytes


@dataclass(frozen=True)
class NodeReader:
    """Values along nodes, or the positions of `numbers` themselves, with the number that each gets."""

    values: AnyArray | None
    numbers: AnyArray
    sizes: PieceSizes = SIZES

    @property
    def item_bytes(self) -> int:
        """Bytes of a value."""
        return self.numbers.itemsize if self.values is None else value_bytes(self.values)

    @property
    def reading(self) -> ReadPlan:
        """How the values are read."""
        return plan_nodes(self.numbers.shape[0], self.item_bytes, self.sizes)

    def read(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[Bytes, AnyArray]]:
        """Yield values and numbers of the nodes [begin, end) in pieces."""
        most = self.sizes.node_piece // 4 // self.item_bytes  # two are read, with a number each
        arrays = [self.numbers[begin:end], *([] if self.values is None else [self.values[begin:end]])]
        for first, stop, (numbers, *values) in chunks(arrays, max(1, min(self.sizes.nodes, most))):
            own = values[0] if values else np.arange(begin + first, begin + stop, dtype=self.numbers.dtype)
            yield value_rows(own), np.ascontiguousarray(numbers)


def plan_nodes(count: int, item_bytes: int, sizes: PieceSizes = SIZES) -> ReadPlan:
    """Return how values of so many nodes are read."""
    piece = min(sizes.node_piece, 4 * count * item_bytes)
    return ReadPlan("passes", count, sizes.nodes, piece, piece)


@dataclass(frozen=True)
class NodeArrays:
    """A writer of files along nodes, in the order of new ids."""

    budget: Budget
    sizes: PieceSizes
    threads: int

    def without(self, nbytes: int) -> NodeArrays:
        """Return a writer whose budget is `nbytes` smaller."""
        return replace(self, budget=self.budget.without(nbytes))

    def plan(self, count: int, item_bytes: int) -> MovePlan:
        """Return how a file of so many values is written."""
        own = Places.row_by_row(count, item_bytes), plan_nodes(count, item_bytes, self.sizes)
        return plan_moves([own], self.budget, "arrays along nodes, in pieces,")

    def permuted(self, file: FileWriter, source: AnyArray, old_to_new: AnyArray) -> None:
        """Write `source` in rank order; `old_to_new` is the rank of each of its rows."""
        self._move(file, NodeReader(source, old_to_new, self.sizes))

    def fits(self, nbytes: int) -> bool:
        """Return whether the memory holds an array of so many bytes, and pieces of others."""
        return nbytes + self.sizes.node_piece <= self.budget.left()

    def inverted(self, order: AnyArray) -> AnyArray:
        """Return the inverse of a permutation, in memory."""
        inverse: AnyArray = aligned_bytes(order.nbytes).view(order.dtype)
        for positions, ids in NodeReader(None, order, self.sizes).read(0, order.size):
            native.scatter_rows(positions, ids, 0, value_rows(inverse), self.threads)
        return inverse

    def inverse(self, file: FileWriter, order: AnyArray) -> None:
        """Write the inverse of a permutation."""
        self._move(file, NodeReader(None, order, self.sizes))

    def _move(self, file: FileWriter, reader: NodeReader) -> None:
        items = Items(reader, Places.row_by_row(reader.numbers.shape[0], reader.item_bytes), self.threads)
        move_items([items], [file], self.budget, file.path.with_name(f"{file.path.name}.pieces"), file.path.name)
