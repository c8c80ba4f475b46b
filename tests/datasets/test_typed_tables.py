"""Tables of edges and nodes of several types: ids by table, classes, edge data, Neo4j's headers, GraphStorm's JSON."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from typed_tables import RATES, edges_of, write

import tiering
from cli.main import main
from tiering.datasets import name_ids
from tiering.datasets.table_files import Column
from tiering.errors import InputError, MissingError
from tiering.memory import own_memory

RATINGS = [(3, 7, 4.0, 964), (3, 2, 3.5, 981), (9, 2, 5.0, 982), (9, 3, 1.0, 983), (9, 3, 1.0, 983)]
MOVIES = [
    (7, "Heat, 1995", 1995.0, "Crime"), (2, "Jumanji", 1996.0, "Kids"), (5, "Up", 2009.0, ""), (3, "It", 0.5, "Kids"),
]  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "parquet"])
@pytest.mark.parametrize("text", [False, True])
def test_ids_follow_the_table_of_nodes_through_every_stage(tmp_path, monkeypatch, suffix, text):
    monkeypatch.setattr(name_ids, "SMALLEST", 1)
    monkeypatch.setattr(name_ids, "RUN_SHARE", 1 << 60)

    def change(name: str, value: Any) -> Any:
        return f"{name[0]}{value}" if text and name.endswith("Id") else value

    source = tmp_path / "tables"
    source.mkdir()
    write(source / f"ratings.{suffix}", "userId,movieId,rating,time", RATINGS, change)
    write(source / f"movies.{suffix}", "movieId,title,year,genre", MOVIES, change)
    common = ["--memory", "1GiB", "--features", "year", "--label", "genre", "--edge-data", "time,rating"]
    tables = ["--relation", f"user:rates:movie=ratings.{suffix}", "--nodes", f"movie=movies.{suffix}", *common]
    assert main(["import", str(source), "--out", str(tmp_path / "g"), *tables, "--split", "1,0,0"]) == 0
    graph = tiering.open(tmp_path / "g")
    expected = sorted((change("userId", u), change("movieId", m), r, t) for u, m, r, t in RATINGS)
    assert edges_of(graph, RATES) == expected
    assert graph.manifest.array("nodes/movie/label").tolist() == [0, 1, -1, 1]
    assert graph.manifest.body["changes"]["classes"] == {"movie": ["Crime", "Kids"]}
    assert graph.feature_table("movie").open().tolist() == [[row[2]] for row in MOVIES]
    order = [change("movieId", row[0]) for row in MOVIES]
    if text:
        assert graph.names("movie").of(range(4)) == order
        assert graph.names("movie").find(["m2", "m7"]).tolist() == [1, 0]
    else:
        assert graph.manifest.array("nodes/movie/original_id").tolist() == order
    tiering.score_graph(graph, tmp_path / "s", "degree")
    reordered = tiering.reorder_graph(graph, tmp_path / "s", tmp_path / "r")
    assert edges_of(reordered, RATES) == expected
    with tiering.write_layout(reordered, tmp_path / "l", cpu="100%") as layout:
        batch = next(iter(layout.pyg_loader("train", [5], batch_size=3)))
        assert sorted(batch["movie"].x.flatten().tolist()) == sorted(row[2] for row in MOVIES if row[3])
        assert batch[RATES].edge_index.shape[1] == len(RATINGS)
    assert graph.problems("full") == reordered.problems("full") == []


def test_python_takes_mappings_and_gives_the_same_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ratings.csv", "userId,movieId,rating,time", RATINGS)
    write(tmp_path / "movies.parquet", "movieId,title,year,genre", MOVIES)
    short = tiering.import_graph(
        relations={RATES: "ratings.csv:userId,movieId"}, nodes={"movie": "movies.parquet:movieId"},
        weight_column="rating", edge_data="time", features="movie=year", label="genre", out="a",
    )  # fmt: skip
    long = tiering.import_graph(
        relations={
            RATES: {"file": Path("ratings.csv"), "src": "userId", "dst": "1", "weight": "rating", "data": ["time"]}
        },
        nodes={"movie": {"file": ["movies.parquet"], "id": "movieId", "features": ["year"], "label": "genre"}},
        out="b",
    )
    assert edges_of(short, RATES) == edges_of(long, RATES) == sorted((u, m, t, r) for u, m, r, t in RATINGS)
    assert short.manifest.body["node_types"] == long.manifest.body["node_types"]


def test_types_in_a_column_are_relations_in_the_order_of_their_edges(tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.datasets.import_context.CHUNK", 3)
    draw = random.Random(1)
    rows = [(draw.randrange(9), f"/r/{draw.randrange(3)}", draw.randrange(9), k) for k in range(50)]
    path = write(tmp_path / "hrt.tsv", "head,rel,tail,when", rows)
    graph = tiering.import_graph(path, tmp_path / "g", type_column="rel", edge_data="when")
    assert graph.num_nodes("node") == len({end for row in rows for end in (row[0], row[2])})
    for name in sorted({row[1] for row in rows}):
        relation = ("node", name.strip("/").replace("/", "_"), "node")
        assert edges_of(graph, relation) == sorted((h, t, w) for h, r, t, w in rows if r == name)
    assert graph.manifest.body["changes"]["relation_names"]["r_0"] == "/r/0"


def test_unknown_ids_are_refused_or_added_and_rows_without_an_end_are_left_out(tmp_path, capsys):
    rows = [(None, "y", 1), ("a", "x", 2), ("b", "new", 3), ("a", "y", 4), ("c", None, 5)]
    write(tmp_path / "r.parquet", "user,movie,n", rows)
    write(tmp_path / "m.csv", "id,f,label", [("y", 1.0, "A"), ("x", 2.0, "B"), ("w", 3.0, "A")])
    options = {"relations": {RATES: tmp_path / "r.parquet"}, "nodes": {"movie": tmp_path / "m.csv"}}
    options |= {"features": ["f"], "label": "label", "edge_data": "n"}
    message = r"1 of 3 edges name a node of movie that is missing in .*m.csv, the first 'new' at edge 1"
    with pytest.raises(InputError, match=message):
        tiering.import_graph(out=tmp_path / "g", **options)
    added = tiering.import_graph(out=tmp_path / "a", unknown_ids="add", **options)
    assert edges_of(added, RATES) == [("a", "x", 2), ("a", "y", 4), ("b", "new", 3)]
    assert added.names("movie").of(range(4)) == ["y", "x", "w", "new"]
    assert added.feature_table("movie").open().tolist() == [[1.0], [2.0], [3.0], [0.0]]
    assert added.manifest.array("nodes/movie/label").tolist() == [0, 1, 0, -1]
    printed = capsys.readouterr().err
    assert "1 nodes of movie were added" in printed
    assert "2 rows lack an id of an end: they are no edges of user:rates:movie" in printed
    assert added.problems("full") == []
    write(tmp_path / "r.parquet", "user,movie,n", rows[-1:])
    with pytest.raises(InputError, match=r"1 rows lack an id of an end.*and there are no others"):
        tiering.import_graph(out=tmp_path / "g", **options)


def test_neo4j_headers_make_types_and_relations(tmp_path):
    source = tmp_path / "neo4j"
    source.mkdir()
    write(
        source / "p.csv",
        "personId:ID(Person),name,born:int,:LABEL",
        [("k", "Keanu", 1964, "Actor"), ("l", "L", 1961, "A")],
    )
    write(source / "m.csv", "movieId:ID(Movie),title,:LABEL", [("tt2", "The Matrix", "Movie"), ("tt1", "Up", "Movie")])
    roles = [("k", "Neo", "tt2", "ACTED IN"), ("l", "", "tt1", "PRODUCED"), ("l", "", "tt2", "ACTED IN")]
    write(source / "roles.csv", ":START_ID(Person),role,:END_ID(Movie),:TYPE", roles)
    graph = tiering.import_graph(source, tmp_path / "g", features={"Person": ["born"]})
    assert edges_of(graph, ("Person", "ACTED_IN", "Movie")) == [("k", "tt2"), ("l", "tt2")]
    assert edges_of(graph, ("Person", "PRODUCED", "Movie")) == [("l", "tt1")]
    assert graph.names("Movie").of([0, 1]) == ["tt2", "tt1"]
    assert graph.feature_table("Person").open().tolist() == [[1964.0], [1961.0]]
    write(source / "all.csv", ":START_ID,:END_ID", [("k", "tt2")])
    one = tiering.import_graph(source / "all.csv", tmp_path / "one")
    assert edges_of(one, ("node", "all", "node")) == [("k", "tt2")]


def test_graphstorm_configuration(tmp_path):
    write(tmp_path / "r.parquet", "u,m,score", [("a", 1, 0.5), ("b", 0, 1.5)])
    write(tmp_path / "m0.csv", "title,x,genre", [("X", 1.0, 3)])
    write(tmp_path / "m1.csv", "title,x,genre", [("Y", 2.0, 0)])
    movie = {"node_type": "movie", "files": ["m*.csv"], "format": {"name": "csv"}}
    movie |= {
        "features": [{"feature_col": "x", "transform": {"name": "rank_gauss"}}],
        "labels": [{"label_col": "genre"}],
    }
    edge = {"relation": list(RATES), "files": "r.parquet", "source_id_col": "u", "dest_id_col": "m"}
    edge["features"] = [{"feature_col": "score"}]
    (tmp_path / "c.json").write_text(json.dumps({"nodes": [{**movie, "node_id_col": "title"}], "edges": [edge]}))
    with pytest.raises(InputError, match="edges name a node of movie that is missing"):
        tiering.import_graph(tmp_path / "c.json", tmp_path / "g")
    write(tmp_path / "r.parquet", "u,m,score", [("a", "Y", 0.5), ("b", "X", 1.5)])
    graph = tiering.import_graph(tmp_path / "c.json", tmp_path / "g")
    assert edges_of(graph, RATES) == [("a", "Y", 0.5), ("b", "X", 1.5)]
    assert graph.manifest.array("nodes/movie/label").tolist() == [3, 0]
    assert "transforms are not applied: x" in graph.manifest.body["changes"]["warnings"][0]


@pytest.mark.parametrize(("values", "expected"), [
    (["2", "3"], [2, 3]), (["2", "3.5"], [2.0, 3.5]), (["1970-01-02", "1970-01-01 00:00:07"], [86400, 7]),
    (["1970-01-01T00:00:09Z", "1970-01-01T00:00:01.5Z"], [9, 1]),
    (pa.array([1500, 7], pa.timestamp("ms")), [1, 0]), (pa.array([True, False]), [1, 0]),
    (pa.array([1, None]), [1.0, None]),
])  # fmt: skip
def test_numbers_and_times(values, expected):
    array = values if isinstance(values, pa.Array) else pa.array(values)
    read = Column("c", array, "c", 0).numbers()
    assert read.dtype.name == ("float64" if any(isinstance(value, float) for value in expected) else "int64")
    assert [None if value != value else value for value in read.tolist()] == expected


@pytest.mark.parametrize(("options", "message"), [
    ({"relations": {("a", "b"): "r.csv"}}, "expected SRC:NAME:DST=FILE"),
    ({"relations": {RATES: "s.csv"}}, "s.csv: no such file"),
    (
        {"relations": {RATES: "r.csv"}, "src_column": "u"},
        "column of destinations of user:rates:movie, found u, i, n, t",
    ),
    ({"relations": {RATES: "r.csv:u,x"}}, "x: no such column; there are: u, i, n, t"),
    ({"relations": {RATES: "r.csv:u,i"}, "weight_column": "w"}, "weight_column w: no table has this column"),
    ({"relations": {RATES: "r.csv:u,i"}, "edge_data": "t"}, "expected a number or a time, found 'x' at row 1"),
    ({"relations": {RATES: "r.csv:n,i"}}, "found 'b' at row 1; correct it, or give `string_ids` if"),
    (
        {"relations": {RATES: "r.csv:u,i"}, "nodes": {"movie": "m.csv"}, "id_column": "u"},
        "expected each id once, found 1",
    ),
    ({"relations": {RATES: {"file": "r.csv", "source": "u"}}}, "expected src, dst, .* or file, found 'source'"),
    ({"relations": {RATES: "r.csv:u,i"}, "compact_ids": True}, "compact_ids: does not apply with"),
    ({"relations": {RATES: "r.csv:u,i"}, "features": {"movie": ["n"]}}, "features n: no table has this column"),
    ({"nodes": {"movie": "m.csv"}}, "the dataset is missing"),
])  # fmt: skip
def test_refusals_name_the_file_and_what_settles_it(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text("u,i,n,t\n1,1,1,1\n2,2,b,x\n")
    Path("m.csv").write_text("u\n1\n2\n1\n")
    with pytest.raises((InputError, MissingError), match=message):
        tiering.import_graph(out="g", **options)
    assert not Path("g").exists()


def test_damaged_order_of_names_is_found(tmp_path):
    write(tmp_path / "r.csv", "user,movie", [("a", "x"), ("b", "y")])
    write(tmp_path / "m.csv", "id", [("y",), ("x",)])
    tiering.import_graph(relations={RATES: tmp_path / "r.csv"}, nodes={"movie": tmp_path / "m.csv"}, out=tmp_path / "g")
    file = tmp_path / "g/names/nodes/movie/ranks"
    ranks = np.memmap(file, np.int64, "r+")
    ranks[0] = 0
    ranks.flush()
    assert any("expected the inverse of ids" in str(problem) for problem in tiering.check(tmp_path / "g", "structure"))


def test_the_page_runs(tmp_path, monkeypatch, repository):
    monkeypatch.chdir(tmp_path)
    page = (repository / "docs/importing.md").read_text()
    section = re.search(r"^## Tables of several types.*?(?=^## )", page, re.MULTILINE | re.DOTALL)[0]
    for name, text in re.findall(r"^`([\w.]+)`:\n\n```csv\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        Path(name).write_text(text)
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(code, "importing.md", "exec"), {})  # noqa: S102 - our own page
    for name in ("ratings", "movies"):
        assert edges_of(tiering.open(name), RATES)[0][:2] == (3, 2)
    assert tiering.open("movies").num_nodes("user") == 2
    assert tiering.open("from-python").manifest.array("nodes/movie/original_id").tolist() == [7, 2, 5]


def test_row_numbers_are_ids_and_stated_numbers_of_nodes_are_kept(tmp_path):
    path = write(tmp_path / "review.parquet", "customer,stars", [(4, 1.5), (0, 2.0), (4, 0.5)])
    options = {"relations": {("review", "by", "customer"): f"{path}:#,customer"}, "weight_column": "stars"}
    graph = tiering.import_graph(out=tmp_path / "g", num_nodes={"customer": 6}, **options)
    assert (graph.num_nodes("review"), graph.num_nodes("customer")) == (3, 6)
    assert edges_of(graph, ("review", "by", "customer")) == [(0, 4, 1.5), (1, 0, 2.0), (2, 4, 0.5)]
    with pytest.raises(InputError, match=r"`num_nodes` says 4 nodes, ids 0..3, but id 4 occurs"):
        tiering.import_graph(out=tmp_path / "h", num_nodes={"customer": 4}, **options)


def test_lists_are_features(tmp_path):
    lists = pa.array([[1.0, 2.0], [3.0, 4.0]])
    for k, kind in enumerate([lists.type, pa.list_(pa.float32(), 2), pa.large_list(pa.int64())]):
        pa_parquet.write_table(pa.table({"id": ["b", "a"], "x": [9, 8], "e": lists.cast(kind)}), tmp_path / "n.parquet")
        write(tmp_path / "e.csv", "user,movie", [("u", "a")])
        tables = {"relations": {RATES: tmp_path / "e.csv"}, "nodes": {"movie": tmp_path / "n.parquet"}}
        graph = tiering.import_graph(out=tmp_path / f"g{k}", features="x,e", **tables)
        assert graph.feature_table("movie").open().tolist() == [[9.0, 1.0, 2.0], [8.0, 3.0, 4.0]]
    pa_parquet.write_table(pa.table({"id": ["b", "a"], "e": [[1.0], [2.0, 3.0]]}), tmp_path / "n.parquet")
    with pytest.raises(InputError, match=r"expected lists of one length, found lengths \[1, 2\]"):
        tiering.import_graph(out=tmp_path / "h", features="e", **tables)


def test_wide_tables_are_read_in_pieces_of_few_rows(tmp_path, peak_memory, settled_memory):
    rows = np.broadcast_to(np.float32(0.5), 64 * 200_000)
    (source := tmp_path / "tables").mkdir()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows), 64)
    pa_parquet.write_table(pa.table({"id": np.arange(200_000), "x": lists}), source / "wide.parquet")
    write(source / "edges.csv", "src,dst", [(7, 3)])
    tables = {"relations": {("a", "to", "a"): "edges.csv"}, "nodes": {"a": {"file": "wide.parquet", "features": "x"}}}
    own = own_memory()
    with peak_memory() as peak:
        graph = tiering.import_graph(source, tmp_path / "g", memory=own + (300 << 20), **tables)
    assert graph.feature_table("a").dim == 64
    assert peak.bytes - own < 200 << 20  # 345 MiB when read by the million rows


def test_the_row_number_as_edge_data(tmp_path):
    (source := tmp_path / "e.csv").write_text("h,r,t\na,x,b\nb,y,c\n,x,c\nc,x,a\n")
    options = {"type_column": "r", "edge_data": "#", "string_ids": True}
    graph = tiering.import_graph(source, tmp_path / "g", src_column="h", dst_column="t", edge_ids=True, **options)
    rows = {relation[1]: graph.edge_data(relation) for relation in graph.relations}
    assert {name: sorted(data["row"].tolist()) for name, data in rows.items()} == {"x": [0, 3], "y": [1]}
    assert {name: sorted(data["edge_ids"].tolist()) for name, data in rows.items()} == {"x": [0, 1], "y": [0]}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_of_splits(tmp_path: Path, suffix: str) -> None:
    """Rows of several files and pieces; words in any case, nothing where a row is in no split."""
    words = ["train", "Valid", "test", "", "TRAIN", "validation", "val", "train"]
    parts = [[(f"u{k}", words[k]) for k in rows] for rows in ((0, 1, 2), (3, 4, 5), (6, 7))]
    (tmp_path / "users").mkdir()
    for number, rows in enumerate(parts):
        write(tmp_path / f"users/{number}.{suffix}", "id,fold", rows)
    edges = write(tmp_path / f"e.{suffix}", "src,dst", [(f"u{k}", f"u{(k + 1) % 8}") for k in range(8)])
    options: Any = {"relations": {("user", "follows", "user"): edges}}
    nodes = {"nodes": {"user": tmp_path / "users"}, "split_column": "fold"}
    column = {"nodes": {"user": {"file": str(tmp_path / "users"), "split": "fold"}}}
    for number, given in enumerate((nodes, nodes | {"split_column": {"user": "fold"}}, column)):
        graph = tiering.import_graph(out=tmp_path / f"g{number}", **options, **given)
        found = {name: [graph.names("user").of([k])[0] for k in graph.split(name)] for name in graph.splits("user")}
        assert found == {"train": ["u0", "u4", "u7"], "val": ["u1", "u5", "u6"], "test": ["u2"]}
    write(tmp_path / f"users/1.{suffix}", "id,fold", [("u3", "holdout"), ("u4", "train"), ("u5", "")])
    with pytest.raises(InputError, match=r"column fold: expected train, val .*, test, or nothing, found 'holdout'"):
        tiering.import_graph(out=tmp_path / "x", **options, **nodes)
    with pytest.raises(InputError, match=r"split_column.* folds: no table has this column"):
        tiering.import_graph(out=tmp_path / "x", **options, **nodes | {"split_column": "folds"})


@pytest.mark.parametrize(("labels", "options", "expected", "said"), [
    ("a,unknown,None,b", {}, [1, 3, 0, 2], "note: None,unknown: classes of n; .*`no_label`"),
    ("a,unknown,None,b", {"no_label": "unknown,None"}, [0, -1, -1, 1], None),
    ("a,,None,b", {"no_label": ["None"]}, [0, -1, -1, 1], None),
    ("3,?,5,4", {"no_label": "?"}, [3, -1, 5, 4], "labels 3 to 5 make 6 classes, of which 3 have nodes; number"),
    ("0,99.0,1,99", {"no_label": "99"}, [0, -1, 1, -1], None),
    ("10,20,20,10", {}, [10, 20, 20, 10], "labels 10 to 20 make 21 classes, of which 2 have nodes"),
    ("0,1,,2", {}, [0, 1, -1, 2], None), ("?,?,?,?", {"no_label": "?"}, [-1, -1, -1, -1], None),
])  # fmt: skip
def test_what_is_no_label_and_which_classes_have_no_nodes(tmp_path, capsys, labels, options, expected, said):
    write(tmp_path / "e.csv", "src,dst", [(0, 3)])
    write(tmp_path / "n.csv", "id,y", list(enumerate(labels.split(","))))
    tables = {"relations": {("n", "to", "n"): tmp_path / "e.csv"}, "nodes": {"n": tmp_path / "n.csv"}}
    graph = tiering.import_graph(**tables, label="y", **options, out=tmp_path / "g")
    assert graph.labels().tolist() == expected
    told = capsys.readouterr().err
    assert re.search(said, told) if said else "note:" not in told
    with pytest.raises(InputError, match="no_label: no column of labels is named"):
        tiering.import_graph(**tables, no_label="x", out=tmp_path / "other")


@pytest.mark.parametrize("kind", ["text", "lists"])
def test_features_that_float32_cannot_hold_are_refused_by_row_and_column(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tiering.datasets.table_files._PIECE_ROWS", 2)
    values = [1.5, np.inf, -3e38, 7.0, -1e39, 2.0]
    write(tmp_path / "e.csv", "src,dst", [(0, 3)])
    if kind == "text":
        write(tmp_path / "n.csv", "id,f", list(enumerate(values)))
    else:
        pa_parquet.write_table(pa.table({"id": range(6), "f": [[0.0, v] for v in values]}), tmp_path / "n.parquet")
    name = "n.csv" if kind == "text" else "n.parquet"
    with pytest.raises(InputError, match=rf"{name}: column f: expected features of float32.* found -1e\+39 at row 4;"):
        tiering.import_graph(
            relations={("n", "to", "n"): tmp_path / "e.csv"}, nodes={"n": tmp_path / name}, features="f",
            out=tmp_path / "g",
        )  # fmt: skip
