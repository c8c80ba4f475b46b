"""Which published dataset a tree is, told by its files and their sizes."""

from __future__ import annotations

from pathlib import Path

from tiering.datasets.sources.source import Source, own_specification, sources
from tiering.datasets.sources.tree import arrays, locate, misfit
from tiering.errors import TieringError


def recognise(path: Path) -> Source | None:
    """The dataset whose files lie at `path` with exactly the sizes published, or that a replica says it is; ``None`` if
    there is none.

    Where several fit, the one that knows more of the files. Cost: the headers of some files for each dataset.
    """
    if (own := own_specification(path)) is not None:
        return own
    best, most = None, 0
    for source in sources().values():
        try:
            count = _matching(source, path)
        except (TieringError, OSError):  # the reader will say what is wrong with the file
            count = 0
        if count > most:
            best, most = source, count
    return best


def _matching(source: Source, path: Path) -> int:
    """How many files of known size are as specified; 0 if one is not, or a required one is missing."""
    root = locate(source, path)
    if root is None:
        return 0
    present = [(file, at) for file, at in arrays(source, root) if file.shape is not None]
    required = [file for file in source.files if file.shape is not None and not file.optional and not file.members]
    if not required:  # names alone say little
        return 0
    names = {file.path for file, _ in present}
    if any(file.path not in names for file in required) or any(misfit(file, at) for file, at in present):
        return 0
    return 1 + len(present)
