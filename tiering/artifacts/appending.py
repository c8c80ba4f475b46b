"""A large file of blocks, filled front to back: pieces of any size in, whole blocks out, written in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np
import numpy.typing as npt

from tiering.artifacts.blocks import BlockFile, aligned_bytes
from tiering.artifacts.checksum import BLOCK_BYTES

Bytes = npt.NDArray[np.uint8]

BUFFERS = 2
"""Blocks in memory: one is filled while one is written."""


class BlockAppender:
    """Fills a `BlockFile`; a context manager that waits for the last block.

    Blocks that are there already are passed over, and so are blocks of which a part was skipped: they stay missing.

    Parameters
    ----------
    file
        The file.
    begin
        Byte that the first piece begins at.

    Notes
    -----
    Memory: two blocks.
    """

    def __init__(self, file: BlockFile, begin: int = 0) -> None:
        self._file, self._at = file, begin
        self._whole_from = begin
        self._missing = set(file.missing())
        self._buffers = [aligned_bytes(min(BLOCK_BYTES, file.nbytes)) for _ in range(BUFFERS)]
        self._jobs: list[Future[None] | None] = [None] * BUFFERS
        self._turn = 0
        self._pool = ThreadPoolExecutor(1)

    def append(self, data: Bytes) -> None:
        """Add bytes (one axis, contiguous)."""
        while data.size:
            block = self._at // BLOCK_BYTES
            begin, end = self._file.span(block)
            size = min(data.size, end - self._at)
            if block in self._missing:
                self._buffers[self._turn][self._at - begin : self._at - begin + size] = data[:size]
            data = data[size:]
            self._at += size
            if self._at == end:
                self._flush(block, begin, end)

    def skip(self, nbytes: int) -> None:
        """Leave bytes out."""
        self._at += nbytes
        self._whole_from = self._at

    def _flush(self, block: int, begin: int, end: int) -> None:
        if block not in self._missing or self._whole_from > begin:
            return
        self._jobs[self._turn] = self._pool.submit(self._file.write, block, self._buffers[self._turn][: end - begin])
        self._turn = (self._turn + 1) % BUFFERS
        self._wait(self._turn)

    def _wait(self, turn: int) -> None:
        job, self._jobs[turn] = self._jobs[turn], None
        if job is not None:
            job.result()

    def __enter__(self) -> BlockAppender:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                for turn in range(BUFFERS):
                    self._wait(turn)
        finally:
            self._pool.shutdown()
            self._buffers = []
