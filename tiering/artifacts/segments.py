"""Scratch files of segments: written one after the other, read again in that order, past the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.direct_io import open_direct, padded, write_all
from tiering.artifacts.storage import reserve, storage_errors
from tiering.artifacts.streaming import open_stream
from tiering.native import StreamReader

Bytes = npt.NDArray[np.uint8]

Batch: TypeAlias = tuple[int, int, list[int]]
"""Segments that are read together: where they begin, bytes of all, padded, and bytes of each."""


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

    def read(self, buffers: Sequence[Bytes]) -> Iterator[Bytes]:
        """The segments in order, some read ahead; each is valid until the next but one is asked for.

        Parameters
        ----------
        buffers
            Two of aligned memory, of one size: as many segments as fit, one at least, are read into each.
        """
        batches = list(self._batches(buffers[0].size))
        if not batches:
            return
        reader = open_stream([self.path], buffers)
        with storage_errors(self.path):
            self._ask(reader, batches, 0)
            for number, (_, _, sizes) in enumerate(batches):
                reader.finish()
                at = 0
                for place, nbytes in enumerate(sizes):
                    yield buffers[number % 2][at : at + nbytes]
                    at += padded(nbytes)
                    if place == 0:  # now the buffer of the batch before is free
                        self._ask(reader, batches, number + 1)

    def _ask(self, reader: StreamReader, batches: list[Batch], number: int) -> None:
        """Begin to read a batch, if there is one of that number."""
        if number < len(batches):
            offset, nbytes, _ = batches[number]
            reader.start([(0, offset, nbytes, number % 2, 0)])

    def _batches(self, most: int) -> Iterator[Batch]:
        """Segments that are read together: of `most` bytes, or one."""
        offset = nbytes = 0
        sizes: list[int] = []
        for size in self._sizes:
            if sizes and nbytes + padded(size) > most:
                yield offset, nbytes, sizes
                offset, nbytes, sizes = offset + nbytes, 0, []
            sizes.append(size)
            nbytes += padded(size)
        if sizes:
            yield offset, nbytes, sizes

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
