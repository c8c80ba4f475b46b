"""Scratch files of segments: written one after the other, read again in that order, past the page cache."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.io.blocks import ALIGNMENT, aligned_bytes, open_direct, write_all
from tiering.io.storage import reserve, storage_errors

Bytes = npt.NDArray[np.uint8]

_READERS = 4
"""Segments read side by side: enough for an SSD."""


def padded(nbytes: int) -> int:
    """Bytes of a segment on disk: up to the next 4096."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class SegmentFile:
    """A scratch file of known size.

    Parameters
    ----------
    path
        File to create.
    nbytes
        Most bytes of all segments, each counted as `padded` says; reserved at once.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path, self.size = path, 0
        self._sizes: list[int] = []
        reserve(path, nbytes)
        self._fd = open_direct(path)
        if self._fd is None:
            with storage_errors(path):
                self._fd = os.open(path, os.O_RDWR)

    def append(self, data: Bytes, nbytes: int) -> None:
        """Write a segment of `nbytes`; `data` is aligned memory of `padded` size, the rest of it without meaning."""
        self.write(data, self.add(nbytes))

    def add(self, nbytes: int) -> int:
        """Where the next segment, of `nbytes`, is to be written: it may be later, and by another thread."""
        offset = self.size
        self._sizes.append(nbytes)
        self.size += padded(nbytes)
        return offset

    def write(self, data: Bytes, offset: int) -> None:
        """Write an added segment; `data` as in `append`."""
        with storage_errors(self.path, offset + data.size):
            write_all(self._descriptor(), data, offset)

    def read(self, memory: int) -> Iterator[Bytes]:
        """The segments in order, some read ahead; each is valid until the next but one is asked for.

        Parameters
        ----------
        memory
            Bytes to read ahead at the most, where that is more than two segments.
        """
        largest = padded(max(self._sizes, default=0))
        depth = max(2, min(2 * _READERS, memory // max(1, largest)))
        buffers = [aligned_bytes(largest) for _ in range(depth)]
        with ThreadPoolExecutor(min(_READERS, depth)) as pool:
            jobs: deque[Future[Bytes]] = deque()
            offset = 0
            for number, nbytes in enumerate(self._sizes):
                if len(jobs) == depth - 1:  # the buffer after those in flight is the caller's
                    yield jobs.popleft().result()
                jobs.append(pool.submit(self._read_segment, buffers[number % depth], offset, nbytes))
                offset += padded(nbytes)
            while jobs:
                yield jobs.popleft().result()

    def _read_segment(self, buffer: Bytes, offset: int, nbytes: int) -> Bytes:
        wanted, done = padded(nbytes), 0
        with storage_errors(self.path):
            while done < nbytes:
                got = os.preadv(self._descriptor(), [buffer[done:wanted].data], offset + done)
                if got == 0:
                    raise OSError(5, "the scratch file ends early")
                done += got
        return buffer[:nbytes]

    def _descriptor(self) -> int:
        if self._fd is None:
            raise OSError(9, "the scratch file is closed")
        return self._fd

    def remove(self) -> None:
        """Close and delete the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self.path.unlink(missing_ok=True)
