"""The one way to read large files: past the page cache, by the core's `StreamReader`, the next part while one is used.

- `chunks`: arrays of one length, front to back, whatever each of them is (mapped, a view, in memory). What lies in the
  page cache already is read from there, everything else by direct reads from all disks at once.
- `SegmentFile`: a scratch file of pieces that are written one after the other and read again in that order.
- `open_stream`: ranges of files in an order of the caller's own.
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
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes, direct_engine, open_direct, padded, write_all
from tiering.artifacts.storage import reserve, storage_errors
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
    """Bytes that `chunks` holds for each entry of a chunk: two chunks of what is read from files, else 0.

    With `cached`, also of files that the page cache holds now: it may give way.
    """
    return 2 * sum(region.stride for region in _regions(arrays, cached))


def uncached_bytes(array: AnyArray) -> int:
    """Bytes of an array that the page cache does not hold, by a sample of its pages: what reading a map of it costs."""
    region = _region(0, array)
    if region is None or array.shape[0] == 0:
        return 0
    pages = list(_cached_pages(region, int(array.shape[0]), _SHARE_SAMPLES))
    return round(pages.count(False) / len(pages) * region.span(0, int(array.shape[0]))[1])


def bytes_on_disk(arrays: Sequence[AnyArray]) -> int:
    """Bytes that `chunks` reads from disks for these arrays; those in memory or in the page cache cost none."""
    size = int(arrays[0].shape[0]) if arrays else 0
    return sum(region.span(0, size)[1] for region in _regions(arrays)) if size else 0


def chunks(arrays: Sequence[AnyArray], step: int) -> Iterator[tuple[int, int, list[AnyArray]]]:
    """Arrays of one length along their first axis, `step` entries at a time: first entry, end, that part of each.

    Arrays are memory maps of any stride and offset, views of them, or in memory. A part is valid until the next is
    asked for. Memory: `buffer_bytes` for each entry of a chunk.
    """
    size = int(arrays[0].shape[0]) if arrays else 0
    regions = _regions(arrays)
    reading = _Reading(regions, size, min(step, size)) if regions and size else None
    with (
        storage_errors(regions[0].path if regions else Path()),
        ThreadPoolExecutor(1) as background,  # asking for a large chunk takes a while
    ):
        asked = background.submit(reading.start, 0) if reading else None
        for first in range(0, size, step):
            end = min(size, first + step)
            parts = [array[first:end] for array in arrays]
            if reading and asked:
                asked.result()
                reading.finish(first, arrays, parts)
                asked = background.submit(reading.start, end)
            yield first, end, parts
            if reading:
                reading.give_back(first, end)


class _Reading:
    """Chunks of regions on their way into two buffers for each region, used in turn."""

    def __init__(self, regions: list[_Region], size: int, step: int) -> None:
        self._regions, self._size, self._step = regions, size, step
        paths = sorted({region.path for region in regions})
        self._files = [paths.index(region.path) for region in regions]
        self._buffers = [aligned_bytes(step * region.stride + _PADDING) for _ in range(2) for region in regions]
        self._reader = open_stream(paths, self._buffers)

    def _spans(self, first: int) -> list[tuple[int, int]]:
        return [region.span(first, min(self._size, first + self._step)) for region in self._regions]

    def _buffer(self, first: int) -> int:
        """Number of the first region's buffer for the chunk at `first`."""
        return first // self._step % 2 * len(self._regions)

    def start(self, first: int) -> None:
        """Begin to read the chunk at `first`, if there is one."""
        if first < self._size:
            files = zip(self._files, self._spans(first), strict=True)
            buffer = self._buffer(first)
            self._reader.start([(file, *span, buffer + number, 0) for number, (file, span) in enumerate(files)])

    def finish(self, first: int, arrays: Sequence[AnyArray], parts: list[AnyArray]) -> None:
        """Wait for the chunk at `first`, have it verified, and put what was read in the place of mapped parts."""
        places = self._reader.finish()
        for number, (region, place, span) in enumerate(zip(self._regions, places, self._spans(first), strict=True)):
            buffer = self._buffers[self._buffer(first) + number]
            if region.verifier is not None:
                region.verifier.passed(span[0], buffer[place : place + span[1]].data)
            for k, at in region.members.items():
                dtype, strides = arrays[k].dtype, arrays[k].strides
                parts[k] = np.ndarray(parts[k].shape, dtype, buffer.data, place + at, strides)

    def give_back(self, first: int, end: int) -> None:
        """Let the page cache forget a chunk, where the file system has no direct reads."""
        for region in [] if self._reader.direct else self._regions:
            with region.path.open("rb") as file:
                os.posix_fadvise(file.fileno(), *region.span(first, end), os.POSIX_FADV_DONTNEED)


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
    regions: list[_Region] = []
    for k, array in enumerate(arrays):
        region = _region(k, array)
        if region is not None and not any(other.join(region) for other in regions):
            regions.append(region)
    return [region for region in regions if cached or not _cached(region, int(arrays[0].shape[0]))]


