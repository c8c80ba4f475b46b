"""Whether the files of a dataset are what its specification says: what can be seen from their names, sizes and headers,
at a cost that does not depend on their sizes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tiering.artifacts.regular import entries, is_folder, is_there
from tiering.datasets.specs.spec import DatasetSpec, SpecFile
from tiering.errors import InputError, MissingError
from tiering.formats.npy_file import is_npy, open_npy
from tiering.units import format_bytes

ARRAYS = (".npy",)
_LONGEST_HEADER = 4096


def locate(source: DatasetSpec, path: Path) -> Path | None:
    """The root of the dataset's files at or below `path`: of the usual places the one that holds most of them; ``None``
    if none holds any.
    """
    if not is_folder(path):
        return path.parent if any(path.name in (file.path, *file.alternatives) for file in source.files) else None
    required = [file for file in source.files if not file.optional and not file.path.startswith("..")]
    folders = [folder for root in source.roots if is_folder(folder := path / root if root else path)]
    found = {folder: sum(place(folder, file) is not None for file in required) for folder in folders}
    best = max(folders, key=found.__getitem__, default=None)
    return best if best is not None and found[best] else None


def place(root: Path, file: SpecFile) -> Path | None:
    """Where a file lies, under any of its names."""
    for name in (file.path, *file.alternatives):
        path = root / name
        if is_there(path, file.holds):
            return path
    return None


def check_tree(source: DatasetSpec, root: Path) -> None:
    """Raise an error for the first file that is missing, or whose size, dtype or shape is not as specified.

    Raises
    ------
    MissingError
        If a required file is not there.
    InputError
        If a file does not fit: says which, expected and found bytes.
    """
    for file in source.files:
        path = place(root, file)
        if path is None and not file.optional:
            expected = f"{root / file.path}: expected {described(file)} of {source.name}, found nothing"
            raise MissingError(
                f"{expected}; {_other_name(source, file, root) or 'get the file'}, or see "
                f"`tiering datasets {source.name}` for all of them"
            )
        problem = None if path is None else misfit(file, path)
        if problem:
            remedy = _other_name(source, file, root) or "get the file again, or give another --spec"
            raise InputError(f"{path}: {problem}; {remedy}")


def misfit(file: SpecFile, path: Path) -> str | None:
    """How the file at `path` is not what is specified; ``None`` if it may be."""
    if file.shape is None or path.suffix not in ARRAYS:
        return None
    size, shapes = path.stat().st_size, [file.shape, *((rows, *file.shape[1:]) for rows in file.prefixes)]
    if is_npy(path):
        found = open_npy(path, described(file))
        rows = found.shape[:1] if math.prod(found.shape[1:]) == 1 and len(file.shape) == 1 else found.shape
        if rows not in shapes or found.dtype not in [np.dtype(name) for name in file.dtypes]:
            return f"expected {described(file)}, found {found.described}, {size} bytes"
        return None
    sizes = [math.prod(shape) * np.dtype(name).itemsize for shape in shapes for name in file.dtypes]
    if not file.headerless:
        return f"expected {described(file)} with a numpy header, found {size} bytes without one"
    if size not in sizes:
        return f"expected {described(file)}, found {size} bytes"
    return None


def described(file: SpecFile) -> str:
    """``features, float32 (100000, 1024), 409600000 bytes``, for messages."""
    parts = [file.holds]
    if file.shape is not None and file.dtypes:
        parts.append(f"{' or '.join(file.dtypes)} {file.shape}")
    if file.headerless:
        parts.append("no header")
    if file.bytes is not None:
        parts.append(f"{file.bytes} bytes")
    return ", ".join(parts)


def _other_name(source: DatasetSpec, file: SpecFile, root: Path) -> str | None:
    """What to do about a file that is missing or does not fit, where names have been mixed up: if it is there under
    another name, or another one under its name. ``None``: they have not.
    """
    reported = next((f" ({d.id}: {d.text})" for d in source.defects if d.names), "")
    path = root / file.path
    for other in source.files:
        if other is not file and _has_size(path, other):
            return f"it has the size of {other.path}: give the files their names back{reported}"
    places = {(root / other.path).parent for other in source.files if not other.path.startswith("..")} | {root}
    for folder in sorted(place for place in places if is_folder(place)):
        for candidate in entries(folder):
            named = next((other for other in source.files if place(root, other) == candidate), None)
            if _has_size(candidate, file) and (named is None or not _has_size(candidate, named)):
                return f"{candidate} has its size: give the files their names back{reported}"
    return None


def _has_size(path: Path, file: SpecFile) -> bool:
    """Whether a file of that size, with or without a numpy header, is at `path`."""
    return file.bytes is not None and path.is_file() and 0 <= path.stat().st_size - file.bytes <= _LONGEST_HEADER


def listing(source: DatasetSpec) -> list[tuple[str, str, str]]:
    """Path, content and size of each file, for tables."""
    rows = []
    for file in source.files:
        size = "" if file.bytes is None else format_bytes(file.bytes)
        rows.append((file.path, described(file) + (" (may be missing)" if file.optional else ""), size))
        rows += [(f"  {member.path}", described(member), "") for member in file.members]
    return rows
