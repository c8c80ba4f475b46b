"""The state of one import, what a reader of a dataset format provides, temporary files, passes in chunks."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import External, valid_name
from tiering.artifacts.storage import entries, is_folder, storage_errors
from tiering.datasets.options import ImportOptions
from tiering.datasets.specs import DatasetSpec
from tiering.datasets.table_specs import clean_name, strip_type
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, fingerprint
from tiering.formats.npy_file import refuse_archives
from tiering.memory import Budget, own_memory, release_unused
from tiering.text.progress import note

if TYPE_CHECKING:
    from tiering.datasets.arrow_tables import StreamedTable

CHUNK = 1 << 20  # elements per step of a chunked pass: tens of MiB
IN_MEMORY_BYTES = 256 * 1024 * 1024  # arrays up to this size stay in memory
IN_MEMORY_SHARE = 1 / 32  # fraction of the budget that all of them may take


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

    def __init__(self, folder: Path, file: IO[bytes], dtype: npt.DTypeLike, watch: Callable[[], None]) -> None:
        self.dtype, self.count, self._watch = np.dtype(dtype), 0, watch
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
        self._watch()

    def finish(self) -> npt.NDArray[Any]:
        """Close the file and map it read-only, shape (count,)."""
        if not self._file.closed:
            with self._file as file:
                self._map = np.memmap(file, self.dtype, "r", 0, self.count) if self.count else np.empty(0, self.dtype)
        return self._map

    def close(self) -> None:
        """Drop the file, unless it is mapped."""
        self._file.close()


class Scratch:
    """A maker of nameless temporary files in one folder (``None``: the system's), for an import within a budget."""

    def __init__(self, folder: str | os.PathLike[str] | None, budget: Budget) -> None:
        self.budget = budget
        self.text_block = max(1 << 20, budget.left() // 64)
        """Bytes of a block of text at most: with its copies and its columns it takes some 8 times as many."""
        self.peak = 0  # resident bytes of this process while it read the input, as far as they were watched
        self._in_memory = int(budget.limit * IN_MEMORY_SHARE)
        self._folder = Path(folder if folder is not None else tempfile.gettempdir())
        self._growing: list[GrowingFile] = []

    def watch(self) -> None:
        """Note the memory resident now; give what is unused back where the rest of the budget is less."""
        self.peak = max(self.peak, resident := own_memory())
        if resident > self.budget.limit // 2:
            release_unused(collect=False)  # pyarrow keeps several times what it uses

    def _file(self) -> IO[bytes]:
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(buffering=0, dir=self._folder)

    def array(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a writable array: in memory while those are small together, else a map of a file of reserved space."""
        dtype, shape = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= min(self._in_memory, IN_MEMORY_BYTES):
            self._in_memory -= nbytes
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
        self._growing.append(GrowingFile(self._folder, self._file(), dtype, self.watch))
        return self._growing[-1]

    def close(self) -> None:
        """Close the files that are still being written."""
        for file in self._growing:
            file.close()


NODE = "node"
_RESERVED = frozenset({  # names of arrays of edges and nodes that are no times
    "weight", "type", "id", "feat", "label", "y", "edge_ids", "indptr", "indices", "original_id",
})  # fmt: skip
RELATION = (NODE, "to", NODE)  # node type and relation of datasets that have one of each


FileFinder = Callable[[Path], list[Path]]  # function that returns the files of a format inside a directory


def files_that(match: Callable[[Path], bool]) -> FileFinder:
    """Return the finder of files that `match`."""
    return lambda folder: [path for path in entries(folder) if path.is_file() and match(path)]


@dataclass
class ImportContext:
    """Options, temporary files and the record of one import."""

    format: str
    options: ImportOptions
    scratch: Scratch
    spec: DatasetSpec | None = None  # the published dataset that --spec names
    in_place: bool = False  # whether columns may stay in files of which only ranges can be read: see EdgeData.decode
    notes: dict[str, Any] = field(default_factory=dict)  # the record, see Dataset.notes: inferred, warnings, splits...
    files: dict[str, External] = field(default_factory=dict)
    folder: Path | None = None  # the directory that was given, whose numpy files go with one file of edges
    time_units: dict[str, tuple[str | None, bool]] = field(default_factory=dict)  # by place: unit, whether with a zone
    streams: dict[Path, StreamedTable] = field(default_factory=dict)  # tables that are no files, by name
    known: set[Path] = field(default_factory=set)  # files and directories looked into: others are recorded as ignored

    @property
    def time_name(self) -> str | None:
        """Name of the times in the graph; ``None`` if there are to be none."""
        if self.options.time is None:
            return None
        name = clean_name(strip_type(self.options.time))
        if name in _RESERVED or not valid_name(name):
            raise InputError(f"--time {self.options.time}: not a valid name for times; rename the column or array")
        return "time" if name.isdecimal() else name

    def choose_file(self, path: Path, find: FileFinder, what: str) -> Path:
        """Return a file, or the only one that `find` returns of a directory, whose arrays are the graph's then."""
        if not is_folder(path):
            return path
        if len(files := find(path)) != 1:
            names = ", ".join(file.name for file in files[:8]) or "none"
            several = ", or each table as --relation SRC:NAME:DST=FILE or --nodes TYPE=FILE" if what == "edges" else ""
            raise MissingError(f"{path}: expected one file of {what}, found {names}; give the path of one{several}")
        self.folder = path
        return files[0]

    def record_file(self, path: Path) -> None:
        """Record a source file."""
        self.files[str(path)] = fingerprint(path)
        self.known.add(path)

    def record_guess(self, what: str, value: Any) -> None:
        """Record a value that no file and no option states."""
        self.notes.setdefault("inferred", {})[what] = value

    def warn(self, text: str) -> None:
        """Record a warning for the user; it does not stop the import."""
        self.notes.setdefault("warnings", []).append(text)

    def record_ignored(self, paths: Iterable[Path]) -> None:
        """Record, of numpy files also print, the files that are neither known nor hidden; refuse archives."""
        unused = [path for path in paths if path not in self.known and not path.name.startswith(".")]
        refuse_archives(unused)
        if unused:
            self.notes.setdefault("ignored_files", []).extend(map(str, unused))
        arrays = [str(path) for path in unused if path.suffix == ".npy" and not path.match("node_label_*")]
        if arrays and self.format in ("npy", "csc", "csr", "npz", "igb", "parquet", "mtx", "edgelist"):
            note(
                f"note: not imported: {', '.join(arrays)}; the import reads node_feat.npy, node_label.npy, "
                "train_idx.npy, val_idx.npy, test_idx.npy of nodes, and edge_feat.npy, edge_weight.npy, edge_type.npy, "
                "edge_id.npy of edges: rename a file that is one of these"
            )


@dataclass(frozen=True)
class Detector:
    """A test that recognizes datasets of a format by their files."""

    description: str  # the files in words, for the message when no dataset is recognized
    matches: Callable[[Path], object]  # function that returns whether an existing directory, or file, is of the format


@dataclass(frozen=True)
class Reader:
    """A reader of one format, in `tiering.datasets.open.READERS`; large arrays stay mapped or go to scratch files."""

    open: Callable[[Path, ImportContext], Dataset]
    takes: frozenset[str]  # options of tiering.datasets.options.FORMAT_OPTIONS that the format has; others are refused
    directory: Detector | None = None
    file: Detector | None = None


def one_line(error: Any) -> str:
    """Return the text of a library's error, or schema, in one line that is not long."""
    return " ".join(str(error).split())[:200]
