"""Temporary files of one import: arrays too large for memory, gone when the dataset is closed."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.io.storage import open_raw, reserve, storage_errors

IN_MEMORY_BYTES = 256 * 1024 * 1024
"""Arrays up to this size stay in memory."""


class Appender:
    """A raw file that grows: for streams whose length is not known beforehand."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path, self.dtype, self.count = path, np.dtype(dtype), 0
        with storage_errors(path):
            self._file = path.open("wb", buffering=0)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end, converted to the dtype of the file."""
        view = np.ascontiguousarray(values, self.dtype).data.cast("B") if values.size else memoryview(b"")
        with storage_errors(self.path):
            while len(view):
                view = view[self._file.write(view) :]
        self.count += int(values.size)

    def finish(self) -> npt.NDArray[Any]:
        """Close the file and map it read-only, shape (count,)."""
        self.close()
        return open_raw(self.path, self.dtype, (self.count,))

    def close(self) -> None:
        """Close the file; it stays."""
        self._file.close()


class Scratch:
    """A temporary directory made when first needed.

    Parameters
    ----------
    parent
        Where to make it; ``None`` is the system's directory for temporary files. An import passes the disk of
        its output: the system's directory is often small, or memory.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._files = 0
        self._appenders: list[Appender] = []

    def _path(self) -> Path:
        if self._folder is None:
            parent = Path(self._parent) if self._parent is not None else Path(tempfile.gettempdir())
            with storage_errors(parent):
                parent.mkdir(parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix=".tiering-import-", dir=parent))
            # Also when nobody calls close: at the end of the object or of the interpreter.
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._files += 1
        return self._folder / f"{self._files}"

    def array(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Writable array of shape (size,): in memory if small, else a map of a file with its space reserved."""
        dtype = np.dtype(dtype)
        if size * dtype.itemsize <= IN_MEMORY_BYTES:
            return np.empty(size, dtype)
        path = self._path()
        reserve(path, size * dtype.itemsize)
        return np.memmap(path, dtype, "r+", 0, (size,))

    def appender(self, dtype: npt.DTypeLike) -> Appender:
        """Raw file to append to."""
        self._appenders.append(Appender(self._path(), dtype))
        return self._appenders[-1]

    def close(self) -> None:
        """Remove everything."""
        for appender in self._appenders:
            appender.close()
        if self._folder is not None:
            self._remove()
            self._folder = None
