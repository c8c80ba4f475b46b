"""Reads and writes past the page cache: their alignment, their memory, and the engine that serves them here."""

from __future__ import annotations

import mmap
import os
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native

ALIGNMENT = 4096
"""Of addresses, offsets and lengths in direct I/O."""


def padded(nbytes: int) -> int:
    """`nbytes` up to the next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Memory for direct I/O: uint8, zeros, aligned to a page; given back when the array is dropped."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def open_direct(path: Path) -> int | None:
    """The file opened for direct reads and writes; ``None`` where the file system has none."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return None


def write_all(fd: int, data: npt.NDArray[np.uint8], offset: int) -> None:
    """Write all of `data` at `offset`, in as many calls as the system takes."""
    view = data.data
    while len(view):
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


@cache
def direct_engine() -> str:
    """The best engine for reads past the page cache here."""
    return "threads" if native.uring_unavailable() else "io_uring"
