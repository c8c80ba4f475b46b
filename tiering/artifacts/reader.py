"""The one way to read large files: direct reads of uncached pages, the next chunk while one is used."""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from tiering import native
from tiering.artifacts.checksum import Verifier
from tiering.artifacts.storage import (
    AnyArray,
    Bytes,
    aligned_bytes,
    direct_engine,
    open_descriptor,
    open_direct,
    open_raw,
    padded,
    reserve,
    write_all,
)

T = TypeVar("T")
U = TypeVar("U")

_PADDING = 8192  # bytes of a buffer beyond its chunk: direct reads begin and end at multiples of 4096
_FRACTION_SAMPLES = 256  # pages sampled to estimate which fraction of a file is cached
_SAMPLES = 16  # pages of a file that must all be in the page cache for it to count as cached


def prefetch(load: Callable[[T], U], items: Iterable[T]) -> Generator[U, None, None]:
    """Yield ``load(item)`` in order; a thread loads the next meanwhile: two buffers, used in turn, suffice."""
    pool, following = ThreadPoolExecutor(1), cast("Future[U] | None", None)
    try:
        for item in items:
            current, following = following, pool.submit(load, item)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()
    finally:
        pool.shutdown(cancel_futures=True)


def open_stream(paths: Sequence[Path], buffers: Sequence[Bytes]) -> native.StreamReader:
    """Open files for direct reads of ranges into buffers, by the best engine here."""
    return native.StreamReader([str(path) for path in paths], list(buffers), direct_engine())


def buffer_bytes(arrays: Sequence[AnyArray], *, cached: bool = False) -> int:
    """Return the buffer bytes of `chunks` for each entry of a chunk; with `cached`, also of cached files."""
    return 2 * sum(region.stride for region in _find_regions(arrays, cached))


def uncached_bytes(array: AnyArray) -> int:
    """Return the bytes of a mapped array that the page cache does not hold, estimated from a sample of its pages."""
    region = _find_region(0, array)
    if region is None or array.shape[0] == 0:
        return 0
    pages = list(_sample_pages(region, int(array.shape[0]), _FRACTION_SAMPLES))
    return round(pages.count(False) / len(pages) * region.span(0, int(array.shape[0]))[1])


def bytes_on_disk(arrays: Sequence[AnyArray]) -> int:
    """Return the bytes that `chunks` reads from disks for these arrays; memory and page cache cost none."""
    size = int(arrays[0].shape[0]) if arrays else 0
    return sum(region.span(0, size)[1] for region in _find_regions(arrays)) if size else 0


def chunks(arrays: Sequence[AnyArray], step: int) -> Iterator[tuple[int, int, list[AnyArray]]]:
    """Yield chunks of `step` entries of arrays of one length: first entry, end, that part of each array.

    Arrays are memory maps of any stride and offset, or in memory. A part is valid until the next is requested. What is
    read from a file with checksums is verified. Memory: `buffer_bytes` for each entry of a chunk.
    """
    size = int(arrays[0].shape[0]) if arrays else 0
    regions = _find_regions(arrays) if size else []
    read = _open_regions(arrays, regions, min(step, size)) if regions else None

    def load(first: int) -> tuple[int, int, list[AnyArray]]:
        end = min(size, first + step)
        parts = [array[first:end] for array in arrays]
        if read is not None:
            read(first, end, parts)
        return first, end, parts

    firsts = range(0, size, step)
    yield from prefetch(load, firsts) if regions else map(load, firsts)


def _open_regions(
    arrays: Sequence[AnyArray], regions: list[_Region], step: int
) -> Callable[[int, int, list[AnyArray]], None]:
    """Return the function that reads entries [first, end) into two buffers in turn, and replaces mapped `parts`."""
    paths = sorted({region.path for region in regions})
    buffers = [aligned_bytes(step * region.stride + _PADDING) for _ in range(2) for region in regions]
    reader = open_stream(paths, buffers)

    def read(first: int, end: int, parts: list[AnyArray]) -> None:
        spans, buffer = [region.span(first, end) for region in regions], first // step % 2 * len(regions)
        files = enumerate(zip(regions, spans, strict=True), buffer)
        reader.start([(paths.index(region.path), *span, number, 0) for number, (region, span) in files])
        for number, position in enumerate(reader.finish()):
            region, (offset, nbytes), memory = regions[number], spans[number], buffers[buffer + number]
            if region.verifier is not None:
                region.verifier.update(offset, memory[position : position + nbytes].data)
            for k, at in region.members.items():
                parts[k] = np.ndarray(parts[k].shape, arrays[k].dtype, memory.data, position + at, arrays[k].strides)
            if not reader.direct:  # the page cache need not keep what was copied
                with open_descriptor(region.path) as fd:
                    os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_DONTNEED)

    return read


