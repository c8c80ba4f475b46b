"""Read arrays in files front to back, past the page cache: the next chunk arrives while one is worked on.

A file that lies in the page cache already is read from there; everything else by direct reads, many in flight, from all
the disks that hold the arrays at once.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes, direct_engine
from tiering.artifacts.storage import storage_errors
from tiering.artifacts.verify import Verifier

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_PADDING = 8192
"""Bytes of a buffer beyond its chunk: direct reads begin and end at multiples of 4096."""
_SHARE_SAMPLES = 256
"""Pages looked at to estimate how much of a file is cached."""
_SAMPLES = 16
"""Pages of a file that must all be in the page cache for it to count as cached."""


def open_stream(paths: Sequence[Path], buffers: Sequence[Bytes]) -> native.StreamReader:
    """A reader of ranges of files into buffers, by the best engine here."""
    with storage_errors(paths[0]):
        return native.StreamReader([str(path) for path in paths], list(buffers), direct_engine())


def buffer_bytes(arrays: Sequence[AnyArray], *, cached: bool = False) -> int:
    """Bytes that `Streamed` holds for each entry of a chunk: two chunks of what is read from files, else 0.

    With `cached`, also of files that the page cache holds now: it may give way.
    """
    return 2 * sum(region.stride for region in _regions(arrays, cached))


def uncached_bytes(array: AnyArray) -> int:
    """Bytes of an array that the page cache does not hold, by a sample of its pages: what reading a map of it costs."""
    region = _region(0, array)
    if region is None or array.shape[0] == 0:
        return 0
    found = list(_cached_pages(region, int(array.shape[0]), _SHARE_SAMPLES))
    return round(found.count(False) / len(found) * region.span(0, int(array.shape[0]))[1])


def bytes_on_disk(arrays: Sequence[AnyArray]) -> int:
    """Bytes that `Streamed` reads from disks for these arrays; those in memory or in the page cache cost none."""
    size = int(arrays[0].shape[0]) if arrays else 0
    return sum(region.span(0, size)[1] for region in _regions(arrays)) if size else 0


class Streamed:
    """Arrays of one length, read in chunks along their first axis; those in memory are left alone.

    Parameters
    ----------
    arrays
        Arrays with as many entries; memory maps of any stride and offset, views of them, or arrays in memory.
    step
        Entries of a chunk.

    Notes
    -----
    Memory: `buffer_bytes` for each entry of a chunk. A part is valid until the next is asked for.
    """

    def __init__(self, arrays: Sequence[AnyArray], step: int) -> None:
        self.arrays, self.step = list(arrays), step
        self.size = int(arrays[0].shape[0]) if arrays else 0
        self._regions = _regions(arrays)
        self._reader: native.StreamReader | None = None
        self._buffers: list[Bytes] = []

    def __iter__(self) -> Iterator[tuple[int, int, list[AnyArray]]]:
        """First entry, end, and that part of each array."""
        if self._regions and self.size and self._reader is None:
            self._open()
        with (
            storage_errors(self._regions[0].path if self._regions else Path()),
            ThreadPoolExecutor(1) as background,  # asking for a large chunk takes a while
        ):
            asked = background.submit(self._start, 0, 0)
            for turn, first in enumerate(range(0, self.size, self.step)):
                asked.result()
                places = self._finish()
                self._verify(first, turn % 2, places)
                asked = background.submit(self._start, first + self.step, 1 - turn % 2)
                end = min(self.size, first + self.step)
                yield first, end, [self._part(k, first, end, turn % 2, places) for k in range(len(self.arrays))]
                if self._reader is not None and not self._reader.direct:
                    self._give_back(first, end)

    def _open(self) -> None:
        paths = sorted({region.path for region in self._regions})
        self._files = [paths.index(region.path) for region in self._regions]
        step = min(self.step, self.size)
        for _ in range(2):
            self._buffers += [aligned_bytes(step * region.stride + _PADDING) for region in self._regions]
        self._reader = open_stream(paths, self._buffers)

    def _start(self, first: int, turn: int) -> None:
        """Begin to read the chunk at `first` into buffers 0 or 1 of each region."""
        if self._reader is None or first >= self.size:
            return
        end = min(self.size, first + self.step)
        count = len(self._regions)
        self._reader.start(
            [
                (file, *region.span(first, end), turn * count + number, 0)
                for number, (file, region) in enumerate(zip(self._files, self._regions, strict=True))
            ]
        )

    def _finish(self) -> list[int]:
        return [] if self._reader is None else self._reader.finish()

    def _verify(self, first: int, turn: int, places: list[int]) -> None:
        """Let those that must hold what was read have a look at it."""
        for number, (region, place) in enumerate(zip(self._regions, places, strict=False)):
            if region.verifier is not None:
                offset, nbytes = region.span(first, min(self.size, first + self.step))
                buffer = self._buffers[turn * len(self._regions) + number]
                region.verifier.passed(offset, buffer[place : place + nbytes].data)

    def _give_back(self, first: int, end: int) -> None:
        """Let the page cache forget a chunk, where the file system has no direct reads."""
        for region in self._regions:
            with region.path.open("rb") as file:
                os.posix_fadvise(file.fileno(), *region.span(first, end), os.POSIX_FADV_DONTNEED)

    def _part(self, k: int, first: int, end: int, turn: int, places: list[int]) -> AnyArray:
        array = self.arrays[k]
        for number, region in enumerate(self._regions):
            if k in region.members:
                buffer = self._buffers[turn * len(self._regions) + number]
                at = places[number] + region.members[k]
                part: AnyArray = np.ndarray(
                    (end - first, *array.shape[1:]), array.dtype, buffer.data, at, array.strides
                )
                return part
        return array[first:end]

    def __enter__(self) -> Streamed:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._reader = None
        self._buffers = []


@dataclass
class _Region:
    """Bytes of a file that some of the arrays view; entry i lies at offset + i * stride."""

    path: Path
    offset: int
    stride: int
    width: int
    """Bytes of an entry that are viewed, from the first to the last."""
    members: dict[int, int]
    """Arrays, by number, and where in an entry they begin."""
    verifier: Verifier | None = None
    """Compares what is read with the checksums of the file."""

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Offset and number of the bytes of entries [first, end)."""
        return self.offset + first * self.stride, (end - 1 - first) * self.stride + self.width

    def join(self, other: _Region) -> bool:
        """Take `other` in if it views the same entries: columns of one table are read once."""
        begin = min(self.offset, other.offset)
        width = max(self.offset + self.width, other.offset + other.width) - begin
        if other.path != self.path or other.stride != self.stride or width > self.stride:
            return False
        self.members = {k: at + self.offset - begin for k, at in self.members.items()}
        self.members |= {k: at + other.offset - begin for k, at in other.members.items()}
        self.offset, self.width = begin, width
        return True


