"""Files that are read through mappings: the size of each is asked for before a batch touches them."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tiering.artifacts.artifact import Artifact
from tiering.errors import FormatError


class MappedFiles:
    """Files of an artifact, and of its parts, that are mapped by now.

    A mapping of a file that was truncated ends the process at the first touch of what is gone. `check` asks the kernel
    for each file's size, which takes a microsecond or less; a file that shrinks after that is beyond help.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._files = list(_mapped(artifact))

    def check(self) -> None:
        """Raise `FormatError` if a file is shorter than its mapping."""
        for path, mapping in self._files:
            if (found := mapping.size()) < len(mapping):
                raise FormatError(
                    f"{path}: truncated while it was in use: expected {len(mapping)} bytes, found {found}; "
                    "make the artifact again"
                )

    def before(self, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`work`, with a check first."""

        def checked(item: Any) -> Any:
            self.check()
            return work(item)

        return checked


def _mapped(artifact: Artifact) -> Iterator[tuple[Path, mmap.mmap]]:
    for name, array in artifact.manifest.arrays.items():
        mapping = getattr(array, "_mmap", None)
        if isinstance(mapping, mmap.mmap):
            yield artifact.path / name, mapping
    for part in artifact.parts().values():
        yield from _mapped(part)
