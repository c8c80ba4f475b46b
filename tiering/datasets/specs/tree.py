"""Compare the files of a dataset with its specification: by names, sizes and headers, whatever the sizes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tiering.artifacts.regular import entries, file_exists, is_folder
from tiering.datasets.specs.spec import DatasetSpec, SpecFile
from tiering.errors import InputError, MissingError
from tiering.formats.npy_file import is_npy, open_npy
from tiering.units import format_bytes

_LONGEST_HEADER = 4096


def find_root(spec: DatasetSpec, path: Path) -> Path | None:
    """Return the root of the dataset's files at or below `path`: the usual place that holds most of them, if any."""
    if not is_folder(path):
        return path.parent if any(path.name in (file.path, *file.alternatives) for file in spec.files) else None
    required = [file for file in spec.files if not file.optional and not file.path.startswith("..")]
    folders = [folder for root in spec.roots if is_folder(folder := path / root if root else path)]
    counts = {folder: sum(find_file(folder, file) is not None for file in required) for folder in folders}
    best = max(folders, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] else None


def find_file(root: Path, file: SpecFile) -> Path | None:
    """Return the path of a file, under any of its names."""
    paths = (root / name for name in (file.path, *file.alternatives))
    return next((path for path in paths if file_exists(path, file.holds)), None)


def check_tree(spec: DatasetSpec, root: Path) -> None:
    """Raise `MissingError` for the first required file that is missing, `InputError` for one that does not fit."""
    for file in spec.files:
        path = find_file(root, file)
        if path is None and not file.optional:
            expected = f"{root / file.path}: expected {describe_file(file)} of {spec.name}, found nothing"
            raise MissingError(
                f"{expected}; {_advise_renaming(spec, file, root) or 'get the file'}, or see "
                f"`tiering datasets {spec.name}` for all of them"
            )
        problem = None if path is None else _find_mismatch(file, path)
        if problem:
            remedy = _advise_renaming(spec, file, root) or "get the file again, or give another --spec"
            raise InputError(f"{path}: {problem}; {remedy}")


def _find_mismatch(file: SpecFile, path: Path) -> str | None:
    """Return how the numpy file at `path` differs from what is specified; ``None`` if it may be that."""
    if file.shape is None or path.suffix != ".npy":
        return None
    size, shapes = path.stat().st_size, [file.shape, *((rows, *file.shape[1:]) for rows in file.prefixes)]
    if is_npy(path):
        header = open_npy(path, describe_file(file))
        rows = header.shape[:1] if math.prod(header.shape[1:]) == 1 and len(file.shape) == 1 else header.shape
        fits = rows in shapes and header.dtype in [np.dtype(name) for name in file.dtypes]
        return None if fits else f"expected {describe_file(file)}, found {header.described}, {size} bytes"
    if not file.headerless:
        return f"expected {describe_file(file)} with a numpy header, found {size} bytes without one"
    sizes = [math.prod(shape) * np.dtype(name).itemsize for shape in shapes for name in file.dtypes]
    return None if size in sizes else f"expected {describe_file(file)}, found {size} bytes"


def describe_file(file: SpecFile) -> str:
    """Return ``features, float32 (100000, 1024), 409600000 bytes``, for messages."""
    parts = [file.holds]
    if file.shape is not None and file.dtypes:
        parts.append(f"{' or '.join(file.dtypes)} {file.shape}")
    if file.headerless:
        parts.append("no header")
    if file.bytes is not None:
        parts.append(f"{file.bytes} bytes")
    return ", ".join(parts)


def _advise_renaming(spec: DatasetSpec, file: SpecFile, root: Path) -> str | None:
    """Return advice where names are mixed up: the file lies there under another name, or another one under its name."""
    reported = next((f" ({d.id}: {d.text})" for d in spec.defects if d.names), "")
    for other in spec.files:
        if other is not file and _has_size(root / file.path, other):
            return f"it has the size of {other.path}: give the files their names back{reported}"
    folders = {(root / other.path).parent for other in spec.files if not other.path.startswith("..")} | {root}
    for folder in sorted(folder for folder in folders if is_folder(folder)):
        for candidate in entries(folder):
            named = next((other for other in spec.files if find_file(root, other) == candidate), None)
            if _has_size(candidate, file) and (named is None or not _has_size(candidate, named)):
                return f"{candidate} has its size: give the files their names back{reported}"
    return None


def _has_size(path: Path, file: SpecFile) -> bool:
    """Return whether a file of that size, with or without a numpy header, is at `path`."""
    return file.bytes is not None and path.is_file() and 0 <= path.stat().st_size - file.bytes <= _LONGEST_HEADER


def list_files(spec: DatasetSpec) -> list[tuple[str, str, str]]:
    """Return path, content and size of each file, for tables."""
    rows = []
    for file in spec.files:
        size = "" if file.bytes is None else format_bytes(file.bytes)
        rows.append((file.path, describe_file(file) + (" (may be missing)" if file.optional else ""), size))
        rows += [(f"  {member.path}", describe_file(member), "") for member in file.members]
    return rows
