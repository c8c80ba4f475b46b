"""The layout artifact: adjacency lists of the gpu tier, what readers refuse, and the version before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sealed import edit_manifest

import tiering
from tiering.errors import FormatError, MissingError
from tiering.formats.adjacency_prefix import AdjacencyPrefix
from tiering.formats.layout import Layout

EXAMPLES = Path(__file__).resolve().parents[2] / "data_specs" / "examples"
WRITES, CITES = "author:writes:paper", "paper:cites:paper"


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A copy of the example with a split."""
    shutil.copytree(EXAMPLES / "layout-split", tmp_path / "layout")
    return tmp_path / "layout"


def test_lists_of_the_example() -> None:
    layout = Layout.open(EXAMPLES / "layout-split")
    assert layout.manifest.version == (1, 2)
    for relation in ("cites", CITES, ("paper", "cites", "paper")):
        assert layout.adjacency_prefix(relation) == AdjacencyPrefix(2, 3, 44)
    assert layout.adjacency_prefix("writes").columns == 3
    with pytest.raises(MissingError, match="no single relation 'likes'"):
        layout.adjacency_prefix("likes")
    summary = layout.summary()
    assert summary["split"] == layout.split
    held = {"columns": 2, "edges": 3, "bytes": 44, "weights": False}
    assert summary["adjacency"][CITES] == {**held, "of_columns": 4, "of_edges": 4}


def test_without_a_split() -> None:
    layout = Layout.open(EXAMPLES / "layout")
    assert layout.split is None
    assert not {"adjacency", "split"} & (set(layout.manifest.body) | set(layout.summary()))
    assert layout.adjacency_prefix("writes") == AdjacencyPrefix(0, 0, 0)


def test_info_shows_both(tiering_cli: Any) -> None:
    shown = tiering_cli("info", EXAMPLES / "layout-split").ok().out
    assert "GPU memory: 120 B, split auto" in shown and "Adjacency lists on the GPU" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["feature", "rows", "12", "B", "3", "72.7", "%", "6", "ns", "8.25", "ns"] in lines
    assert [CITES, "2", "50.0", "%", "3", "75.0", "%", "44", "B"] in lines
    assert "GPU memory" not in tiering_cli("info", EXAMPLES / "layout").ok().out
    assert tiering_cli("info", EXAMPLES / "layout-split", "--json").ok().json["adjacency"][CITES]["columns"] == 2


def _relation(body: dict[str, Any], name: str, value: int) -> None:
    body["adjacency"][CITES][name] = value


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "columns": (lambda b: _relation(b, "columns", 5), r"cites:paper.columns: expected at most 4, found 5"),
    "edges": (lambda b: _relation(b, "edges", 5), r"cites:paper.edges: expected at most 4, found 5"),
    "bytes": (lambda b: _relation(b, "bytes", 37), r"cites:paper.bytes: expected 44, found 37"),
    "weights": (lambda b: b["adjacency"][CITES].update(weights=True), r"cites:paper.bytes: expected 68, found 44"),
    "no columns": (lambda b: _relation(b, "columns", 0), r"cites:paper.columns: 0 is less than the minimum of 1"),
    "negative": (lambda b: _relation(b, "edges", -1), r"cites:paper.edges: -1 is less than the minimum"),
    "relation": (
        lambda b: b["adjacency"].update(likes=b["adjacency"].pop(CITES)),
        r"adjacency.likes: the graph has no such relation, only author:writes:paper, paper:cites:paper",
    ),
    "sum": (lambda b: b["adjacency"].pop(CITES), r"split.adjacency_bytes: expected 52, found 96"),
    "rows": (lambda b: b["split"].update(feature_bytes=24), r"split.feature_bytes: expected 12, found 24"),
    "budget": (lambda b: b["split"].update(budget_bytes=80), r"split.budget_bytes: expected at least 108, found 80"),
    "half": (lambda b: b.pop("adjacency"), r"'adjacency' is a dependency of 'split'"),
    "other half": (lambda b: b.pop("split"), r"'split' is a dependency of 'adjacency'"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_lists_that_do_not_fit_the_graph(split: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    edit_manifest(split, lambda document: damage(document["body"]))
    with pytest.raises(FormatError, match=message):
        Layout.open(split)


def test_edges_are_those_of_indptr(split: Path) -> None:
    """Seen with the structure: the manifest alone does not know ``indptr``."""

    def change(document: dict[str, Any]) -> None:
        _relation(document["body"], "edges", 2)
        _relation(document["body"], "bytes", 40)
        document["body"]["split"]["adjacency_bytes"] -= 4

    edit_manifest(split, change)
    assert Layout.open(split).adjacency_prefix("cites").columns == 2
    problems = [str(problem) for problem in tiering.check(split)]
    assert len(problems) == 1
    assert "adjacency.paper:cites:paper.edges: expected 3, which is indptr[2], found 2" in problems[0]


def test_a_graph_that_is_damaged_is_said_of_the_graph(split: Path) -> None:
    np.array([0, 0, 3, 4], np.int64).tofile(split / "graph/relations/paper__cites__paper/indptr")
    problems = [str(problem) for problem in tiering.check(split)]
    assert problems and all("graph/" in problem for problem in problems)
