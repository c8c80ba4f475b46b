"""Read mapped arrays front to back without filling the page cache: ask for what comes next, give back what is past."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]


class Streamed:
    """Arrays of one length, read in chunks along their first axis; those in memory are left alone.

    Parameters
    ----------
    arrays
        Arrays with as many entries; memory maps of any stride and offset, views of them, or arrays in memory.
    step
        Entries of a chunk.
    """

    def __init__(self, arrays: Sequence[AnyArray], step: int) -> None:
        self.arrays, self.step = list(arrays), step
        self.size = int(arrays[0].shape[0]) if arrays else 0
        self._files = [file for each in self.arrays if (file := _MappedFile.of(each)) is not None]

    def __iter__(self) -> Iterator[tuple[int, int, list[AnyArray]]]:
        """First entry, end, and that part of each array."""
        self._want(0)
        for first in range(0, self.size, self.step):
            end = min(self.size, first + self.step)
            self._want(end)
            yield first, end, [array[first:end] for array in self.arrays]
            for file in self._files:
                file.drop(first, end)

    def _want(self, first: int) -> None:
        for file in self._files:
            file.want(first, min(self.size, first + self.step))

    def __enter__(self) -> Streamed:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        for file in self._files:
            file.close()


class _MappedFile:
    """The bytes in a file that an array views."""

    def __init__(self, root: np.memmap[Any, Any], array: AnyArray) -> None:
        self._mapping: mmap.mmap = root._mmap  # type: ignore[attr-defined]
        self._fd = os.open(str(root.filename), os.O_RDONLY)
        # The mapping begins at the page that holds the root's offset.
        self._map_start = root.offset - root.offset % mmap.ALLOCATIONGRANULARITY
        self._begin = root.offset + array.ctypes.data - root.ctypes.data
        self._stride = int(array.strides[0])

    @classmethod
    def of(cls, array: AnyArray) -> _MappedFile | None:
        """The file behind a view of a memory map that runs forwards; else ``None``."""
        root: Any = array
        found = root if isinstance(root, np.memmap) else None
        while isinstance(root, np.ndarray):
            if isinstance(root, np.memmap) and getattr(root, "_mmap", None) is not None:
                found = root
            root = root.base
        if found is None or found.filename is None or array.ndim == 0 or array.size == 0 or array.strides[0] <= 0:
            return None
        return cls(found, array)

    def _range(self, first: int, end: int) -> tuple[int, int]:
        return self._begin + first * self._stride, (end - first) * self._stride

    def want(self, first: int, end: int) -> None:
        """Begin to read entries [first, end)."""
        if end > first:
            os.posix_fadvise(self._fd, *self._range(first, end), os.POSIX_FADV_WILLNEED)

    def drop(self, first: int, end: int) -> None:
        """Give the pages of entries [first, end) back."""
        offset, length = self._range(first, end)
        page = mmap.PAGESIZE
        begin = -(-(offset - self._map_start) // page) * page
        stop = min((offset + length - self._map_start) // page * page, len(self._mapping))
        if stop > begin:
            self._mapping.madvise(mmap.MADV_DONTNEED, begin, stop - begin)
            os.posix_fadvise(self._fd, self._map_start + begin, stop - begin, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the descriptor; the mapping stays."""
        os.close(self._fd)