def _regions(arrays: Sequence[AnyArray], cached: bool = False) -> list[_Region]:
    """What must be read from files for these arrays; with `cached`, also what the page cache holds."""
    found: list[_Region] = []
    for k, array in enumerate(arrays):
        region = _region(k, array)
        if region is not None and not any(other.join(region) for other in found):
            found.append(region)
    return [region for region in found if cached or not _cached(region, int(arrays[0].shape[0]))]


def _region(k: int, array: AnyArray) -> _Region | None:
    """The file behind a view of a memory map that runs forwards; ``None`` for arrays in memory."""
    root: Any = array
    found = root if isinstance(root, np.memmap) else None
    while isinstance(root, np.ndarray):
        if isinstance(root, np.memmap) and getattr(root, "_mmap", None) is not None:
            found = root
        root = root.base
    if found is None or found.filename is None or array.ndim == 0 or array.size == 0:
        return None
    width = array.itemsize + sum((n - 1) * s for n, s in zip(array.shape[1:], array.strides[1:], strict=True))
    if array.strides[0] < width or min(array.strides) <= 0:
        return None
    # An offset that is no multiple of the page is where numpy says all the same: its mapping begins earlier.
    offset = found.offset + array.ctypes.data - found.ctypes.data
    verifier = getattr(found, "verifier", None)
    return _Region(Path(str(found.filename)), offset, int(array.strides[0]), width, {k: 0}, verifier)


def _cached(region: _Region, size: int) -> bool:
    """Whether the page cache holds the region, by a sample of its pages."""
    if size and region.span(0, size)[1] <= mmap.PAGESIZE * _SAMPLES:
        return True  # not worth a ring
    return size > 0 and all(_cached_pages(region, size, _SAMPLES))


def _cached_pages(region: _Region, size: int, samples: int) -> Iterator[bool]:
    """Whether pages of a region are in the page cache; as if none were where there is no telling.

    Asking for a page that is missing brings it in: so take no more answers than are needed, and look elsewhere each
    time.
    """
    if not hasattr(os, "RWF_NOWAIT"):
        yield False
        return
    begin, nbytes = region.span(0, size)
    with storage_errors(region.path):
        fd = os.open(region.path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # a page that is missing must not bring others
            for part in range(samples):
                yield _page_cached(fd, begin + int((part + random.random()) / samples * nbytes))
        finally:
            os.close(fd)


def _page_cached(fd: int, offset: int) -> bool:
    try:
        return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return False
        raise
