"""Arrays that run along nodes, brought into the order of new ids: window after window, as large as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.reader import chunks
from tiering.artifacts.storage import aligned_bytes, open_raw
from tiering.formats.shape import value_rows
from tiering.memory import Budget
from tiering.reorder.sizes import Sizes

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


def in_memory(array: AnyArray, sizes: Sizes) -> AnyArray:
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
class NodeWindows:
    """Writes files whose entries run along nodes, from arrays that do so in another order.

    The arrays are read front to back, once for each window of the result; once where all of it fits in memory.
    """

    budget: Budget
    sizes: Sizes
    threads: int

    def without(self, nbytes: int) -> NodeWindows:
        """Return the same windows with `nbytes` of the budget taken."""
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

        self._make(file, whole.shape[1], fill)

    def inverse(self, file: FileWriter, order: AnyArray) -> AnyArray | None:
        """Write the inverse of a permutation; return it if it was made at once."""

        def fill(first: int, window: Bytes) -> None:
            for begin, (ids,) in self._pieces([order], order.itemsize):
                ranks = np.arange(begin, begin + ids.size, dtype=order.dtype)
                native.scatter_rows(value_rows(ranks), ids, first, window, self.threads)

        whole = self._make(file, order.itemsize, fill)
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

        self._make(file, 8, fill)

    def _pieces(self, arrays: Sequence[AnyArray], row_bytes: int) -> Iterator[tuple[int, list[AnyArray]]]:
        """Yield the number of the first entry, and the entries, of every piece of the arrays."""
        most = self.sizes.node_piece // 4 // row_bytes  # two are read, with a rank each
        for first, _, parts in chunks(arrays, max(1, min(self.sizes.nodes, most))):
            yield first, parts

    def _make(self, file: FileWriter, row_bytes: int, fill: Callable[[int, Bytes], None]) -> Bytes | None:
        """Write the missing blocks: ``fill(first, window)`` makes rows; return the window if it was the only one."""
        for blocks in file.missing_ranges(lambda blocks: len(blocks) * file.block_bytes <= self.room):
            begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
            first, end = begin // row_bytes, -(-stop // row_bytes)
            memory = aligned_bytes((end - first) * row_bytes)
            fill(first, memory.reshape(-1, row_bytes))
            file.write(blocks.start, memory[begin - first * row_bytes : stop - first * row_bytes])
            if stop - begin == file.nbytes:
                return memory
            del memory  # before the next is taken
        return None
