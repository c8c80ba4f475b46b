"""All types of artifacts: `open_artifact` and `check_artifact` take the path of any."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Problem
from tiering.errors import TieringError
from tiering.formats.embeddings import Embeddings
from tiering.formats.features import Features
from tiering.formats.graph import Graph
from tiering.formats.known_defects import print_defects
from tiering.formats.layout import Layout
from tiering.formats.names import Names
from tiering.formats.order import Order
from tiering.formats.scores import Scores

TYPES: dict[str, type[Artifact]] = {t.kind: t for t in (Graph, Features, Scores, Order, Names, Layout, Embeddings)}


def open_artifact(path: Any, **how: Any) -> Artifact:
    """Open the artifact at `path` as ``Artifact.open``; print a note if an earlier version may have damaged it."""
    print_defects(artifact := Artifact.open(path, **how))
    return artifact


def check_artifact(path: Any, *how: Any) -> list[Problem]:
    """Return every problem of the artifact at `path` as ``Artifact.check``; print as `open_artifact`."""
    with suppress(TieringError):  # which is a problem
        open_artifact(path, outside=False)
    return Artifact.check(path, *how)
