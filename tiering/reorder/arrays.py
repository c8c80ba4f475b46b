"""Arrays along nodes, brought into the order of new ids window after window; the sizes of pieces of a reorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import AnyArray, Bytes, aligned_bytes, open_raw
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import CHUNK_BYTES
from tiering.formats.features import FeatureTable
from tiering.formats.shape import value_rows
from tiering.formats.tier_rows import TierRows
from tiering.memory import Budget, available_memory

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
    """Bytes of a block of a file: windows are whole blocks, and of nothing a smaller part is held."""
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

    def rows(self, row_bytes: int, multiple: int = 1) -> int:
        """Return the rows of a chunk, rounded down to a multiple of `multiple`, at least one multiple."""
        return max(1, self.chunk // row_bytes // multiple) * multiple

    def piece_rows(self, table: Rows) -> int:
        """Return the rows that pass a window at a time, with a rank each."""
        return self.rows(moved_bytes(table) + id_bytes(table.rows))

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


def rows_of_blocks(file: FileWriter, blocks: range, row_bytes: int) -> tuple[int, int]:
    """Return the first row that has a byte in the blocks, and the end."""
    return file.span(blocks.start)[0] // row_bytes, -(-file.span(blocks.stop - 1)[1] // row_bytes)


@dataclass(frozen=True)
class NodeWindows:
    """Writes files along nodes from arrays in another order, read front to back once for each window of the result."""

    budget: Budget
    sizes: PieceSizes
    threads: int

    def without(self, nbytes: int) -> NodeWindows:
        """Return windows whose budget is `nbytes` smaller."""
        return replace(self, budget=self.budget.without(nbytes))

    @property
    def room(self) -> int:
        """Bytes left for windows."""
        return self.budget.left() - self.sizes.node_piece

    def count(self, nbytes: int) -> int:
        """Return the windows that a file of `nbytes` is made in."""
        block = self.sizes.block
        return -(-nbytes // max(block, self.room // block * block))

    def permuted(self, file: FileWriter, source: AnyArray, old_to_new: AnyArray) -> None:
        """Write `source` in rank order; `old_to_new` is the rank of each of its rows."""
        whole = value_rows(source)

        def fill(first: int, window: Bytes) -> None:
            for _, (part, ranks) in self._pieces([whole, old_to_new], whole.shape[1]):
                native.scatter_rows(part, ranks, first, window, self.threads)

        self.make(file, whole.shape[1], fill)

    def inverse(self, file: FileWriter, order: AnyArray) -> AnyArray | None:
        """Write the inverse of a permutation; return it if it was made at once."""

        def fill(first: int, window: Bytes) -> None:
            for begin, (ids,) in self._pieces([order], order.itemsize):
                ranks = np.arange(begin, begin + ids.size, dtype=order.dtype)
                native.scatter_rows(value_rows(ranks), ids, first, window, self.threads)

        whole = self.make(file, order.itemsize, fill)
        return None if whole is None else whole.view(order.dtype)

    def offsets(self, file: FileWriter, indptr: AnyArray, old_to_new: AnyArray) -> None:
        """Write the offsets of the columns under their new ids; `indptr` is sound."""

        def fill(first: int, window: Bytes) -> None:
            """Write degrees behind their columns, and sum them up from the last value of an earlier window."""
            sums, last = window.reshape(-1).view(np.int64), int(indptr[0])
            for _, (ends, places) in self._pieces([indptr[1:], old_to_new], 8):
                degrees = np.diff(ends, prepend=last)
                last = int(ends[-1])
                native.scatter_rows(value_rows(degrees), places, first - 1, window, self.threads)
            if first:
                sums[0] += open_raw(file.path, np.dtype(np.int64), indptr.shape)[first - 1]
            np.cumsum(sums, out=sums)

        self.make(file, 8, fill)

    def _pieces(self, arrays: Sequence[AnyArray], row_bytes: int) -> Iterator[tuple[int, list[AnyArray]]]:
        """Yield the number of the first entry, and the entries, of every piece of the arrays."""
        most = self.sizes.node_piece // 4 // row_bytes  # two are read, with a rank each
        for first, _, parts in chunks(arrays, max(1, min(self.sizes.nodes, most))):
            yield first, parts

    def make(
        self, file: FileWriter, row_bytes: int, fill: Callable[[int, Bytes], None],
        fits: Callable[[range], bool] | None = None,
    ) -> Bytes | None:  # fmt: skip
        """Write the missing blocks: ``fill(first, window)`` makes rows; return the window if it was the only one."""
        for blocks in file.missing_ranges(fits or (lambda blocks: len(blocks) * file.block_bytes <= self.room)):
            begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
            first, end = rows_of_blocks(file, blocks, row_bytes)
            memory = aligned_bytes((end - first) * row_bytes)
            fill(first, memory.reshape(-1, row_bytes))
            file.write(blocks.start, memory[begin - first * row_bytes : stop - first * row_bytes])
            if stop - begin == file.nbytes:
                return memory
            del memory  # before the next is taken
        return None
