"""Tiers that lie in memory: read once from the layout's files with large reads, shared within the process."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering.artifacts.held import shown
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError, StorageError
from tiering.loader.process import ForkLock
from tiering.loader.shared_memory import Fill, SharedBlock, shared_block
from tiering.units import format_bytes

_CHUNK = 32 * 1024 * 1024
_READERS = 4
_Key = tuple[int, int, int, int, bool]


class ResidentRows:
    """The bytes of one file in memory. Kept alive by whoever holds it; freed with the last holder."""

    def __init__(self, path: Path | str, array: npt.NDArray[np.uint8]) -> None:
        self.path = path
        self.array = array
        """uint8, shape (bytes,), read-only."""
        self.registration: Any = None
        """Keeps the memory page-locked for GPUs; see `tiering.loader.gpu.locked`."""
        self.block: SharedBlock | None = None
        """Memory of all processes, if it is that."""

    def __del__(self) -> None:
        self.registration = None  # before the memory itself goes


_resident: WeakValueDictionary[_Key, ResidentRows] = WeakValueDictionary()
_lock = ForkLock()


def load_rows(path: Path, nbytes: int, shared: bool = False) -> ResidentRows:
    """Read a file into memory, or share the copy that this process already holds.

    Parameters
    ----------
    path
        Raw rows.
    nbytes
        Size the manifest promises.
    shared
        Also share with the other processes of this user that say so: one copy for all.

    Raises
    ------
    FormatError
        If the file has another size.
    StorageError
        If it cannot be read or memory is short.
    """
    with storage_errors(path):
        status = path.stat()
    if status.st_size != nbytes:
        raise FormatError(f"{shown(path)}: expected {nbytes} bytes, found {status.st_size}; make the layout again")
    key = (status.st_dev, status.st_ino, status.st_mtime_ns, nbytes, shared)
    with _lock:
        rows = _resident.get(key)
        if rows is None:
            rows = _load_shared(path, key) if shared and nbytes else _load_private(path, nbytes)
            rows.array.flags.writeable = False
            _resident[key] = rows
        return rows


def _load_private(path: Path, nbytes: int) -> ResidentRows:
    array = anonymous(nbytes)
    _read_file(path, array)
    return ResidentRows(path, array)


def _load_shared(path: Path, key: _Key) -> ResidentRows:
    block = shared_block("-".join(str(part) for part in key[:4]), key[3], lambda array: _read_file(path, array))
    rows = ResidentRows(path, block.array)
    rows.block = block
    return rows


def made_rows(key: str, nbytes: int, fill: Fill, shared: bool) -> ResidentRows:
    """Memory that `fill` writes; if `shared`, by the first process of this user that asks for `key`."""
    if not shared or not nbytes:
        array = anonymous(nbytes)
        fill(array)
        return ResidentRows(key, array)
    block = shared_block(re.sub(r"[^\w-]", "_", key), nbytes, fill)
    rows = ResidentRows(key, block.array)
    rows.block = block
    return rows


def anonymous(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed page-aligned memory outside the heap, on huge pages where the kernel offers them."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    try:
        block = mmap.mmap(-1, nbytes)
    except OSError as error:
        raise StorageError(error.errno, f"no memory for {format_bytes(nbytes)} of rows: {error.strerror}") from error
    if hasattr(mmap, "MADV_HUGEPAGE") and nbytes >= 4 * 1024 * 1024:
        with contextlib.suppress(OSError):  # a kernel without huge pages: only slower
            block.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(block, np.uint8)


def _read_file(path: Path, array: npt.NDArray[np.uint8]) -> None:
    view, nbytes = array.data, array.size
    with storage_errors(path), path.open("rb", buffering=0) as file:

        def read_chunk(start: int) -> None:
            at, end = start, min(start + _CHUNK, nbytes)
            while at < end:
                got = os.preadv(file.fileno(), [view[at:end]], at)
                if got == 0:
                    raise FormatError(f"{shown(path)}: ends at byte {at}, expected {nbytes}; make the layout again")
                at += got

        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(read_chunk, range(0, nbytes, _CHUNK)))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the rows are ours now: drop the cached copy