def _region(k: int, array: AnyArray) -> _Region | None:
    """The file behind a view of a memory map that runs forwards; ``None`` for arrays in memory."""
    mapped = mapped_file(array)
    if mapped is None or array.ndim == 0 or array.size == 0:
        return None
    width = entry_width(array.itemsize, array.shape, array.strides)
    if array.strides[0] < width or min(array.strides) <= 0:
        return None
    verifier = getattr(mapped, "verifier", None)
    offset = offset_in(mapped, array)
    return _Region(Path(str(mapped.filename)), offset, int(array.strides[0]), width, {k: 0}, verifier)


def mapped_file(array: AnyArray) -> np.memmap[Any, Any] | None:
    """The map of a file that an array is, or is a view of; ``None`` for arrays in memory."""
    base: Any = array
    mapped = base if isinstance(base, np.memmap) else None
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and getattr(base, "_mmap", None) is not None:
            mapped = base
        base = base.base
    return None if mapped is None or mapped.filename is None else mapped


def offset_in(mapped: np.memmap[Any, Any], array: AnyArray) -> int:
    """Where in the file of a map a view of it begins, in bytes."""
    # An offset that is no multiple of the page is where numpy says all the same: its mapping begins earlier.
    return int(mapped.offset + array.ctypes.data - mapped.ctypes.data)


def entry_width(itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Bytes from the first to the last of an entry along the first axis."""
    return itemsize + sum((n - 1) * s for n, s in zip(shape[1:], strides[1:], strict=True))


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


class SegmentFile:
    """A scratch file of at most `nbytes`, reserved at once; each segment counts as `padded` says."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path, self.size = path, 0
        self._sizes: list[int] = []
        reserve(path, nbytes)
        with storage_errors(path):
            direct = open_direct(path)
            self._fd: int | None = os.open(path, os.O_RDWR) if direct is None else direct

    def add(self, nbytes: int) -> int:
        """Where the next segment, of `nbytes`, is to be written: it may be later, and by another thread."""
        offset = self.size
        self._sizes.append(nbytes)
        self.size += padded(nbytes)
        return offset

    def write(self, data: Bytes, offset: int) -> None:
        """Write an added segment: aligned memory of its padded size, of which the rest is without meaning."""
        with storage_errors(self.path, offset + data.size):
            if self._fd is None:
                raise OSError(errno.EBADF, "the scratch file is closed")
            write_all(self._fd, data, offset)

    def read(self, buffers: Sequence[Bytes]) -> Iterator[Bytes]:
        """The segments in order, some read ahead; each is valid until the next but one is asked for.

        `buffers` are two of aligned memory, of one size: as many segments as fit, one at least, are read into each.
        """
        batches = list(self._batches(buffers[0].size))
        if not batches:
            return
        reader = open_stream([self.path], buffers)

        def ask(number: int) -> None:
            if number < len(batches):
                offset, sizes = batches[number]
                reader.start([(0, offset, sum(map(padded, sizes)), number % 2, 0)])

        with storage_errors(self.path):
            ask(0)
            for number, (_, sizes) in enumerate(batches):
                reader.finish()
                at = 0
                for place, nbytes in enumerate(sizes):
                    yield buffers[number % 2][at : at + nbytes]
                    at += padded(nbytes)
                    if place == 0:  # now the buffer of the batch before is free
                        ask(number + 1)

    def _batches(self, most: int) -> Iterator[tuple[int, list[int]]]:
        """Where segments begin that are read together, and the bytes of each: of `most` bytes, or one."""
        offset, end, sizes = 0, 0, list[int]()
        for size in self._sizes:
            if sizes and end + padded(size) - offset > most:
                yield offset, sizes
                offset, sizes = end, []
            sizes.append(size)
            end += padded(size)
        if sizes:
            yield offset, sizes

    def remove(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self.path.unlink(missing_ok=True)
