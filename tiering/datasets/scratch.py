"""Temporary files for arrays too large for memory, and passes over arrays in chunks."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import storage_errors
from tiering.memory import Budget

CHUNK = 1 << 20  # elements per step of a chunked pass: tens of MiB
IN_MEMORY_BYTES = 256 * 1024 * 1024  # arrays up to this size stay in memory, where that is at most the budget's
IN_MEMORY_SHARE = 1 / 32


def chunks(size: int, step: int | None = None) -> Iterator[slice]:
    """Yield slices of `step` (`CHUNK`) elements that cover 0..size in order."""
    step = step or CHUNK
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def rows_of_chunk(values: npt.NDArray[Any]) -> int:
    """Return the entries along the first axis that a step takes: fewer where they are rows, for as many values."""
    return max(1, CHUNK // max(1, math.prod(values.shape[1:])))


def first_wrong(values: npt.NDArray[Any], is_wrong: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]) -> int | None:
    """Return the position of the first value that `is_wrong` marks, if there is one. Cost: one pass."""
    for part in chunks(values.shape[0]):
        wrong = is_wrong(values[part])
        if wrong.any():
            return int(part.start) + int(np.argmax(wrong))
    return None


def mark_changes(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that differ from the one before."""
    differs = np.ones(values.size, bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


class GrowingFile:
    """A raw file that grows: for streams whose length is not known beforehand."""

    def __init__(self, folder: Path, file: IO[bytes], dtype: npt.DTypeLike) -> None:
        self.dtype, self.count = np.dtype(dtype), 0
        self._folder, self._file = folder, file

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end, converted to the dtype of the file."""
        if values.size == 0:
            return
        view = np.ascontiguousarray(values, self.dtype).data.cast("B")
        with storage_errors(self._folder / "temporary file", (self.count + values.size) * self.dtype.itemsize):
            while len(view):
                view = view[self._file.write(view) :]
        self.count += int(values.size)

    def finish(self) -> npt.NDArray[Any]:
        """Close the file and map it read-only, shape (count,)."""
        with self._file:
            if self.count == 0:
                return np.empty(0, self.dtype)
            return np.memmap(self._file, self.dtype, "r", 0, (self.count,))

    def close(self) -> None:
        """Drop the file, unless it is mapped."""
        self._file.close()


class Scratch:
    """A maker of nameless temporary files in one folder (``None``: the system's), for an import within a budget."""

    def __init__(self, folder: str | os.PathLike[str] | None, budget: Budget) -> None:
        self.budget = budget
        self._in_memory = min(IN_MEMORY_BYTES, int(budget.limit * IN_MEMORY_SHARE))
        self._folder = Path(folder if folder is not None else tempfile.gettempdir())
        self._growing: list[GrowingFile] = []

    def _file(self) -> IO[bytes]:
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(buffering=0, dir=self._folder)

    def array(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a writable array: in memory if small, else a map of a file with its space reserved."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= self._in_memory:
            return np.empty(shape, dtype)
        with self._file() as file, storage_errors(self._folder / "temporary file", nbytes):
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.memmap(file, dtype, "r+", 0, shape)

    def positions(self, size: int) -> npt.NDArray[np.int64]:
        """Return the array 0, 1, 2..."""
        out = self.array(size, np.int64)
        for part in chunks(size):
            out[part] = np.arange(part.start, part.stop)
        return out

    def gather(self, values: npt.NDArray[Any], positions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values at some positions."""
        out = self.array(positions.shape[0], values.dtype)
        for part in chunks(positions.shape[0]):
            out[part] = values[positions[part]]
        return out

    def compact(self, values: npt.NDArray[Any], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
        """Return values of `dtype`, by default their own, one behind the other: in a copy if they lie otherwise."""
        if values.flags.c_contiguous and dtype in (None, values.dtype):
            return values
        out = self.array(values.shape, dtype or values.dtype)
        for part in chunks(values.shape[0], rows_of_chunk(values)):
            out[part] = values[part]
        return out

    def growing_file(self, dtype: npt.DTypeLike) -> GrowingFile:
        """Return a raw file to append to."""
        self._growing.append(GrowingFile(self._folder, self._file(), dtype))
        return self._growing[-1]

    def close(self) -> None:
        """Close the files that are still being written."""
        for file in self._growing:
            file.close()
