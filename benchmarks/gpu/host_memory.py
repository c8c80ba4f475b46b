"""Tables in pinned host memory, on huge pages or small ones, and what is known of the pages behind them."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tiering import cuda
from tiering.loader.gpu.device import Device, pinned_address
from tiering.loader.tables.resident import SharedBlock, anonymous
from tiering.text.units import format_bytes

HUGE, SMALL = "huge", "small"
_BLOCK = 1 << 26
"""Bytes drawn at random; every other block of a table is this one with another number added to its words."""
_PIECE = 128 << 20
_STEP = 0x9E3779B97F4A7C15
"""Odd, so that no two blocks have a word in common at the same place."""
_TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class PinnedRows:
    """Random bytes in pinned host memory, and where the GPU finds them.

    `pages`: ``huge`` asks the kernel for huge pages, which it may not have; ``small`` asks for none.
    """

    def __init__(self, device: Device, nbytes: int, seed: int, pages: str = HUGE) -> None:
        array = anonymous(nbytes) if pages == HUGE else _on_small_pages(nbytes)
        block = np.frombuffer(np.random.default_rng(seed).bytes(min(_BLOCK, -(-nbytes // 8) * 8)), np.uint64)

        def fill(k: int) -> None:
            part = array[k * _BLOCK : (k + 1) * _BLOCK]
            whole = part.size // 8
            np.add(block[:whole], np.uint64(k * _STEP % 2**64), out=part[: 8 * whole].view(np.uint64))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(-(-nbytes // _BLOCK))))
        self._array, self._owner = array, SharedBlock("rows of a benchmark", array)
        self.address = pinned_address(self._owner, device.index, "rows of a benchmark in host memory")

    def rows(self, rows: int, row_bytes: int, offset: int = 0) -> Tensor:
        """Return the rows of float32 from byte `offset` on; a view."""
        part = self._array[offset : offset + rows * row_bytes]
        return torch.from_numpy(part.view(np.float32).reshape(rows, row_bytes // 4))

    def huge_share(self) -> float | None:
        """Return the fraction of the memory on huge pages; ``None`` where the kernel does not say."""
        begin = self._array.ctypes.data
        try:
            found = huge_bytes(Path("/proc/self/smaps").read_text(), begin, begin + self._array.nbytes)
        except OSError:
            return None
        return round(found / self._array.nbytes, 3)


def _on_small_pages(nbytes: int) -> npt.NDArray[np.uint8]:
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages has small ones
            block.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(block, np.uint8)


def huge_bytes(smaps: str, begin: int, end: int) -> int:
    """Return bytes on huge pages between two addresses, by the text of ``/proc/PID/smaps``.

    The kernel counts them for each mapping. Of one that reaches beyond the addresses, no more than lies between them
    is taken.
    """
    return sum(min(huge, min(end, last) - max(begin, first)) for first, last, huge in _mappings(smaps)
               if first < end and begin < last)  # fmt: skip


def _mappings(smaps: str) -> Iterator[tuple[int, int, int]]:
    """Yield first address, end, and bytes on huge pages of each mapping."""
    first = last = 0
    for line in smaps.splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = (int(address, 16) for address in found.groups())
        elif found := re.match(r"AnonHugePages: +(\d+) kB", line):
            yield first, last, 1024 * int(found[1])


def describe_pages() -> dict[str, Any]:
    """Return bytes of a page, and whether the kernel gives huge ones: always, where asked for (madvise), or never."""
    try:
        offered = re.findall(r"\[(\w+)\]", _TRANSPARENT.read_text())
    except OSError:
        offered = []
    return {"page": format_bytes(mmap.PAGESIZE), "huge_pages": offered[0] if offered else "not known"}


class PinnedArray:
    """A copy of an array in pinned host memory."""

    def __init__(self, device: Device, array: npt.NDArray[Any]) -> None:
        copy = anonymous(array.nbytes)
        copy.view(array.dtype)[:] = array
        self._owner = SharedBlock("an array of a benchmark", copy)
        self.address = pinned_address(self._owner, device.index, "an array of a benchmark in host memory")
        """Where the GPU finds it."""


class LinkCopy:
    """Pinned host memory, at least one byte, copied to the GPU piece by piece: no reader over the link is faster."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self._device, self._nbytes, self._piece = device, nbytes, min(nbytes, _PIECE)
        self._memory = PinnedRows(device, self._piece, 0)
        self._room = device.empty((self._piece,), torch.uint8)

    def run(self) -> None:
        """Put the copies on the caller's stream."""
        into, stream = self._room.data_ptr(), self._device.current()
        for begin in range(0, self._nbytes, self._piece):
            nbytes = min(self._piece, self._nbytes - begin)
            cuda.copy(self._device.index, into, self._memory.address, nbytes, stream)
