"""All types of artifacts: `open_artifact` and `check_artifact` take the path of any."""

from __future__ import annotations

from tiering.artifacts.artifact import Artifact
from tiering.formats.embeddings import Embeddings
from tiering.formats.features import Features
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.names import Names
from tiering.formats.order import Order
from tiering.formats.scores import Scores

TYPES: dict[str, type[Artifact]] = {t.kind: t for t in (Graph, Features, Scores, Order, Names, Layout, Embeddings)}
open_artifact, check_artifact = Artifact.open, Artifact.check
