"""Problems that validation finds: a place, a sentence, and a kind that programs can match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tiering.errors import FormatError


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an artifact."""

    where: str
    """Path inside the artifact, a file or a manifest location such as ``manifest.json: relations.0``."""
    message: str
    kind: str
    """Stable word: ``json``, ``schema``, ``version``, ``missing``, ``size``, ``value``, ``checksum``, ``external``."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.kind}]"


def raise_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Raise one `FormatError` naming all `problems`, if there are any."""
    found = list(problems)
    if found:
        lines = "; ".join(str(problem) for problem in found[:5])
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise FormatError(
            f"{path}: not a valid artifact: {lines}{more}; run `tiering check {path} --full` for everything, "
            "then make the artifact again"
        )
