"""Problems that validation finds: a place, a sentence, and a kind that programs can match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tiering.artifacts.manifest import Manifest
from tiering.errors import FormatError


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an artifact, `where`: a file, or a manifest location such as ``manifest.json: relations.0``.

    `kind` is ``json``, ``schema``, ``version``, ``missing``, ``size``, ``value``, ``checksum`` or ``external``.
    """

    where: str
    message: str
    kind: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.kind}]"

    def inside(self, part: str) -> Problem:
        """Return the problem of a nested artifact as one of the artifact around it."""
        return replace(self, where=f"{part}/{self.where}")


class InvalidArtifactError(FormatError):
    """An artifact with problems."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def raise_problems(path: Path, problems: list[Problem]) -> None:
    """Raise one `FormatError` naming all `problems`, if there are any."""
    if problems:
        lines = "; ".join(map(str, problems[:5]))
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise InvalidArtifactError(
            f"{path}: not a valid artifact: {lines}{more}; run `tiering check {path} --full` for everything, "
            "then make the artifact again",
            problems,
        )


def error_problems(error: Exception) -> list[Problem]:
    """Return the problems of an artifact that `error` tells of."""
    if isinstance(error, InvalidArtifactError):
        return error.problems
    return [Problem("manifest.json", str(error), "json" if isinstance(error, FormatError) else "missing")]


def body_problem(where: str, message: str, kind: str = "value") -> Problem:
    """Return a problem of the manifest, at `where` in its document."""
    return Problem(f"manifest.json: {where}", message, kind)


def mismatch(where: str, expected: object, found: object, kind: str = "value") -> Problem:
    """Return the problem of a value in the manifest at `where`."""
    return body_problem(where, f"expected {expected}, found {found}", kind)


def array_problems(
    manifest: Manifest, name: str, shape: tuple[int, ...] | None = None, dtypes: Sequence[str] = ()
) -> list[Problem]:
    """Return the problem of an array without an entry, or of another `shape` (a prefix), axes or dtype."""
    entry = manifest.files.get(name)
    if entry is None:
        return [body_problem(f"files.{name}", "the file is not listed")]
    if shape is not None and entry.shape[: len(shape)] != shape:
        return [Problem(name, f"expected shape {shape}, found {entry.shape}", "size")]
    if dtypes and len(entry.shape) != 1:
        return [Problem(name, f"expected one axis, found shape {entry.shape}", "size")]
    if dtypes and entry.dtype not in dtypes:
        return [Problem(name, f"expected dtype {' or '.join(dtypes)}, found {entry.dtype}", "value")]
    return []
