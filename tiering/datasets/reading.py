"""What the readers of one import share: options, temporary files, and the record of what was done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.datasets.archive import refuse_archives
from tiering.datasets.options import SourceOptions
from tiering.datasets.scratch import Scratch
from tiering.formats.protocols import Fingerprint, fingerprint

CHUNK = 1 << 20
"""Elements per step of a chunked pass: tens of MiB."""


def chunks(size: int, step: int = CHUNK) -> Iterator[slice]:
    """Slices that cover 0..size in order."""
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


@dataclass
class Reading:
    """State of one import."""

    options: SourceOptions
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

    def changed(self, step: str, relation: str, before: int, after: int) -> None:
        """Record a change the user asked for, with the numbers of edges."""
        self.notes.setdefault("changes", []).append(
            {"step": step, "relation": relation, "edges_before": before, "edges_after": after}
        )

    def ignored(self, folder: Path, names: Iterable[str]) -> None:
        """Record files that were seen and not used; archives where a numpy file would have been used are refused."""
        found = [folder / name for name in sorted(names)]
        refuse_archives(found)
        if found:
            self.notes.setdefault("ignored_files", []).extend(str(path) for path in found)
