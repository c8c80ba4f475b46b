"""Memory for rows: tiers, read once and shared by a process or a group of one machine; outputs, which are reused."""

from __future__ import annotations

import ctypes
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import aligned_bytes, display_path, read_all, storage_errors
from tiering.errors import FormatError, StorageError
from tiering.loader.process import ForkLock
from tiering.loader.processes.peers import Fill, PeerGroup
from tiering.text.units import format_bytes

_CHUNK = 32 * 1024 * 1024
_READERS = 4
_STEPS = 8  # per doubling, to which sizes are rounded up, so that a batch fits the block of an earlier one
_POOLED = 1 << 20  # bytes from which on outputs are pooled; smaller ones come from the heap


class SharedBlock:
    """A block of memory that tables share; freed with the last user."""

    def __init__(self, path: Path | str, array: npt.NDArray[np.uint8]) -> None:
        self.path = path
        self.array = array
        """uint8, shape (bytes,), read-only."""
        self.registration: Any = None
        """Keeps the memory pinned for GPUs; see `tiering.loader.gpu.device.pinned_address`."""

    def __del__(self) -> None:
        self.registration = None  # before the memory itself goes


_resident: WeakValueDictionary[tuple[Any, ...], SharedBlock] = WeakValueDictionary()
_lock = ForkLock()


def load_rows(path: Path, nbytes: int, group: PeerGroup | None = None) -> SharedBlock:
    """Return the `nbytes` of a file in memory: read now, or the copy of this process or group."""
    with storage_errors(path):
        status = path.stat()
    if status.st_size != nbytes:
        name, size = display_path(path), status.st_size
        raise FormatError(f"{name}: expected {nbytes} bytes, found {size}; make the layout again")
    key = (status.st_dev, status.st_ino, status.st_mtime_ns, nbytes)
    return get_or_fill(path, key, nbytes, lambda array: _read_file(path, array), group)


def get_or_fill(
    what: Path | str, key: tuple[Any, ...], nbytes: int, fill: Fill, group: PeerGroup | None
) -> SharedBlock:
    """Return the block of `key` of this process or group, which `fill` writes if there is none."""
    with _lock:
        known = (*key, group is not None)
        # A group's block serves this process alone, too: where one of several evaluates, it needs no second copy.
        rows = _resident.get(known) or _resident.get((*key, True))
        if rows is None:
            if group is None or not nbytes:
                array = anonymous(nbytes)
                fill(array)
            else:
                array = group.host_memory("-".join(str(part) for part in key), nbytes, fill)
            array.flags.writeable = False
            _resident[known] = rows = SharedBlock(what, array)
        return rows


def is_cached(key: tuple[Any, ...]) -> bool:
    """Return whether this process has the block of `key`, its own or its group's."""
    return (*key, False) in _resident or (*key, True) in _resident


def anonymous(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return zeroed page-aligned private memory outside the heap, on huge pages where the kernel offers them."""
    try:
        return aligned_bytes(nbytes)
    except OSError as error:
        raise StorageError(error.errno, f"no memory for {format_bytes(nbytes)} of rows: {error.strerror}") from error


def _read_file(path: Path, array: npt.NDArray[np.uint8]) -> None:
    view, nbytes = array.data, array.size
    with storage_errors(path), path.open("rb", buffering=0) as file, ThreadPoolExecutor(_READERS) as pool:
        starts = range(0, nbytes, _CHUNK)
        list(pool.map(lambda start: read_all(file.fileno(), view[start : start + _CHUNK], start), starts))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # the rows are ours now: drop the cached copy


def rounded_up(count: int) -> int:
    """Return the next of 1, 2, .., 8, 9, .., 16, 18, .., 32, 36, ..: eight steps in each doubling."""
    step = 1 << max(0, (count - 1).bit_length() - _STEPS.bit_length())
    return max(1, -(-count // step) * step)


class OutputPool:
    """A pool of blocks of memory, which come back when the last array over them goes; no more than the peak."""

    def __init__(self) -> None:
        self._free: list[npt.NDArray[np.uint8]] = []
        self._lent = self._most = 0
        self._lock = ForkLock()

    @property
    def free_bytes(self) -> int:
        """Bytes of free blocks."""
        return sum(block.size for block in self._free)

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return an array, uint8, shape (nbytes,), not initialized."""
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
            block = anonymous(size)
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
