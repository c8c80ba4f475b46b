"""Large files made in blocks of 64 MiB, in any order: what a stage makes of data that does not fit in memory.

The blocks are those of the checksum. A block that was written is synced, hashed and journalled, so a killed run goes on
from the blocks that are there. Writes go past the page cache where the file system allows it.
"""

from __future__ import annotations

import mmap
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from tiering.artifacts.checksum import BLOCK_BYTES, block_digest
from tiering.artifacts.journal import Journal
from tiering.artifacts.storage import reserve, storage_errors
from tiering.errors import InternalError

ALIGNMENT = 4096
"""Of addresses, offsets and lengths in direct I/O."""
_WRITERS = 4
"""Blocks written side by side: enough for an SSD."""


class BlockFile:
    """A file of known size being written block by block; a context manager that closes it.

    Parameters
    ----------
    path
        File to create. One that an earlier run began is kept if the journal knows it.
    nbytes
        Its size.
    journal
        Where blocks are recorded, or ``None``.
    key
        Name of the file in the journal.
    """

    def __init__(self, path: Path, nbytes: int, journal: Journal | None = None, key: str = "") -> None:
        self.path, self.nbytes = path, nbytes
        self.block_bytes = BLOCK_BYTES
        self.num_blocks = -(-nbytes // BLOCK_BYTES)
        self._journal, self._key = journal, f"blocks {key} "
        self._lock = threading.Lock()
        self._digests: dict[int, bytes] = {}
        self._reopen()
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR)
            self._direct = open_direct(path)

    def _reopen(self) -> None:
        known = [] if self._journal is None else self._journal.keys(self._key)
        if known and self.path.is_file() and self.path.stat().st_size == self.nbytes:
            for key in known:
                facts = (self._journal and self._journal.get(key)) or {}
                self._digests[int(key.removeprefix(self._key))] = bytes.fromhex(facts["digest"])
        else:
            if self._journal is not None:
                self._journal.forget(*known)
            reserve(self.path, self.nbytes)

    def missing(self) -> list[int]:
        """Blocks that are still to be written, ascending."""
        return [block for block in range(self.num_blocks) if block not in self._digests]

    def span(self, block: int) -> tuple[int, int]:
        """First byte and end of a block."""
        return block * BLOCK_BYTES, min(self.nbytes, (block + 1) * BLOCK_BYTES)

    def write(self, first: int, data: npt.NDArray[np.uint8]) -> None:
        """Write consecutive whole blocks, the first of them `first`; they are on disk when this returns.

        Parameters
        ----------
        data
            uint8, one axis, contiguous. Aligned to 4096 bytes it is written past the page cache.
        """
        end = first * BLOCK_BYTES + data.size
        if end > self.nbytes or (data.size % BLOCK_BYTES and end != self.nbytes):
            raise InternalError(f"{self.path}: {data.size} bytes from block {first} on are no whole blocks")
        blocks = range(first, -(-end // BLOCK_BYTES))
        with storage_errors(self.path, self.nbytes), ThreadPoolExecutor(_WRITERS) as pool:
            pieces = [data[offset : offset + BLOCK_BYTES] for offset in range(0, data.size, BLOCK_BYTES)]
            digests = list(pool.map(self._write_block, blocks, pieces))
            os.fdatasync(self._file)
        for block, digest in zip(blocks, digests, strict=True):
            self._record(block, digest)

    def _write_block(self, block: int, data: npt.NDArray[np.uint8]) -> bytes:
        self._put(data, block * BLOCK_BYTES)
        return block_digest(data.data)

    def _put(self, data: npt.NDArray[np.uint8], offset: int) -> None:
        """Write at a multiple of 4096, past the page cache where that is possible."""
        whole = 0
        if self._direct is not None and data.ctypes.data % ALIGNMENT == 0:
            whole = data.size // ALIGNMENT * ALIGNMENT
            write_all(self._direct, data[:whole], offset)
        write_all(self._file, data[whole:], offset + whole)

    def _record(self, block: int, digest: bytes) -> None:
        """Note a block that is on disk."""
        self._digests[block] = digest
        if self._journal is not None:
            self._journal.record(f"{self._key}{block}", digest=digest.hex())

    def digests(self) -> bytes:
        """Digests of all blocks, once none is missing; equals `tiering.artifacts.checksum.file_digests`."""
        if missing := self.missing():
            raise InternalError(f"{self.path}: {len(missing)} of {self.num_blocks} blocks were not written")
        return b"".join(self._digests[block] for block in range(self.num_blocks))

    def close(self) -> None:
        """Close the file."""
        for fd in (self._file, self._direct):
            if fd is not None:
                os.close(fd)
        self._file, self._direct = -1, None

    def __enter__(self) -> BlockFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()


def aligned_bytes(nbytes: int) -> npt.NDArray[np.uint8]:
    """Memory for direct I/O: uint8, zeros, aligned to a page; given back when the array is dropped."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def open_direct(path: Path) -> int | None:
    """The file opened for direct writes; ``None`` where the file system has none."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return None


def write_all(fd: int, data: npt.NDArray[np.uint8], offset: int) -> None:
    view = data.data
    while len(view):
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
