"""Where tables lie, and what their ids are: parts with and without header, formats of tables, exact ids."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from typed_tables import RATES, edges_of, write

import tiering
from tiering.datasets.table_specs import tables_by_keys
from tiering.errors import InputError


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_text_ids_keep_every_character(tmp_path, suffix):
    users = ["a", "a ", " a", "\u2028a", "\u00a0", "a\t", " "]
    path = write(tmp_path / f"r.{suffix}", "user,movie", [(user, "x") for user in users])
    nodes = write(tmp_path / f"u.{suffix}", "id,n", [(user, 1) for user in reversed(users)])
    graph = tiering.import_graph(relations={RATES: path}, nodes={"user": nodes}, out=tmp_path / "g")
    assert graph.names("user").of(range(7)) == users[::-1]
    assert edges_of(graph, RATES) == sorted((user, "x") for user in users)


def test_ids_are_names_if_any_of_a_type_is_not_written_as_numbers_are(tmp_path, monkeypatch, capsys):
    """Whichever piece of whichever table it is in; the warnings of a table that is read twice come once."""
    monkeypatch.setattr("tiering.datasets.table_files._PIECE_ROWS", 2)
    write(tmp_path / "u.csv", "id,f", [(f" {k}" if k == 3 else k, k) for k in range(1, 9)])
    pa_parquet.write_table(pa.table({"user": pa.array([1, 8], pa.int32()), "movie": [0, 1]}), tmp_path / "p.parquet")
    rates = {RATES: tmp_path / "r.csv", ("user", "saw", "movie"): tmp_path / "p.parquet"}
    options = {"relations": rates, "nodes": {"user": tmp_path / "u.csv"}, "unknown_ids": "add", "features": ["f"]}
    for k, (odd, plain) in enumerate([("007", "7"), ("+7", "7"), ("-0", "0"), ("00", "0"), ("7", "7")]):
        rows = [(1, 0), (2, 1), (4, 1), (5, 1), (6, 0), (None, 0), (7, 1), (odd, 0), (8, 0)]
        write(tmp_path / "r.csv", "user,movie", rows)
        graph = tiering.import_graph(out=tmp_path / f"g{k}", **options)
        users = sorted(graph.names("user").of(range(len(graph.names("user"))))) if odd != plain else None
        numbers = [1, 2, 3, 4, 5, 6, 7, 8]
        assert users == (None if odd == plain else sorted([odd, " 3", *(str(n) for n in numbers if n != 3)]))
        convert = int if odd == plain else str
        edges = sorted((convert(u), m) for u, m in rows if u is not None)
        assert edges_of(graph, RATES) == edges
        assert edges_of(graph, ("user", "saw", "movie")) == [(convert(1), 0), (convert(8), 1)]
        assert graph.names("movie") is None
        warned = graph.manifest.body["changes"]["warnings"]
        assert sum("rows lack an id" in warning for warning in warned) == 1
        printed = capsys.readouterr().err
        assert (f"ids are names, since '{odd}' at row 7 is not the usual form" in printed) == (odd != plain)


BIG, DECIMAL = 10**37, pa.decimal128(38, 0)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("kind", "values", "stored"), [
    (pa.uint64(), [7, 2**63 - 1, 2**63, 2**64 - 1], np.uint64),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1], np.int64), (DECIMAL, [-1, 0, 5, 2**63 - 1], np.int64),
    (DECIMAL, [0, 5, 2**63, 2**64 - 1], np.uint64), (DECIMAL, [-1, 5, 2**63, 2**64 - 1], None),
    (DECIMAL, [-BIG, 5, 2**64, BIG], None),
])  # fmt: skip
def test_ids_of_64_bits_and_more_are_exact_wherever_they_are_made_dense(
    tmp_path, monkeypatch, suffix, kind, values, stored
):
    """What tells their kind is in the last of several pieces."""
    monkeypatch.setattr("tiering.datasets.table_files._PIECE_ROWS", 2)
    monkeypatch.setattr("tiering.datasets.text.BLOCK_BYTES", 64)
    monkeypatch.setattr("tiering.datasets.readers.parquet.CHUNK", 2)
    edges = [(5, 5)] * 9 + [(values[k], values[k - 1]) for k in (1, 2, 3, 0)]
    edges = edges if 5 in values else edges[9:]
    columns = {end: pa.array([pair[k] for pair in edges], kind) for k, end in enumerate(("src", "dst"))}
    path = tmp_path / f"e.{suffix}"
    if suffix == "csv":
        write(path, "src,dst", edges)
    else:
        pa_parquet.write_table(pa.table(columns), path, row_group_size=3)
    graphs = [tiering.import_graph(relations={("n", "to", "n"): path}, out=tmp_path / "t")]
    if stored is not None or suffix == "parquet":  # of text without names only numbers of 64 bits are read
        graphs.append(tiering.import_graph(path, tmp_path / "p", compact_ids=True))
    for graph in graphs:
        convert = int if stored is not None else str
        assert edges_of(graph, graph.relations[0]) == sorted((convert(u), convert(v)) for u, v in edges)
        if stored is not None:
            assert graph.manifest.array(f"nodes/{graph.node_types[0]}/original_id").dtype == stored
        assert graph.problems("full") == []
    if max(values) >= 2**63 or min(values) < 0:
        with pytest.raises(InputError, match=r"`compact_ids`|say `string_ids` if they are names"):
            tiering.import_graph(path, tmp_path / "n")


@pytest.mark.parametrize("first", ["movie|user|n", "x|y|z"])
@pytest.mark.parametrize("parts", [
    {"p0": "H0", "p1": "1", "p2": "23"}, {"p0": "0", "p1": "H1", "p2": "23"}, {"p0": "01", "p1": "2", "p2": "H3"},
    {"p0": "H", "p1": "01", "p2": "23"}, {"p0": "01", "p1": "23", "p2": "H"}, {"p0": "H01", "p1": "H", "p2": "H23"},
    {"p0": "", "p1": "H01", "p2": "", "p3": "H23"},
])  # fmt: skip
def test_parts_of_a_table_have_the_header_of_any_of_them(tmp_path, parts, first):
    """Spark and LDBC's generator write such: parts without header, and parts of a header alone."""
    (folder := tmp_path / "parts").mkdir()
    rows = ["1|7|1", "2|8|2", "3|9|3", "4|7|4"]
    for name, lines in parts.items():
        text = "".join(f"{first if line == 'H' else rows[int(line)]}\n" for line in lines)
        (folder / f"{name}.csv").write_text(text)
    src, dst, data = first.split("|")[1], first.split("|")[0], first.split("|")[2]
    table = {"file": folder, "src": src, "dst": dst, "data": data}
    graph = tiering.import_graph(relations={RATES: table}, out=tmp_path / "g")
    expected = sorted((int(u), int(m), int(n)) for m, u, n in (row.split("|") for row in rows))
    assert edges_of(graph, RATES) == expected
    assert "ignored_files" not in graph.manifest.changes
    if first != "x|y|z":
        options = {"relations": {RATES: f"{folder}/*.csv"}, "edge_data": "n"}
        assert edges_of(tiering.import_graph(out=tmp_path / "h", **options), RATES) == expected
        options = {"relations": {RATES: ",".join(map(str, sorted(folder.iterdir())))}, "edge_data": "n"}
        assert edges_of(tiering.import_graph(out=tmp_path / "l", **options), RATES) == expected


