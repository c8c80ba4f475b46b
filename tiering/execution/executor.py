"""Where shards are made: the seam between what a stage computes and who runs it.

The shards of a file are the blocks of its checksum: a grid that the plan fixes, whatever the memory, the threads or the
machines. A shard is committed when it is written and journalled, and writing it twice gives the same bytes. So anybody
who can read a stage's inputs may make any shard; an executor decides who makes which, and how many together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tiering.artifacts.blocks import BlockFile
from tiering.artifacts.checksum import BLOCK_BYTES


class Executor(Protocol):
    """Makes the missing shards of a file."""

    def run(self, file: BlockFile, fits: Callable[[range], bool], make: Callable[[range], None]) -> None:
        """Have `make` called for ranges of consecutive missing shards until none is missing.

        Parameters
        ----------
        file
            What is made; ``make(shards)`` commits the shards to it.
        fits
            Whether these shards can be made together; a single one is made in any case.
        make
            Makes shards, from inputs that do not change; the bytes do not depend on how shards are put together.
        """


class LocalExecutor:
    """Makes shards in this process, in order, as many together as fit."""

    def run(self, file: BlockFile, fits: Callable[[range], bool], make: Callable[[range], None]) -> None:
        """See `Executor.run`."""
        while missing := file.missing():
            make(_together(missing, fits))


def _together(missing: Sequence[int], fits: Callable[[range], bool]) -> range:
    """The longest run of the first missing shards that fits, one at least."""
    first = end = missing[0]
    for shard in missing:
        if shard != end or (shard > first and not fits(range(first, shard + 1))):
            break
        end = shard + 1
    return range(first, end)


@dataclass(frozen=True)
class Window:
    """Shards of a file whose entries lie column after column, as entries and columns."""

    begin: int
    """First byte of the shards."""
    stop: int
    """Their end in bytes."""
    first: int
    """First entry that has a byte in the window."""
    end: int
    """End of the entries."""
    columns: range
    """Columns with entries in the window; the first and the last may reach beyond it."""

    @classmethod
    def of(cls, file: BlockFile, shards: range, item: int, indptr: npt.NDArray[np.int64]) -> Window:
        """The window of some shards, entries of `item` bytes each.

        Parameters
        ----------
        indptr
            int64, shape (columns + 1,): where each column begins.
        """
        begin, stop = file.span(shards.start)[0], file.span(shards.stop - 1)[1]
        first, end = begin // item, -(-stop // item)
        low = int(np.searchsorted(indptr, first, "right")) - 1
        return cls(begin, stop, first, end, range(low, int(np.searchsorted(indptr, end, "left"))))

    def memory(self, item: int) -> int:
        """Bytes to make it: its entries, and 8 for each column."""
        return (self.end - self.first) * item + 8 * len(self.columns)

    def bytes_of(self, entries: npt.NDArray[np.uint8], item: int) -> npt.NDArray[np.uint8]:
        """What of the bytes of its entries belongs to the shards."""
        return entries[self.begin - self.first * item : self.stop - self.first * item]


def count_windows(entries: int, columns: int, item: int, room: int) -> int:
    """How many windows `LocalExecutor` makes a file in, columns of equal length assumed; for predictions.

    Parameters
    ----------
    entries, columns
        Of the file; `item` bytes an entry.
    room
        Bytes of memory for a window.
    """
    nbytes = entries * item
    shard = BLOCK_BYTES + 8 * columns * min(1.0, BLOCK_BYTES / max(1, nbytes)) + item
    shards = -(-nbytes // BLOCK_BYTES)
    return -(-shards // max(1, int(room // shard)))


LOCAL = LocalExecutor()
"""The executor of this process."""
