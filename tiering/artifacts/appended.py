"""Large files made front to back in blocks of 64 MiB: journalled, past the page cache, written in the background."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.artifacts.blocks import BlockFile, aligned_bytes
from tiering.artifacts.journal import Journal
from tiering.artifacts.storage import storage_errors
from tiering.errors import InternalError

PIECE_BYTES = 8 * 1024 * 1024
"""Written at once; a block is a whole number of pieces."""
_PIECES = 4
"""Pieces in memory: one is filled while three are written."""
_WRITERS = 3
_UNSEALED = 8
"""Blocks that may wait for their seal: those that wait share one sync."""


def appending_memory(nbytes: int, piece: int = PIECE_BYTES) -> int:
    """Memory that a file of `nbytes` takes while it is written in pieces."""
    return min(_PIECES * piece, nbytes)


class AppendedFile(BlockFile):
    """A file of known size being written front to back; a context manager that closes it.

    What an earlier run has written stays: `done` says from where on bytes are wanted.

    Parameters
    ----------
    path, nbytes, journal, key
        As of `BlockFile`.
    piece
        Bytes written at once: a power of two.

    Notes
    -----
    Memory: `appending_memory`, from the first byte to the last.
    """

    def __init__(
        self, path: Path, nbytes: int, journal: Journal | None = None, key: str = "", piece: int = PIECE_BYTES
    ) -> None:
        super().__init__(path, nbytes, journal, key)
        missing = self.missing()
        self.done = self.span(missing[0])[0] if missing else nbytes
        """Bytes from the front that need not come again."""
        self._end, self._filled = self.done, 0
        self._piece = min(piece, self.block_bytes)
        self._buffers: list[npt.NDArray[np.uint8]] = []
        self._writes: list[Future[None] | None] = [None] * _PIECES
        self._unsealed: list[Future[None]] = []
        self._waiting: deque[tuple[int, bytes, list[Future[None]]]] = deque()
        self._seals: list[Future[None]] = []
        self._torn = False
        self._hash, self._current = xxhash.xxh3_64(), 0
        self._pool, self._sealer = ThreadPoolExecutor(_WRITERS), ThreadPoolExecutor(1)

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
            self._waiting.append((block, self._hash.digest(), self._unsealed))
            self._seals.append(self._sealer.submit(self._seal))
            self._hash, self._unsealed = xxhash.xxh3_64(), []
            while len(self._seals) > _UNSEALED:
                self._seals.pop(0).result()
        if self._end == self.nbytes:
            self._finish()

    def _seal(self) -> None:
        """Sync the blocks that wait and record them, in order; none after one that was not written."""
        blocks = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not blocks or self._torn:
            return
        self._torn = True
        for _, _, writes in blocks:
            for job in writes:
                job.result()
        with storage_errors(self.path, self.nbytes):
            os.fdatasync(self._file)
        for block, digest, _ in blocks:
            self._record(block, digest)
        self._torn = False

    def _finish(self) -> None:
        """Wait for the last block, and give the memory back."""
        for seal in self._seals:
            seal.result()
        self._stop()

    def _stop(self) -> None:
        self._pool.shutdown()
        self._sealer.shutdown()
        self._buffers, self._seals = [], []

    def __enter__(self) -> AppendedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._stop()
        super().__exit__(kind, value, trace)
