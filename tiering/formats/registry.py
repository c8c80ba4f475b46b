"""From a path to the artifact that lies there."""

from __future__ import annotations

import os
from pathlib import Path

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.document import MANIFEST, document_problems, read_document
from tiering.artifacts.open_directory import open_directory
from tiering.artifacts.problems import Problem, raise_problems
from tiering.artifacts.storage import unless_replaced
from tiering.artifacts.verify_report import VerifyReport
from tiering.errors import FormatError
from tiering.formats.features import Features
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.names import Names
from tiering.formats.order import Order
from tiering.formats.scores import Scores

TYPES: dict[str, type[Artifact]] = {t.kind: t for t in (Graph, Features, Scores, Order, Names, Layout)}


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open whatever artifact lies at `path`, checked at level ``header``."""
    where = Path(path)
    kind, problems = _kind(where)
    raise_problems(where, problems)
    return TYPES[kind].open(where)


def _kind(where: Path) -> tuple[str, list[Problem]]:
    """Return the kind of artifact in a directory, and the problems of its manifest."""
    try:
        document, data = unless_replaced(where, lambda: read_document(open_directory(where)))
    except FormatError as error:
        return "", [Problem(MANIFEST, str(error), "json")]
    problems = document_problems(document, data=data)
    return "" if problems else document["format"].removeprefix("tiering."), problems


def check_artifact(
    path: str | os.PathLike[str],
    level: str = "structure",
    threads: int = 1,
    sample: float = 1.0,
    report: VerifyReport | None = None,
) -> list[Problem]:
    """Return every problem of the artifact at `path`, see `tiering.artifacts.artifact.Artifact.problems`."""
    where = Path(path)
    kind, problems = _kind(where)
    return problems or TYPES[kind].check(where, level, threads, sample, report)
