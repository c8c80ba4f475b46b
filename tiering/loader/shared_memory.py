"""One copy of a tier for all processes of a user: anonymous memory that they hand to each other.

Why not ``/dev/shm``: a file there outlives a killed run and keeps its memory, and containers allow it little. An
anonymous file has no name; the kernel frees it with the last process that holds it, however that ends. The others reach
it through ``/proc/PID/fd``; a card, a file of a few bytes, says whose it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import storage_errors
from tiering.loader.process import Process

Fill = Callable[[npt.NDArray[np.uint8]], None]


class SharedBlock:
    """Bytes that other processes of this user hold too."""

    def __init__(self, card: Path, descriptor: int, nbytes: int) -> None:
        self.descriptor = descriptor
        self.array = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        """uint8, shape (bytes,)."""
        weakref.finalize(self, _leave, card, descriptor, os.getpid())


def _leave(card: Path, descriptor: int, owner: int) -> None:
    """No longer hold a block."""
    if owner != os.getpid():  # a forked child has a copy of the descriptor, and is not on the card
        return
    os.close(descriptor)
    with contextlib.suppress(OSError), _locked(card) as file:
        _write(file, card, [each for each in _read(file) if each.process != Process.this()])


@dataclass(frozen=True)
class _Holder:
    """A process that holds the block, and as which descriptor."""

    process: Process
    descriptor: int


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
    shared = Path("/dev/shm")
    folder = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    prefix = f"tiering-{os.getuid()}-rows-"
    card = folder / f"{prefix}{key}"
    _sweep(folder, prefix)
    with storage_errors(card), _locked(card) as file:
        holders = _read(file)
        block = next((found for each in holders if (found := _join(each, card, nbytes)) is not None), None)
        if block is None:
            holders, block = [], _new(card, nbytes)
            fill(block.array)
        _write(file, card, [*holders, _Holder(Process.this(), block.descriptor)])
    return block


def _sweep(folder: Path, prefix: str) -> None:
    """Remove the cards that killed processes left."""
    for card in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), card.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _read(file):
                card.unlink()


@contextmanager
def _locked(card: Path) -> Iterator[TextIOWrapper]:
    """The card, open and locked against other processes."""
    while True:
        file = os.fdopen(os.open(card, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                current = os.path.samestat(card.stat(), os.fstat(file.fileno()))
            except FileNotFoundError:
                current = False
            if current:  # else it was removed while this process waited
                yield file
                return


def _read(file: TextIOWrapper) -> list[_Holder]:
    """Holders that still run."""
    file.seek(0)
    try:
        entries = [(int(pid), str(started), int(number)) for pid, started, number in json.loads(file.read() or "[]")]
    except ValueError:  # cut off by a full disk: as if nobody held it
        return []
    holders = [_Holder(Process(pid, started), number) for pid, started, number in entries]
    return [each for each in holders if each.process.alive()]


def _write(file: TextIOWrapper, card: Path, holders: list[_Holder]) -> None:
    """Note who holds the block; the card goes with the last."""
    if not holders:
        card.unlink()
        return
    file.seek(0)
    file.truncate()
    json.dump([(each.process.pid, each.process.started, each.descriptor) for each in holders], file)


def _new(card: Path, nbytes: int) -> SharedBlock:
    descriptor = os.memfd_create(card.name)
    try:
        os.ftruncate(descriptor, nbytes)
        return SharedBlock(card, descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise


def _join(holder: _Holder, card: Path, nbytes: int) -> SharedBlock | None:
    """The block of another process, if it still holds it."""
    entry = Path(f"/proc/{holder.process.pid}/fd/{holder.descriptor}")
    try:
        if not str(entry.readlink()).startswith(f"/memfd:{card.name} "):
            return None
        descriptor = os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(descriptor).st_size != nbytes:
        os.close(descriptor)
        return None
    return SharedBlock(card, descriptor, nbytes)
