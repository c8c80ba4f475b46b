"""Kinds of artifacts and their classes."""

from __future__ import annotations

from pathlib import Path

from toy_datasets import toy_dataset

import tiering
from tiering.formats.graph import Graph
from tiering.graph import build_graph


def test_a_subclass_of_a_kind_opens_itself_and_nothing_else_opens_it(tmp_path: Path) -> None:
    build_graph(toy_dataset(tmp_path / "data", 1).dataset, tmp_path / "graph")

    class Annotated(Graph):
        """A graph that a program adds to."""

    assert type(Annotated.open(tmp_path / "graph")) is Annotated
    assert type(tiering.open(tmp_path / "graph")) is Graph
