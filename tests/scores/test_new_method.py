"""A score is one module with a `Method` and one line in the table of methods: CONTRIBUTING.md shows this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.scores.plan import METHODS
from tiering.scores.request import SLACK, MemoryNeed, Method, ScoreColumns, ScoreRequest


def in_degree(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Count the in-neighbors of each node."""
    columns = {node_type: np.zeros(graph.num_nodes(node_type)) for node_type in graph.node_types}
    for relation in graph.relations:
        columns[relation[2]] += np.diff(graph.csc(relation)[0])
    return ScoreColumns(columns)


def in_degree_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 16 N."""
    need = 16 * graph.num_nodes() + SLACK
    return MemoryNeed(need, need, "in-degree: 16 bytes for each node")


IN_DEGREE = Method(in_degree, in_degree_need)


def test_a_new_score_is_computed_estimated_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiering_cli: Callable[..., Any], tiny_dataset: Path
) -> None:
    monkeypatch.setitem(METHODS, "in-degree", IN_DEGREE)
    graph = tiering.import_graph(tiny_dataset, tmp_path / "graph")
    command = ("score", graph.path, "--method", "in-degree", "--out", tmp_path / "scores")
    step = tiering_cli(*command, "--dry-run", "--json").ok().json["stages"][0]["steps"][0]
    assert step["name"] == "in-degree"
    said = tiering_cli(*command, "--damping", "0.5").ok().err
    assert "damping has no effect on in-degree, only on rpr, wrpr" in said
    np.testing.assert_array_equal(tiering.open(tmp_path / "scores").values(), np.diff(graph.csc()[0]))
    tiering_cli("score", graph.path, "--method", "depth", "--out", tmp_path / "out").refused("hybrid, in-degree")