@dataclass
class _Region:
    """Bytes of a file that some of the arrays view; entry i lies at offset + i * stride."""

    path: Path
    offset: int
    stride: int
    width: int  # bytes of an entry that are viewed, from the first to the last
    members: dict[int, int]  # arrays, by number, and where in an entry they begin
    verifier: Verifier | None = None  # compares what is read with the checksums of the file

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return offset and number of the bytes of entries [first, end)."""
        return self.offset + first * self.stride, (end - 1 - first) * self.stride + self.width

    def join(self, other: _Region) -> bool:
        """Merge `other` if it views the same entries: columns of one table are read once."""
        begin = min(self.offset, other.offset)
        width = max(self.offset + self.width, other.offset + other.width) - begin
        if other.path != self.path or other.stride != self.stride or width > self.stride:
            return False
        self.members = {k: at + self.offset - begin for k, at in self.members.items()}
        self.members |= {k: at + other.offset - begin for k, at in other.members.items()}
        self.offset, self.width = begin, width
        return True


def _find_regions(arrays: Sequence[AnyArray], cached: bool = False) -> list[_Region]:
    """Return the file regions to read for the arrays; with `cached`, also the regions that the page cache holds."""
    regions: list[_Region] = []
    for k, array in enumerate(arrays):
        region = _find_region(k, array)
        if region is not None and not any(other.join(region) for other in regions):
            regions.append(region)
    return [region for region in regions if cached or not _is_cached(region, int(arrays[0].shape[0]))]


def _find_region(k: int, array: AnyArray) -> _Region | None:
    """Return the file region behind a view of a memory map that runs forwards; ``None`` for arrays in memory."""
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
    """Return the map of a file that an array is, or is a view of; ``None`` for arrays in memory."""
    base: Any = array
    mapped = base if isinstance(base, np.memmap) else None
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and getattr(base, "_mmap", None) is not None:
            mapped = base
        base = base.base
    return None if mapped is None or mapped.filename is None else mapped


def find_mapping(array: AnyArray) -> tuple[Path, int] | None:
    """Return the file that a contiguous array is mapped from, and the position of its first byte; else ``None``."""
    address = np.asarray(array).ctypes.data
    if array.nbytes == 0:
        return None
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        bounds, _, offset, _, inode, *path = line.split(maxsplit=5)
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        if begin <= address < end:
            return (Path(path[0]), int(offset, 16) + address - begin) if path and inode != "0" else None
    return None


def map_again(array: AnyArray, path: Path) -> tuple[AnyArray, int | None]:
    """Return an array that a library mapped from `path` as a read-only `np.memmap`, and its position, if mapped."""
    file, offset = find_mapping(array) or (None, 0)
    if file is None or min(array.strides, default=0) < 0 or not path.exists() or not path.samefile(file):
        return array, None
    if offset % array.itemsize:
        return array.copy(), None
    span = 1 + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) // array.itemsize
    flat = open_raw(path, array.dtype, (span,), offset)
    return np.ndarray(array.shape, array.dtype, flat, strides=array.strides), offset


def offset_in(mapped: np.memmap[Any, Any], array: AnyArray) -> int:
    """Return the offset in bytes, in the file of a map, of a view of that map."""
    # An offset that is no multiple of the page is where numpy says all the same: its mapping begins earlier.
    return int(mapped.offset + array.ctypes.data - mapped.ctypes.data)


def entry_width(itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the bytes from the first to the last of an entry along the first axis."""
    return itemsize + sum((n - 1) * s for n, s in zip(shape[1:], strides[1:], strict=True))


def _is_cached(region: _Region, size: int) -> bool:
    """Return whether the page cache holds the region, by a sample of its pages."""
    small = region.span(0, size)[1] <= mmap.PAGESIZE * _SAMPLES  # direct reads would not pay
    return size > 0 and (small or all(_sample_pages(region, size, _SAMPLES)))


def _sample_pages(region: _Region, size: int, samples: int) -> Iterator[bool]:
    """Yield whether random pages of a region are in the page cache; a request for a missing page brings it in."""
    begin, nbytes = region.span(0, size)
    with open_descriptor(region.path) as fd:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # a page that is missing must not bring others
        for part in range(samples):
            offset = begin + int((part + random.random()) / samples * nbytes)
            try:
                yield os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                    raise
                yield False


class SegmentFile:
    """A scratch file of at most `nbytes`, reserved at once; each segment counts as `padded` says."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path, self.size = path, 0
        self._sizes: list[int] = []
        reserve(path, nbytes)
        direct = open_direct(path)
        self._fd = os.open(path, os.O_RDWR) if direct is None else direct

    def add(self, nbytes: int) -> int:
        """Return the offset of the next segment, of `nbytes`; it may be written later, and by another thread."""
        offset = self.size
        self._sizes.append(nbytes)
        self.size += padded(nbytes)
        return offset

    def write(self, data: Bytes, offset: int) -> None:
        """Write an added segment: aligned memory of its padded size, of which the rest is without meaning."""
        write_all(self._fd, data, offset)

    def read(self, buffers: Sequence[Bytes]) -> Iterator[Bytes]:
        """Yield the segments in order, each valid until the next, read ahead into two aligned `buffers` of one size."""
        batches, end = list[list[tuple[int, int]]](), 0  # offset and bytes of segments that are read together
        for nbytes in self._sizes:
            if not batches or end + padded(nbytes) - batches[-1][0][0] > buffers[0].size:
                batches.append([])
            batches[-1].append((end, nbytes))
            end += padded(nbytes)
        reader = open_stream([self.path], buffers)

        def load(number: int) -> list[Bytes]:
            batch, memory = batches[number], buffers[number % 2]
            begin, (last, size) = batch[0][0], batch[-1]
            reader.start([(0, begin, last + padded(size) - begin, number % 2, 0)])
            reader.finish()
            return [memory[offset - begin : offset - begin + nbytes] for offset, nbytes in batch]

        for segments in prefetch(load, range(len(batches))):
            yield from segments

    def remove(self) -> None:
        """Close and remove the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.path.unlink(missing_ok=True)
