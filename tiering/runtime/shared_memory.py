"""One copy of a tier for all processes of a user: anonymous memory that they hand to each other.

Why not ``/dev/shm``: a file there outlives a killed run and keeps its memory, and containers allow it little. An
anonymous file has no name; the kernel frees it with the last process that holds it, however that ends. The others reach
it through ``/proc/PID/fd``; a small file says whose it is.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.io.storage import storage_errors
from tiering.runtime.process import Process

Fill = Callable[[npt.NDArray[np.uint8]], None]


class SharedBlock:
    """Bytes that other processes of this user hold too."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self.descriptor = descriptor
        self.array = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        """uint8, shape (bytes,)."""

    def __del__(self) -> None:
        os.close(self.descriptor)


def shared_block(key: str, nbytes: int, fill: Fill) -> SharedBlock:
    """The block that goes by `key`: another process's if one holds it, else a new one.

    Parameters
    ----------
    key
        Says what the bytes are: same key, same bytes. Letters, digits, ``-``.
    nbytes
        Size, at least 1.
    fill
        Writes the bytes, if no process holds them. Others that ask meanwhile wait.

    Raises
    ------
    StorageError
        If memory is short.
    """
    name = f"tiering-{os.getuid()}-{key}"
    shared = Path("/dev/shm")
    card = (shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())) / name
    with storage_errors(card), os.fdopen(os.open(card, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holders = [each for each in _read(file.read()) if Process(each[0], each[1]).alive()]
        block = next((found for each in holders if (found := _join(each, name, nbytes)) is not None), None)
        if block is None:
            holders = []
            descriptor = os.memfd_create(name)
            try:
                os.ftruncate(descriptor, nbytes)
                block = SharedBlock(descriptor, nbytes)
            except BaseException:
                if block is None:
                    os.close(descriptor)
                raise
            fill(block.array)
        me = Process.this()
        holders.append((me.pid, me.started, block.descriptor))
        file.seek(0)
        file.truncate()
        json.dump(holders, file)
    return block


def _read(text: str) -> list[tuple[int, str, int]]:
    try:
        return [(int(pid), str(started), int(descriptor)) for pid, started, descriptor in json.loads(text or "[]")]
    except ValueError:  # cut off by a full disk: as if nobody held it
        return []


def _join(holder: tuple[int, str, int], name: str, nbytes: int) -> SharedBlock | None:
    """The block of another process, if it still holds it."""
    entry = Path(f"/proc/{holder[0]}/fd/{holder[2]}")
    try:
        if not str(entry.readlink()).startswith(f"/memfd:{name} "):
            return None
        descriptor = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(descriptor).st_size != nbytes:
        os.close(descriptor)
        return None
    return SharedBlock(descriptor, nbytes)
