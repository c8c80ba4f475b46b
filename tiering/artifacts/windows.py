"""Windows of a file: its blocks are made in any order, as many at a time as memory allows.

The blocks are those of the file's checksum: a grid that the plan fixes, whatever the memory, the threads or machine.
Every block is a function of the plan and its number, and is committed when it is written and journalled: made twice, or
together with others, it has the same bytes. So whoever can read a stage's inputs may make any block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter


def make_missing(file: FileWriter, fits: Callable[[range], bool], make: Callable[[range], None]) -> None:
    """Have `make` called for ranges of consecutive missing blocks, in order, until none is missing.

    Parameters
    ----------
    file
        What is made; ``make(blocks)`` commits the blocks to it.
    fits
        Whether these blocks can be made together; a single one is made in any case.
    make
        Makes blocks, from inputs that do not change; the bytes do not depend on how blocks are put together.
    """
    while missing := file.missing():
        make(_together(missing, fits))


def _together(missing: Sequence[int], fits: Callable[[range], bool]) -> range:
    """The longest run of the first missing blocks that fits, one at least."""
    first = end = missing[0]
    for block in missing:
        if block != end or (block > first and not fits(range(first, block + 1))):
            break
        end = block + 1
    return range(first, end)


@dataclass(frozen=True)
class Window:
    """Blocks of a file whose entries lie column after column, as entries and columns."""

    begin: int
    """First byte of the blocks."""
    stop: int
    """Their end in bytes."""
    first: int
    """First entry that has a byte in the window."""
    end: int
    """End of the entries."""
    columns: range
    """Columns with entries in the window; the first and the last may reach beyond it."""

    @classmethod
    def of(cls, file: FileWriter, blocks: range, item: int, indptr: npt.NDArray[np.int64]) -> Window:
        """The window of some blocks, entries of `item` bytes each.

        Parameters
        ----------
        indptr
            int64, shape (columns + 1,): where each column begins.
        """
        begin, stop = file.span(blocks.start)[0], file.span(blocks.stop - 1)[1]
        first, end = begin // item, -(-stop // item)
        low = int(np.searchsorted(indptr, first, "right")) - 1
        return cls(begin, stop, first, end, range(low, int(np.searchsorted(indptr, end, "left"))))

    def memory(self, item: int) -> int:
        """Bytes to make it: its entries, and 8 for each column."""
        return (self.end - self.first) * item + 8 * len(self.columns)

    def bytes_of(self, entries: npt.NDArray[np.uint8], item: int) -> npt.NDArray[np.uint8]:
        """What of the bytes of its entries belongs to the blocks."""
        return entries[self.begin - self.first * item : self.stop - self.first * item]


def count_windows(entries: int, columns: int, item: int, room: int) -> int:
    """How many windows `make_missing` makes a file in, columns of equal length assumed; for predictions.

    Parameters
    ----------
    entries, columns
        Of the file; `item` bytes an entry.
    room
        Bytes of memory for a window.
    """
    nbytes = entries * item
    block = checksum.BLOCK_BYTES + 8 * columns * min(1.0, checksum.BLOCK_BYTES / max(1, nbytes)) + item
    blocks = -(-nbytes // checksum.BLOCK_BYTES)
    return -(-blocks // max(1, int(room // block)))
