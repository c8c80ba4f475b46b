"""Which directories ``--force`` may replace: empty ones, and those of which a stage has written every file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tiering.artifacts.document import MANIFEST
from tiering.artifacts.manifest import CHECKSUMS
from tiering.errors import ExistsError

_Test: TypeAlias = Callable[[str], object]
_NONE: _Test = frozenset[str]().__contains__
_ARTIFACT = re.compile(r"checksums|manifest\.json|(nodes|relations|order|names|features|graph|tiers|pages)/.+")
"""Files of an artifact, for one whose manifest is damaged."""
_OTHERS = {
    "export.json": (
        b'"tiering.export"',
        re.compile(r"export\.json|metadata\.yaml|load\.py|(nodes|relations)/.+\.(npy|bin)"),
    ),
    "processed/meta.json": (
        b'"tiering generate"',
        re.compile(r"processed/(meta\.json|[^/]+/(node_feat|node_label_19|\w+_idx|edge_index)\.npy)"),
    ),
    "source.json": (b'"roots"', re.compile(r"source\.json|.+/.+")),
}
"""Outputs that are no artifacts: the file that tells them, what stands in it, and the paths in them."""


def own_files(folder: Path) -> _Test:
    """Return the test for files that a stage has written in `folder`, by relative path; false for all if none has.

    The manifest of an artifact names its files. A damaged one is recognised by what is left of it, or by the file of
    checksums.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError:
        return next((test for name in _OTHERS if (test := _other_files(folder, name))), _NONE)
    try:
        document = json.loads(data)
        ours = str(document["format"]).startswith("tiering.")
        names = {MANIFEST, *document["files"], *(file["path"] for file in document["external"].values())}
        nested = {part: own_files(folder / part) for part in document["parts"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _ARTIFACT.fullmatch if b'"tiering.' in data or (folder / CHECKSUMS).is_file() else _NONE

    def is_own(name: str) -> object:
        part, _, rest = name.partition("/")
        return ours and (name in names or (part in nested and nested[part](rest)))

    return is_own


def _other_files(folder: Path, name: str) -> _Test | None:
    mark, paths = _OTHERS[name]
    try:
        return paths.fullmatch if mark in (folder / name).read_bytes() else None
    except OSError:
        return None


def refuse_foreign(out: Path, is_own: _Test | None = None) -> None:
    """Raise `ExistsError`, naming the first file at `out` that does not pass `is_own`, by default `own_files`."""
    if not out.is_dir():
        raise ExistsError(
            f"{out}: expected a directory to replace, found a file; move it away, or choose another --out"
        )
    is_own = is_own or own_files(out)
    for folder, folders, names in os.walk(out):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted((*names, *links)):
            file = Path(folder, name)
            if not is_own(file.relative_to(out).as_posix()):
                raise ExistsError(
                    f"{out}: holds {file}, which tiering did not write; --force replaces what tiering wrote, and empty "
                    "directories: move that file away, or choose another --out"
                )
