"""Large files made front to back in blocks of 64 MiB: journalled, past the page cache, written in the background."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.errors import InternalError
from tiering.io.blocks import BlockFile, aligned_bytes
from tiering.io.journal import Journal
from tiering.io.storage import storage_errors

PIECE_BYTES = 8 * 1024 * 1024
"""Written at once; a block is a whole number of pieces."""
_PIECES = 3
"""Pieces in memory: one is filled while two are written."""
_WRITERS = 2


def appending_memory(nbytes: int) -> int:
    """Memory that a file of `nbytes` takes while it is written."""
    return min(_PIECES * PIECE_BYTES, nbytes)


class AppendedFile(BlockFile):
    """A file of known size being written front to back; a context manager that closes it.

    What an earlier run has written stays: `done` says from where on bytes are wanted.

    Parameters
    ----------
    path, nbytes, journal, key
        As of `BlockFile`.

    Notes
    -----
    Memory: `appending_memory`, from the first byte to the last.
    """

    def __init__(self, path: Path, nbytes: int, journal: Journal | None = None, key: str = "") -> None:
        super().__init__(path, nbytes, journal, key)
        missing = self.missing()
        self.done = self.span(missing[0])[0] if missing else nbytes
        """Bytes from the front that need not come again."""
        self._end, self._filled = self.done, 0
        self._piece = min(PIECE_BYTES, self.block_bytes)
        self._buffers: list[npt.NDArray[np.uint8]] = []
        self._writes: list[Future[None] | None] = [None] * _PIECES
        self._unsealed: list[Future[None]] = []
        self._seals: list[Future[None]] = []
        self._hash, self._current = xxhash.xxh3_64(), 0
        self._pool = ThreadPoolExecutor(_WRITERS)

    def append(self, offset: int, values: np.ndarray[Any, Any]) -> None:
        """Take the bytes of an array, which belong at `offset`; those that are there already are passed over.

        Calls follow each other without a gap. Errors of the disk may show in a later call.
        """
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if offset > self._end or offset + data.size > self.nbytes:
            raise InternalError(f"{self.path}: {data.size} bytes at {offset} do not follow {self._end}")
        data = data[self._end - offset :]
        with storage_errors(self.path, self.nbytes):
            while data.size:
                buffer = self._buffer()
                count = min(self._piece - self._filled, data.size)
                buffer[self._filled : self._filled + count] = data[:count]
                data, self._filled, self._end = data[count:], self._filled + count, self._end + count
                if self._filled == self._piece or self._end == self.nbytes:
                    self._flush(buffer[: self._filled])

    def _buffer(self) -> npt.NDArray[np.uint8]:
        """The piece being filled, once its last write is through."""
        if not self._buffers:
            size = min(self._piece, self.nbytes - self._end)
            self._buffers = [aligned_bytes(size) for _ in range(_PIECES if size == self._piece else 1)]
        last, self._writes[self._current] = self._writes[self._current], None
        if last is not None:
            last.result()
        return self._buffers[self._current]

    def _flush(self, data: npt.NDArray[np.uint8]) -> None:
        """Hand a piece to the writers; at the end of a block, its seal too."""
        self._hash.update(data.data)
        write = self._pool.submit(self._put, data, self._end - data.size)
        self._writes[self._current] = write
        self._unsealed.append(write)
        self._current, self._filled = (self._current + 1) % len(self._buffers), 0
        if self._end % self.block_bytes == 0 or self._end == self.nbytes:
            block = (self._end - 1) // self.block_bytes
            before = [*self._seals[-1:], *self._unsealed]  # in order, so that no block is recorded after a hole
            self._seals.append(self._pool.submit(self._seal, block, self._hash.digest(), before))
            self._hash, self._unsealed = xxhash.xxh3_64(), []
            while len(self._seals) > 1:
                self._seals.pop(0).result()
        if self._end == self.nbytes:
            self._finish()

    def _seal(self, block: int, digest: bytes, before: Iterable[Future[None]]) -> None:
        """Sync a block and record it. What it waits for is ahead in the queue, so the waiting ends."""
        for job in before:
            job.result()
        with storage_errors(self.path, self.nbytes):
            os.fdatasync(self._file)
        self._record(block, digest)

    def _finish(self) -> None:
        """Wait for the last block, and give the memory back."""
        for seal in self._seals:
            seal.result()
        self._stop()

    def _stop(self) -> None:
        self._pool.shutdown()
        self._buffers, self._seals = [], []

    def __enter__(self) -> AppendedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._stop()
        super().__exit__(kind, value, trace)
