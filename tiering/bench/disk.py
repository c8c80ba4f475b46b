"""The disk's own limit: bytes read and written past the page cache, several requests side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.direct_io import ALIGNMENT, aligned_bytes, open_direct, write_all
from tiering.artifacts.storage import reserve, storage_errors

Bytes = npt.NDArray[np.uint8]

_PIECE = 16 << 20
_WORKERS = 4


def read_seconds(paths: Iterable[Path]) -> float:
    """Seconds to read files whole, directly where the file system allows it."""
    start = time.perf_counter()
    for path in paths:
        size = path.stat().st_size
        with storage_errors(path):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
            except OSError:
                fd = os.open(path, os.O_RDONLY)
        try:
            _in_pieces(size, partial(_read, fd))
        finally:
            os.close(fd)
    return time.perf_counter() - start


def write_seconds(path: Path, nbytes: int) -> float:
    """Seconds to write as many bytes to a file whose space is reserved, and to sync it; the file is removed."""
    nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
    reserve(path, nbytes)
    fd = open_direct(path)
    fd = os.open(path, os.O_RDWR) if fd is None else fd
    try:
        start = time.perf_counter()
        _in_pieces(nbytes, lambda at, buffer: write_all(fd, buffer[: min(_PIECE, nbytes - at)], at))
        os.fsync(fd)
        return time.perf_counter() - start
    finally:
        os.close(fd)
        path.unlink()


def forget(paths: Iterable[Path]) -> None:
    """Take files out of the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _read(fd: int, at: int, buffer: Bytes) -> None:
    os.preadv(fd, [buffer.data], at)


def _in_pieces(nbytes: int, work: Callable[[int, Bytes], object]) -> None:
    buffers = [aligned_bytes(_PIECE) for _ in range(_WORKERS)]
    for buffer in buffers:
        buffer.fill(1)

    def run(worker: int) -> None:
        for at in range(worker * _PIECE, nbytes, _WORKERS * _PIECE):
            work(at, buffers[worker])

    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(run, range(_WORKERS)))