def test_parts_that_do_not_fit_are_refused(tmp_path):
    (folder := tmp_path / "parts").mkdir()
    (folder / "a.csv").write_text("user,movie\n1,2\n")
    (folder / "b.csv").write_text("1,2,3\n")
    with pytest.raises(InputError, match=r"b.csv: expected 2 columns as in another part \(user, movie\), found 3"):
        tiering.import_graph(relations={RATES: folder}, out=tmp_path / "g")
    (folder / "b.csv").write_text("ann,bob\n")
    (folder / "a.csv").write_text("x,y\nann,bob\n")
    with pytest.raises(InputError, match=r"the parts have different headers: x, y in .*, ann, bob in"):
        tiering.import_graph(relations={RATES: folder}, header=True, out=tmp_path / "g")
    for path in folder.iterdir():
        path.write_text("user,movie\n")
    with pytest.raises(InputError, match=r"a.csv: the file has no edges"):
        tiering.import_graph(relations={RATES: folder}, out=tmp_path / "g")


@pytest.mark.parametrize("names", ["_0 _1 _2", "-header -part1 -part2", "_0_0 _0_1 _0_2"])
def test_parts_without_header_join_the_table_of_neo4j_with_their_name(tmp_path, names):
    (folder := tmp_path / "export").mkdir()
    (folder / "Person.csv").write_text("id:ID(Person)|name\n1|a\n3|b\n")
    (folder / "Post_0.csv").write_text("2|x\n4|y\n")
    (folder / "Post_1.csv").write_text("id:ID(Post)|title\n6|z\n")
    (folder / "README.txt").write_text("how it was made\n")
    parts = ["" if "header" in names else "1|2\n", "3|4\n1|6\n", "3|2\n"]
    for k, (name, lines) in enumerate(zip(names.split(), parts, strict=True)):
        head = ":START_ID(Person)|:END_ID(Post)\n" if k == 0 else ""
        (folder / f"likes{name}.csv").write_text(head + lines)
    graph = tiering.import_graph(folder, tmp_path / "g")
    expected = sorted(tuple(map(int, line.split("|"))) for part in parts for line in part.split())
    assert edges_of(graph, ("Person", "likes", "Post")) == expected
    assert graph.relations == [("Person", "likes", "Post")]
    assert [Path(file).name for file in graph.manifest.changes["ignored_files"]] == ["README.txt"]
    (folder / "part-7.csv").write_text("5|6\n")
    with pytest.raises(InputError, match=r"part-7.csv: no header of Neo4j here or in a file whose name differs only"):
        tiering.import_graph(folder, tmp_path / "h")


