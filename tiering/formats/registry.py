"""From a path to the artifact that lies there."""

from __future__ import annotations

import os
from pathlib import Path

from tiering.formats.artifact import Artifact
from tiering.formats.features import Features
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.manifest import document_problems, read_document
from tiering.formats.order import Order
from tiering.formats.problems import Problem, raise_problems
from tiering.formats.scores import Scores

TYPES: dict[str, type[Artifact]] = {t.kind: t for t in (Graph, Features, Scores, Order, Layout)}


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open whatever artifact lies at `path`, checked at level ``header``.

    Raises
    ------
    MissingError
        If there is no artifact at `path`.
    FormatError
        If it is damaged or of a version this package cannot read.
    """
    where = Path(path)
    document, _ = read_document(where)
    raise_problems(where, document_problems(document))
    return TYPES[document["format"].removeprefix("tiering.")].open(where)


def check_artifact(path: str | os.PathLike[str], level: str = "structure", threads: int = 1) -> list[Problem]:
    """Every problem of the artifact at `path` (and of those nested in it); empty if it is sound.

    Parameters
    ----------
    level
        ``header`` O(1), ``structure`` O(nodes), ``full`` O(edges) and all checksums.
    """
    where = Path(path)
    document, _ = read_document(where)
    problems = document_problems(document)
    if problems:
        return problems
    return TYPES[document["format"].removeprefix("tiering.")].check(where, level, threads)
