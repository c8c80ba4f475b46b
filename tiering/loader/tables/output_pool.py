"""Memory for gathered rows that is reused: the first touch of fresh memory costs more than the copy into it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tiering.loader.process import ForkLock
from tiering.loader.tables.resident import anonymous

_STEPS = 8  # per doubling, to which sizes are rounded up, so that a batch fits the block of an earlier one
_POOLED = 1 << 20  # bytes from which on outputs are pooled; smaller ones come from the heap


def rounded_up(count: int) -> int:
    """Return the next of 1, 2, .., 8, 9, .., 16, 18, .., 32, 36, ..: eight steps in each doubling."""
    step = 1 << max(0, (count - 1).bit_length() - _STEPS.bit_length())
    return max(1, -(-count // step) * step)


class OutputPool:
    """A pool of blocks of memory, which come back when the last array over them goes; no more than the peak."""

    def __init__(self, make: Callable[[int], npt.NDArray[np.uint8]] = anonymous) -> None:
        self._make = make
        self._free: list[npt.NDArray[np.uint8]] = []
        self._lent = self._most = 0
        self._lock = ForkLock()

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks."""
        return sum(block.size for block in self._free)

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return an array, uint8, shape (nbytes,), not initialised."""
        if nbytes < _POOLED:
            return np.empty(nbytes, np.uint8)
        with self._lock:
            fitting = [i for i, block in enumerate(self._free) if nbytes <= block.size <= 2 * nbytes]
            best = min(fitting, key=lambda i: self._free[i].size, default=None)
            block = None if best is None else self._free.pop(best)
            size = rounded_up(nbytes) if block is None else block.size
            self._lent += size
            self._most = max(self._most, self._lent)
            self._trim()
        if block is None:
            block = self._make(size)
        lease = (ctypes.c_uint8 * nbytes).from_address(block.ctypes.data)
        weakref.finalize(lease, self._give_back, block).atexit = False
        array: npt.NDArray[np.uint8] = np.frombuffer(lease, np.uint8)  # type: ignore[call-overload]
        return array

    def _give_back(self, block: npt.NDArray[np.uint8]) -> None:
        with self._lock:
            self._lent -= block.size
            self._free.append(block)
            self._trim()

    def _trim(self) -> None:
        """Free the blocks that came back longest ago, while there are too many."""
        while self._free and self.free_bytes + self._lent > self._most:
            self._free.pop(0)
