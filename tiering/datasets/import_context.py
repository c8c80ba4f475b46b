"""The state of one import, and what a reader of a dataset format provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import External, valid_name
from tiering.artifacts.storage import entries, is_folder
from tiering.datasets.options import ImportOptions
from tiering.datasets.scratch import Scratch
from tiering.datasets.specs import DatasetSpec
from tiering.datasets.table_specs import clean_name, strip_type
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, fingerprint
from tiering.formats.npy_file import refuse_archives
from tiering.text.progress import note

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
    time_units: dict[str, str | None] = field(default_factory=dict)  # units of dates by the place of the times
    known: set[Path] = field(default_factory=set)  # files and directories looked into: others are recorded as ignored

    @property
    def time_name(self) -> str | None:
        """Name of the times in the graph; ``None`` if there are to be none."""
        if self.options.time is None:
            return None
        name = clean_name(strip_type(self.options.time))
        if name in _RESERVED or not valid_name(name):
            raise InputError(f"--time {self.options.time}: is no name for times; rename them")
        return "time" if name.isdecimal() else name

    def choose_file(self, path: Path, find: FileFinder, what: str) -> Path:
        """Return a file, or the only one that `find` returns of a directory, whose arrays are the graph's then."""
        if not is_folder(path):
            return path
        if len(files := find(path)) != 1:
            names = ", ".join(file.name for file in files[:8]) or "none"
            several = ", or each table as --relation SRC:NAME:DST=FILE or --nodes TYPE=FILE" * (what == "edges")
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
                f"note: not imported: {', '.join(arrays)}; read are node_feat.npy, node_label.npy, train_idx.npy, "
                "val_idx.npy, test_idx.npy of nodes, edge_feat.npy, edge_weight.npy, edge_type.npy, edge_id.npy of "
                "edges: rename what is one of these"
            )


@dataclass(frozen=True)
class Detector:
    """A test that recognises datasets of a format by their files."""

    description: str  # the files in words, for the message when no dataset is recognised
    matches: Callable[[Path], object]  # function that returns whether an existing directory, or file, is of the format


@dataclass(frozen=True)
class Reader:
    """A reader of one format, in `tiering.datasets.open.READERS`; large arrays stay mapped or go to scratch files."""

    open: Callable[[Path, ImportContext], Dataset]
    takes: frozenset[str]  # options of tiering.datasets.options.FORMAT_OPTIONS that the format has; others are refused
    directory: Detector | None = None
    file: Detector | None = None


def one_line(error: BaseException) -> str:
    """Return the text of a library's error in one line that is not long."""
    return " ".join(str(error).split())[:200]
