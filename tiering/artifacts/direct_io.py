"""Positional reads and writes, direct ones too: their alignment, memory and engine."""

from __future__ import annotations

import errno
import mmap
import os
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.storage import storage_errors

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 4096  # bytes that addresses, offsets and lengths of direct I/O are multiples of
LINE = 64  # bytes of a cache line: arrays one behind the other in a file or buffer begin at multiples


def padded(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned_bytes(nbytes: int) -> Bytes:
    """Return zeroed memory for direct I/O, aligned to a page; it is freed with the array."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def open_direct(path: Path) -> int | None:
    """Open a file for direct reads and writes; ``None`` where the file system has none."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return None


def read_all(fd: int, out: memoryview, offset: int) -> None:
    """Fill `out` with the bytes of a file from `offset` on; `StorageError` names a file that fails or ends before."""
    with storage_errors(Path(f"/proc/self/fd/{fd}")):
        while len(out):
            if (done := os.preadv(fd, [out], offset)) == 0:
                raise OSError(errno.EIO, f"ends at byte {offset}, where {offset + len(out)} were expected")
            out, offset = out[done:], offset + done


def write_all(fd: int, data: Bytes, offset: int) -> None:
    """Write all of `data` at `offset`; `StorageError` names the file."""
    view = data.data
    with storage_errors(Path(f"/proc/self/fd/{fd}"), offset + data.size):
        while len(view):
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done


@cache
def direct_engine() -> str:
    """Return the best engine for direct reads on this machine."""
    return "threads" if native.uring_unavailable() else "io_uring"
