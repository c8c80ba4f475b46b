"""What the readers of one import share: options, temporary files, and the record of what was done."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import storage_errors
from tiering.datasets.npy_file import refuse_archives
from tiering.datasets.options import ImportOptions
from tiering.formats.protocols import Fingerprint, fingerprint
from tiering.memory import Budget

NODE = "node"
RELATION = (NODE, "to", NODE)
"""Node type and relation of datasets that have one of each."""
CHUNK = 1 << 20
"""Elements per step of a chunked pass: tens of MiB."""
IN_MEMORY_BYTES = 256 * 1024 * 1024
"""Arrays up to this size stay in memory, where that is no more than `IN_MEMORY_SHARE` of the budget."""
IN_MEMORY_SHARE = 1 / 32


def chunks(size: int, step: int | None = None) -> Iterator[slice]:
    """Slices of `step` (`CHUNK`) elements that cover 0..size in order."""
    step = step or CHUNK
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


class Appender:
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
    """Makes temporary files in one folder, for arrays too large for memory.

    The files have no name, so nothing is left behind however the process ends; their space is free again when the
    last array that lies in them is gone.

    Parameters
    ----------
    folder
        Where; ``None`` is the system's directory for temporary files. An import passes the disk of its output: the
        system's directory is often small, or memory.
    budget
        What the import is to stay within.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, budget: Budget) -> None:
        self.budget = budget
        self._in_memory = min(IN_MEMORY_BYTES, int(budget.limit * IN_MEMORY_SHARE))
        self._folder = Path(folder if folder is not None else tempfile.gettempdir())
        self._appenders: list[Appender] = []

    def _file(self) -> IO[bytes]:
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(buffering=0, dir=self._folder)

    def array(self, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Writable array of shape (size,): in memory if small, else a map of a file with its space reserved."""
        dtype = np.dtype(dtype)
        nbytes = size * dtype.itemsize
        if nbytes <= self._in_memory:
            return np.empty(size, dtype)
        with self._file() as file, storage_errors(self._folder / "temporary file", nbytes):
            os.posix_fallocate(file.fileno(), 0, nbytes)
            return np.memmap(file, dtype, "r+", 0, (size,))

    def appender(self, dtype: npt.DTypeLike) -> Appender:
        """Raw file to append to."""
        self._appenders.append(Appender(self._folder, self._file(), dtype))
        return self._appenders[-1]

    def close(self) -> None:
        """Close the files that are still being written."""
        for appender in self._appenders:
            appender.close()


@dataclass
class Reading:
    """State of one import."""

    options: ImportOptions
    scratch: Scratch
    notes: dict[str, Any] = field(default_factory=dict)
    """See `Dataset.notes`: ``inferred``, ``warnings``, ``ignored_files``, ``changes``, ``splits``..."""
    files: dict[str, Fingerprint] = field(default_factory=dict)

    def used(self, path: Path) -> None:
        """Record a source file."""
        self.files[str(path)] = fingerprint(path)

    def inferred(self, what: str, value: Any) -> None:
        """Record something that no file and no option said."""
        self.notes.setdefault("inferred", {})[what] = value

    def warn(self, text: str) -> None:
        """Record something the user should know; it does not stop the import."""
        self.notes.setdefault("warnings", []).append(text)

    def ignored(self, folder: Path, names: Iterable[str]) -> None:
        """Record files that were seen and not used; archives where a numpy file would have been used are refused."""
        paths = [folder / name for name in sorted(names)]
        refuse_archives(paths)
        if paths:
            self.notes.setdefault("ignored_files", []).extend(str(path) for path in paths)
