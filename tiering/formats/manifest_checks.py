"""Checks of what a manifest says, shared by the artifact types."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.artifacts.manifest import Manifest
from tiering.artifacts.problems import Problem


def mismatch(where: str, expected: object, found: object, kind: str = "value") -> Problem:
    """Return the problem of a value in the manifest at `where`."""
    return Problem(f"manifest.json: {where}", f"expected {expected}, found {found}", kind)


def array_problems(
    manifest: Manifest, name: str, shape: tuple[int, ...] | None = None, dtypes: Sequence[str] = ()
) -> list[Problem]:
    """Return the problem of an array that is not listed, or whose shape does not begin with `shape`.

    With `dtypes` the array must have one axis and one of these dtypes.
    """
    entry = manifest.files.get(name)
    if entry is None:
        return [Problem(f"manifest.json: files.{name}", "the file is not listed", "value")]
    if shape is not None and entry.shape[: len(shape)] != shape:
        return [Problem(name, f"expected shape {shape}, found {entry.shape}", "size")]
    if dtypes and len(entry.shape) != 1:
        return [Problem(name, f"expected one axis, found shape {entry.shape}", "size")]
    if dtypes and entry.dtype not in dtypes:
        return [Problem(name, f"expected dtype {' or '.join(dtypes)}, found {entry.dtype}", "value")]
    return []
