"""Mapped files of artifacts, which may be truncated while they are in use."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from tiering.artifacts.artifact import Artifact
from tiering.errors import FormatError


def mapped_files(artifact: Artifact) -> Iterator[tuple[Path, mmap.mmap]]:
    """Yield the files of an artifact, and of its parts, that are mapped by now."""
    for name, array in artifact.manifest.arrays.items():
        mapping = getattr(array, "_mmap", None)
        if isinstance(mapping, mmap.mmap):
            yield artifact.path / name, mapping
    for part in artifact.parts().values():
        yield from mapped_files(part)


def check_mapped(files: list[tuple[Path, mmap.mmap]]) -> None:
    """Raise `FormatError` if a file is shorter than its mapping: touching the missing part would end the process.

    Cost: at most a microsecond per file. A file that shrinks later is not noticed.
    """
    for path, mapping in files:
        if (size := mapping.size()) < len(mapping):
            raise FormatError(
                f"{path}: truncated while it was in use: expected {len(mapping)} bytes, found {size}; "
                "make the artifact again"
            )
