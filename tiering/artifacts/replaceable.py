"""Refusal of directories that ``--force`` must not replace: those with a file that no stage has written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tiering.artifacts.document import MANIFEST
from tiering.artifacts.manifest import CHECKSUMS
from tiering.artifacts.storage import storage_errors
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
}
"""Outputs that are no artifacts: the file that identifies them, its content, and their paths."""


def own_files(folder: Path) -> _Test:
    """Return the test for files that a stage has written in `folder`, by relative path; false for all if none has.

    The manifest of an artifact names its files. A damaged one is recognised by what is left of it, or by the file of
    checksums.
    """
    data = _content(folder / MANIFEST)
    if data is None:
        tests = (paths.fullmatch for name, (mark, paths) in _OTHERS.items() if mark in (_content(folder / name) or b""))
        return next(tests, _NONE)
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


def _content(file: Path) -> bytes | None:
    with storage_errors(file):
        return file.read_bytes() if file.is_file() else None


def _raise(error: OSError) -> None:
    raise error


def refuse_foreign(out: Path, is_own: _Test | None = None) -> None:
    """Raise `ExistsError`, naming the first file at `out` that does not pass `is_own`, by default `own_files`."""
    if not out.is_dir():
        raise ExistsError(
            f"{out}: expected a directory to replace, found a file; move it away, or choose another --out"
        )
    is_own = is_own or own_files(out)
    with storage_errors(out):
        tree = sorted(os.walk(out, onerror=_raise))
    for folder, folders, names in tree:
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted((*names, *links)):
            file = Path(folder, name)
            if not is_own(file.relative_to(out).as_posix()):
                raise ExistsError(
                    f"{out}: holds {file}, which tiering did not write; --force replaces what tiering wrote, and empty "
                    "directories: move that file away, or choose another --out"
                )
