"""What a format of datasets provides, and what it is given to read with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.datasets.options import ImportOptions
from tiering.datasets.scratch import Scratch
from tiering.datasets.specs.spec import DatasetSpec
from tiering.formats.npy_file import NpyFile, open_npy, refuse_archives
from tiering.formats.protocols import Dataset, EdgeData, Fingerprint, NodeData, fingerprint
from tiering.progress import note

NODE = "node"
RELATION = (NODE, "to", NODE)
"""Node type and relation of datasets that have one of each."""


@dataclass
class ImportContext:
    """State of one import."""

    format: str
    options: ImportOptions
    scratch: Scratch
    published: DatasetSpec | None = None
    """The published dataset that it is said to be."""
    in_place: bool = False
    """Whether columns may stay in their files where only ranges of them can be read: see `EdgeData.decode`."""
    notes: dict[str, Any] = field(default_factory=dict)
    """See `Dataset.notes`: ``inferred``, ``warnings``, ``ignored_files``, ``changes``, ``splits``..."""
    files: dict[str, Fingerprint] = field(default_factory=dict)
    known: set[Path] = field(default_factory=set)
    """Files and directories that the reader has looked into: the others are recorded as ignored."""

    def used(self, path: Path) -> None:
        """Record a source file."""
        self.files[str(path)] = fingerprint(path)
        self.known.add(path)

    def open_npy(self, path: Path, what: str) -> NpyFile:
        """Open a numpy file that should hold `what`, and record it."""
        file = open_npy(path, what)
        self.used(path)
        return file

    def inferred(self, what: str, value: Any) -> None:
        """Record something that no file and no option said."""
        self.notes.setdefault("inferred", {})[what] = value

    def warn(self, text: str) -> None:
        """Record something the user should know; it does not stop the import."""
        self.notes.setdefault("warnings", []).append(text)

    def ignored(self, paths: Iterable[Path]) -> None:
        """Record those of the files that are not known; archives in place of numpy files are refused.

        Of a directory of numpy files those are named on standard error, too; of IGB's labels, ``--label`` chooses.
        """
        unused = [path for path in paths if path not in self.known]
        refuse_archives(unused)
        if unused:
            self.notes.setdefault("ignored_files", []).extend(map(str, unused))
        arrays = [str(path) for path in unused if path.suffix == ".npy" and not path.match("node_label_*")]
        if arrays and self.format in ("npy", "csc", "csr", "npz", "igb"):
            note(
                f"note: not imported: {', '.join(arrays)}; read are node_feat.npy, node_label.npy, train_idx.npy, "
                "val_idx.npy, test_idx.npy of nodes, edge_feat.npy, edge_weight.npy, edge_type.npy, edge_id.npy of "
                "edges: rename what is one of these"
            )

    def dataset(self, name: str, nodes: dict[str, NodeData], edges: list[EdgeData]) -> Dataset:
        """What a reader returns: nodes by type, edges by relation, and what was recorded."""
        return Dataset(name, self.format, nodes, edges, self.notes, self.files)


@dataclass(frozen=True)
class Detector:
    """How datasets of a format are recognised."""

    description: str
    """In words, for the message of who found none."""
    matches: Callable[[Path], bool]
    """Whether it is at a path, which exists and is a directory, or a file."""


@dataclass(frozen=True)
class Reader:
    """One format. A new one is a module in ``readers`` with its `Reader`, and a line in `tiering.datasets.open`."""

    open: Callable[[Path, ImportContext], Dataset]
    """Describes the dataset at a path; raises `InputError` or `MissingError` where it is not as the format wants.

    Large arrays stay mapped where they are, or go to `ImportContext.scratch`; the context records files and guesses.
    """
    takes: frozenset[str]
    """Those of `tiering.datasets.options.FORMAT_OPTIONS` that say something about it; others are refused."""
    directory: Detector | None = None
    file: Detector | None = None