def test_formats_of_tables_are_refused_and_lists_of_their_files_taken(tmp_path, monkeypatch):
    """Whether the directory, a part of it or a pattern is named."""
    monkeypatch.chdir(tmp_path)
    marks = {"_delta_log/0.json": "a Delta table", "metadata/v1.metadata.json": "an Iceberg table"}
    marks |= {".hoodie/hoodie.properties": "a Hudi table", "_versions/1.manifest": "Lance"}
    for k, (mark, what) in enumerate(marks.items()):
        folder = Path(f"t{k}") / "data"
        for file in (folder.parent / mark, folder / "year=2020/a.parquet", folder / "b.parquet"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        write(folder / "year=2020/a.parquet", "src,dst", [(0, 1)])
        write(folder / "b.parquet", "src,dst", [(1, 0)])
        nodes, relation = {"a": folder.parent}, ("a", "to", "a")
        for options in (
            {"source": folder.parent}, {"source": folder}, {"source": folder / "year=2020"},
            {"source": folder, "format": "parquet"}, {"relations": {relation: folder}},
            {"relations": {relation: f"{folder}/*.parquet"}}, {"relations": {relation: f"{folder}/*/*.parquet"}},
            {"relations": {relation: folder / "b.parquet"}, "nodes": nodes},
        ):  # fmt: skip
            with pytest.raises(InputError, match=rf"t{k}: {what} is not a format that tiering reads; convert"):
                tiering.import_graph(out="g", **options)
        files = [str(folder / "year=2020/a.parquet"), f"{folder}/b.parquet"]
        for name, listed in (("c", ",".join(files)), ("p", {"file": files})):
            graph = tiering.import_graph(relations={relation: listed}, out=f"{name}{k}")
            assert edges_of(graph, relation) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["time", "edge_data"])
