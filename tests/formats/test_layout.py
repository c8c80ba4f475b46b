"""The layout artifact: adjacency lists of the gpu tier, what readers refuse, and the version before."""

import shutil
from pathlib import Path

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
def split(tmp_path):
    """A copy of the example with a split."""
    shutil.copytree(EXAMPLES / "layout-split", tmp_path / "layout")
    return tmp_path / "layout"


def test_lists_of_the_example():
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


def test_edges_of_the_example():
    layout = Layout.open(EXAMPLES / "layout-edges")
    assert layout.feature_types == ["paper"] and layout.edge_feature_relations == [("paper", "cites", "paper")]
    assert layout.edge_table() == layout.edge_table("cites") == CITES
    entry = layout.type_layout(CITES)
    assert (entry.num_nodes, entry.dim, entry.dtype, entry.row_bytes) == (4, 2, "bfloat16", 4)
    with pytest.raises(MissingError, match=r"author:writes:paper have no tiered features; .*: paper:cites:paper"):
        layout.edge_table("writes")
    assert layout.summary()["edge_tables"][CITES]["tiers"]["ssd"] == {"ranks": [2, 4], "rows": 2, "bytes": 8}
    with tiering.open(EXAMPLES / "layout-edges") as opened:
        bits = opened.edge_features(verify=True).gather_numpy(np.arange(4)).tolist()
    assert bits == [[0x3F80, 0x3F81], [0x3F82, 0x3F83], [0x3F84, 0x3F85], [0x3F86, 0x3F87]]


DAMAGED_EDGES = [
    (lambda d: d.update(requires=[]), "edge_tables"),
    (lambda d: d["body"].pop("edge_tables"), "edge_tables"),
    (lambda d: d["body"]["edge_tables"][CITES].update(num_edges=5), "4 edges, 2 x bfloat16, found 5 edges"),
    (lambda d: d["body"]["edge_tables"][CITES].update(dim=1), "4 edges, 2 x bfloat16, found 4 edges, 1 x"),
    (lambda d: d["body"]["edge_tables"][CITES].update(cpu=[2, 2]), "to begin at rank 1"),
    (lambda d: d["body"].update(edge_tables={}), "edge_tables"),
    (lambda d: d["body"].update(edge_tables={WRITES: d["body"]["edge_tables"][CITES]}), "no features in the graph"),
    (lambda d: d["body"].update(edge_tables={"a:b:c": d["body"]["edge_tables"][CITES]}), "has no such relation"),
    (lambda d: d["body"].update(edge_tables={"cites": d["body"]["edge_tables"][CITES]}), "edge_tables"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED_EDGES)
def test_edges_that_do_not_fit_the_graph_are_refused(tmp_path, damage, words):
    shutil.copytree(EXAMPLES / "layout-edges", tmp_path / "layout")
    edit_manifest(tmp_path / "layout", damage)
    with pytest.raises(FormatError, match=words):
        Layout.open(tmp_path / "layout")


def test_info_shows_both(tiering_cli):
    shown = tiering_cli("info", EXAMPLES / "layout-split").ok().out
    assert "GPU memory: 120 B, split auto" in shown and "Adjacency lists on the GPU" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["feature", "rows", "12", "B", "3", "72.7", "%", "6", "ns", "8.25", "ns"] in lines
    assert [CITES, "2", "50.0", "%", "3", "75.0", "%", "44", "B"] in lines
    assert "GPU memory" not in tiering_cli("info", EXAMPLES / "layout").ok().out
    assert tiering_cli("info", EXAMPLES / "layout-split", "--json").ok().json["adjacency"][CITES]["columns"] == 2


DAMAGES = {
    "columns": (lambda b: b["adjacency"][CITES].update(columns=5), r"cites:paper.columns: expected at most 4, found 5"),
    "edges": (lambda b: b["adjacency"][CITES].update(edges=5), r"cites:paper.edges: expected at most 4, found 5"),
    "bytes": (lambda b: b["adjacency"][CITES].update(bytes=37), r"cites:paper.bytes: expected 44, found 37"),
    "weights": (lambda b: b["adjacency"][CITES].update(weights=True), r"cites:paper.bytes: expected 68, found 44"),
    "no columns": (lambda b: b["adjacency"][CITES].update(columns=0), r"columns: 0 is less than 1"),
    "negative": (lambda b: b["adjacency"][CITES].update(edges=-1), r"cites:paper.edges: -1 is less than 0"),
    "relation": (
        lambda b: b["adjacency"].update(likes=b["adjacency"].pop(CITES)),
        r"adjacency.likes: the graph has no such relation, only author:writes:paper, paper:cites:paper",
    ),
    "sum": (lambda b: b["adjacency"].pop(CITES), r"split.adjacency_bytes: expected 52, found 96"),
    "rows": (lambda b: b["split"].update(feature_bytes=24), r"split.feature_bytes: expected 12, found 24"),
    "budget": (lambda b: b["split"].update(budget_bytes=80), r"split.budget_bytes: expected at least 108, found 80"),
    "half": (lambda b: b.pop("adjacency"), r"'adjacency' is missing, which 'split' needs"),
    "other half": (lambda b: b.pop("split"), r"'split' is missing, which 'adjacency' needs"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_lists_that_do_not_fit_the_graph(split, name):
    damage, message = DAMAGES[name]
    edit_manifest(split, lambda document: damage(document["body"]))
    with pytest.raises(FormatError, match=message):
        Layout.open(split)


def test_edges_are_those_of_indptr(split):
    """Seen with the structure: the manifest alone does not know ``indptr``."""

    def change(document):
        document["body"]["adjacency"][CITES].update(edges=2, bytes=40)
        document["body"]["split"]["adjacency_bytes"] -= 4

    edit_manifest(split, change)
    assert Layout.open(split).adjacency_prefix("cites").columns == 2
    problems = [str(problem) for problem in tiering.check(split)]
    assert len(problems) == 1
    assert "adjacency.paper:cites:paper.edges: expected 3, which is indptr[2], found 2" in problems[0]


def test_a_graph_that_is_damaged_is_said_of_the_graph(split):
    np.array([0, 0, 3, 4], np.int64).tofile(split / "graph/relations/paper__cites__paper/indptr")
    problems = [str(problem) for problem in tiering.check(split)]
    assert problems and all("graph/" in problem for problem in problems)
