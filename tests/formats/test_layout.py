"""The layout artifact: adjacency lists of the gpu tier, what readers refuse, and the version before."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sealed import edit_manifest

import tiering
from tiering.codecs.int8 import Int8
from tiering.errors import FormatError, MissingError
from tiering.formats.adjacency_prefix import AdjacencyPrefix
from tiering.formats.layout import Layout
from tiering.formats.ssd_rows import SsdRows

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


def test_rows_of_the_coded_example():
    layout = Layout.open(EXAMPLES / "layout-codec")
    entry = layout.type_layout("paper")
    assert (entry.codec, entry.dtype, entry.row_bytes, entry.stored) == ("int8", "float32", 4, ("uint8", 4))
    with tiering.open(EXAMPLES / "layout-codec") as opened:
        rows = opened.features(verify=True).gather_numpy(np.arange(4)).tolist()
    assert rows == [[6, 7, 8], [0, 1, 2], [3, 4, 5], [9, 10, 11]]


DAMAGED_CODECS = [
    (lambda d: d.update(requires=["units"]), r"requires: expected 'codec' where a table has a codec"),
    (lambda d: d["body"]["node_types"]["paper"].pop("codec"), r"row_bytes: expected 12 \(3 x float32"),
    (lambda d: d["body"]["node_types"]["paper"]["codec"].update(name="int9"), "codec.name"),
    (
        lambda d: d["body"]["node_types"]["paper"]["codec"].update(name="float16"),
        r"row_bytes: expected 8 \(3 x float16",
    ),
    (lambda d: d["body"]["node_types"]["paper"]["codec"].update(exact_columns=[1]), "exact_columns"),
    (lambda d: d["body"]["node_types"]["paper"]["codec"].pop("loss"), "loss"),
    (lambda d: d["files"].pop("codecs/paper"), "codecs/paper"),
    (lambda d: d["files"]["codecs/paper"].update(shape=[16], bytes=16), "codecs/paper"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED_CODECS)
def test_codecs_that_do_not_fit_are_refused(tmp_path, damage, words):
    shutil.copytree(EXAMPLES / "layout-codec", tmp_path / "layout")
    edit_manifest(tmp_path / "layout", damage)
    with pytest.raises(FormatError, match=words):
        Layout.open(tmp_path / "layout")


def test_parameters_that_no_fit_gives_are_refused():
    """A scale of 0, an offset beyond the whole numbers of float32."""
    for at, value in ((0, np.float32(0)), (12, np.int32(2**24))):
        data = bytearray((EXAMPLES / "layout-codec/codecs/paper").read_bytes())
        data[at : at + 4] = value.tobytes()
        with pytest.raises(FormatError, match=r"of column 0 are no valid int8 parameters; make it again"):
            Int8.from_bytes(bytes(data), 3, "codecs/paper")


def test_info_shows_what_a_codec_lost(tiering_cli, tmp_path):
    """A table of its own, with the worst column by its name in the source."""
    rows = "".join(f"{movie},{movie * movie / 7},{movie % 3}\n" for movie in range(30))
    (tmp_path / "movies.csv").write_text(f"id,age,stars\n{rows}")
    (tmp_path / "links.csv").write_text("u,m\n" + "".join(f"{movie % 7},{movie}\n" for movie in range(30)))
    graph, scores, reordered = (tmp_path / name for name in ("graph", "scores", "reordered"))
    tables = ("--relation", f"user:saw:movie={tmp_path}/links.csv", "--nodes", f"movie={tmp_path}/movies.csv:id")
    tiering_cli("import", *tables, "--features", "age,stars", "--out", graph).ok()
    tiering_cli("score", graph, "--method", "degree", "--out", scores).ok()
    tiering_cli("reorder", graph, "--scores", scores, "--out", reordered).ok()
    made = tiering_cli("layout", reordered, "--dtype", "movie=int8", "--out", tmp_path / "layout").ok()
    assert "movie: rows of 4 B, int8: rms " in made.err and "worst column age (rms " in made.err
    line = next(line.split() for line in made.out.splitlines() if "int8" in line)
    codec = tiering_cli("info", tmp_path / "layout", "--json").ok().json["node_types"]["movie"]["codec"]
    figures = (f"{codec['loss'][name]:.2g}" for name in ("rms", "largest", "worst_rms"))
    rms, largest, worst = figures
    assert line == ["movie", "float32", "int8", "4", "B", rms, largest, "age", f"({worst})", "1", "of", "2"]
    assert codec["worst_column_name"] == "age"
    html = tiering.open(tmp_path / "layout")._repr_html_()
    assert "worst column" in html and f"age ({worst})" in html
    shown = tiering_cli("info", EXAMPLES / "layout-codec").ok().out
    assert ["paper", "float32", "int8", "4", "B", "0", "0", "-", "3", "of", "3"] in map(str.split, shown.splitlines())


def test_info_shows_both(tiering_cli):
    shown = tiering_cli("info", EXAMPLES / "layout-split").ok().out
    assert "GPU memory: 120 B, split: auto" in shown and "Adjacency lists on the GPU" in shown
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


@given(
    first=st.integers(0, 5), stride=st.integers(1, 700).map(lambda n: 4 * n), pages=st.integers(6, 40),
    through=st.booleans(), rows=st.integers(1, 3000), asked=st.integers(0, 3000),
)  # fmt: skip
def test_rows_after_whole_units_lie_where_they_lay(first, stride, pages, through, rows, asked):
    """Also of older layouts, whose rows run through the ends of units."""
    unit = 512 * pages
    place = SsdRows.plan(first, rows, stride, unit)
    place = replace(place, rows_per_unit=0, num_units=-(-rows * stride // unit)) if through else place
    skipped, after = place.skip(min(asked, rows), unit)
    assert min(asked, rows) - unit < skipped <= min(asked, rows)
    assert after.first_unit + after.num_units == first + place.num_units
    numbers = np.arange(skipped, rows)
    before, found = place.begins(numbers, unit), after.begins(numbers - skipped, unit)
    np.testing.assert_array_equal(found + after.first_unit * unit, before + first * unit)