def test_a_column_of_times_changes_nothing_else(tmp_path, suffix, column):
    """Compact ids, a first id, and numpy files beside one file of edges, or several, as without `time`."""
    (folder := tmp_path / "d").mkdir()
    rows = [(5, 70, 3), (9, 5, 2), (70, 9, 1), (5, 9, 0)]
    write(folder / f"edges.{suffix}", "src,dst,t", rows if suffix == "csv" else rows[:2])
    if suffix == "parquet":
        write(folder / "more.parquet", "src,dst,t", rows[2:])
    np.save(folder / "edge_feat.npy", np.arange(4, dtype=np.float32)[:, None])
    cases = [({"compact_ids": True}, 3), ({"first_id": 5}, 66), ({}, 80), ({"num_nodes": 80}, 80)]
    for k, (options, nodes) in enumerate(cases):
        np.save(folder / "node_feat.npy", np.arange(nodes, dtype=np.float32)[:, None])
        np.save(folder / "node_label.npy", np.arange(nodes))
        np.save(folder / "train_idx.npy", [9, 70])  # ids of the edges
        plain = tiering.import_graph(folder, tmp_path / f"p{k}", edge_ids=True, **options)
        graph = tiering.import_graph(folder, tmp_path / f"g{k}", edge_ids=True, **options, **{column: "t"})
        order = np.lexsort((graph.edge_data()["edge_ids"], np.repeat(np.arange(nodes), np.diff(graph.csc()[0]))))
        np.testing.assert_array_equal(graph.csc()[0], plain.csc()[0])
        np.testing.assert_array_equal(graph.csc()[1][order], plain.csc()[1])
        named = {name: values[order] for name, values in graph.edge_data().items()}
        np.testing.assert_array_equal(named["t"], np.array(rows)[named["edge_ids"], 2])
        np.testing.assert_array_equal(named["feat"], plain.edge_data()["feat"])
        own = {file for file in plain.manifest.files if file.startswith("nodes/")}
        assert own == {file for file in graph.manifest.files if file.startswith("nodes/")}
        for file in own:
            np.testing.assert_array_equal(graph.manifest.array(file), plain.manifest.array(file))
        assert graph.feature_table("node") == plain.feature_table("node")
        assert graph.problems("full") == []
    np.save(folder / "node_feat.npy", np.zeros((4, 1), np.float32))
    with pytest.raises(InputError, match=r"expected 4 nodes .*found 3"):
        tiering.import_graph(folder, tmp_path / "h", compact_ids=True, **{column: "t"})
    with pytest.raises(InputError, match=r"expected ids from 6 \(`first_id`\), found 5"):
        tiering.import_graph(folder / f"edges.{suffix}", tmp_path / "h", first_id=6, **{column: "t"})


TABLES = {
    "users": "user_id,age\nu1,3\nu2,4\n", "items": "item_id,price\ni1,1.5\ni2,2\n",
    "ratings": "user_id,item_id,rating\nu1,i1,5\nu2,i2,3\n",
}  # fmt: skip
KEYS = (
    "--relation user:ratings:item=ratings{0}:user_id,item_id "
    "--nodes item=items{0}:item_id --nodes user=users{0}:user_id"
)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_that_name_each_others_keys_are_proposed(tmp_path, tiering_cli, suffix):
    """The proposed options read what the directory holds."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in TABLES.items():
        if suffix == ".csv":
            (folder / f"{name}.csv").write_text(text)
        else:
            pa_parquet.write_table(pa_csv.read_csv(io.BytesIO(text.encode())), folder / f"{name}.parquet")
    refusal = tiering_cli("import", folder, "--out", tmp_path / "no").refused("several related tables")
    options = KEYS.format(suffix)
    assert f"give {options}, and" in refusal
    done = tiering_cli("import", folder, *options.split(), "--features", "age,price", "--out", tmp_path / "g").ok()
    graph = tiering.open(tmp_path / "g")
    assert (graph.num_nodes("user"), graph.num_nodes("item"), graph.num_edges()) == (2, 2, 2), done


@pytest.mark.parametrize(
    ("headers", "proposed"),
    [
        ({"a.csv": ["src", "dst"], "b.csv": ["src", "dst"]}, ""),
        ({"part-0.pq": ["user_id", "item_id"], "part-1.pq": ["user_id", "item_id"]}, ""),
        ({"edges.csv": ["src_id", "dst_id"], "nodes.csv": ["id", "x"]}, ""),
        (
            {"orders.csv": ["id", "userId", "total"], "people-0.csv": ["userId"], "people-1.csv": ["userId"]},
            "--relation order:to:user=orders.csv:id,userId "
            "--nodes order=orders.csv:id --nodes user=people-0.csv,people-1.csv:userId",
        ),
    ],
)
def test_tables_by_their_keys(headers, proposed):
    assert tables_by_keys(headers) == proposed
