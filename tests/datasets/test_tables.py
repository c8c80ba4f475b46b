"""Formats edgelist and parquet: streamed edges as numbers in columns."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from tiering.datasets.edge_sink import EdgeSink
from tiering.datasets.open import detect_format, open_dataset
from tiering.errors import InputError, MissingError

PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=30)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_columns_weights_and_leading_blanks(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "time,weight,source,target\n9,0.5,1,2\n8,2,0,1\n")
    data = open_dataset(path)
    assert data.edges[0].src.tolist() == [1, 0]
    assert data.edges[0].dst.tolist() == [2, 1]
    assert data.edges[0].data["weight"].tolist() == [0.5, 2.0]
    assert data.notes["text"]["ignored_columns"] == ["time"]
    assert data.notes["inferred"]["node num_nodes"]["value"] == 3
    other = open_dataset(path, src_column="target", dst_column=2, num_nodes=3)
    assert other.edges[0].src.tolist() == [2, 1]
    blanks = write(tmp_path / "b.txt", "  0 1  \n\n 1\t 2 \n2  0\n")
    assert open_dataset(blanks).edges[0].src.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("text", "options", "edges"), [
    (b"\xef\xbb\xbfsrc,dst\n0,1\n", {}, [(0, 1)]), (b"\xef\xbb\xbf0,1\n2,1\n", {}, [(0, 1), (2, 1)]),
    (b'"src","dst","what, why"\n"0","1","a"\n"1","2","b, c"\n', {}, [(0, 1), (1, 2)]),
    (b"x,0,1\ny,1,2\n", {"src_column": 1, "dst_column": 2}, [(0, 1), (1, 2)]),
    (b",src,dst\n0,5,6\n1,6,5\n", {}, [(5, 6), (6, 5)]),
    (b"info,inflow\n0,1\n", {"src_column": 0, "dst_column": 1}, [(0, 1)]),
    (b"src,dst,hash\n0,1,0xFF\n1,2,0x1\n", {}, [(0, 1), (1, 2)]),
    (b"007,1\r\n1,2\r", {}, [(7, 1), (1, 2)]),
    (b"a,a,b\n9,0,1\n", {"src_column": 1, "dst_column": "b"}, [(0, 1)]),
    (b"1\t2\n3 4\n 5  6 \n\n7\t 0\r\n", {}, [(1, 2), (3, 4), (5, 6), (7, 0)]),
])  # fmt: skip
def test_odd_texts_that_are_fine(tmp_path: Path, text: bytes, options: Any, edges: list[tuple[int, int]]) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(text)
    with open_dataset(path, num_nodes=10, **options) as data:
        assert list(zip(data.edges[0].src.tolist(), data.edges[0].dst.tolist(), strict=True)) == edges


def test_a_line_taken_for_a_header_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for header, said in (("from to", False), ("who_1 who_2", True)):
        open_dataset(write(tmp_path / "e.txt", f"{header}\n0 1\n"), num_nodes=2).close()
        assert ("is read as a header: 'who_1 who_2' (else: `header=False`)" in capsys.readouterr().err) == said


def test_more_parquet_files_than_may_be_open(tmp_path: Path) -> None:
    for k in range(60):
        pa_parquet.write_table(table([(k, k + 1)]), tmp_path / f"{k:02}.parquet")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 30, limits[1]))
    try:
        with open_dataset(tmp_path) as data:
            assert data.edges[0].src.tolist() == list(range(60))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_row_group_passes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of some KiB may hold more rows than fit in memory."""
    rows = 1 << 23
    ids = pa.array(np.zeros(rows, np.int64))
    pa_parquet.write_table(pa.table({"src": ids, "dst": ids}), tmp_path / "e.parquet", row_group_size=rows)
    del ids
    assert (tmp_path / "e.parquet").stat().st_size < 1 << 20
    held, append = [pa.total_allocated_bytes()], EdgeSink.append

    def watched(*arguments: Any) -> None:
        held.append(pa.total_allocated_bytes())
        append(*arguments)

    monkeypatch.setattr(EdgeSink, "append", watched)
    with open_dataset(tmp_path / "e.parquet") as data:
        assert data.edges[0].num_edges == rows
    assert max(held) - held[0] < rows * 16 // 2


def test_what_lies_beside_parquet_files(tmp_path: Path) -> None:
    pa_parquet.write_table(table([(0, 1)]), tmp_path / "a.parquet")
    pa_parquet.write_table(table([(1, 2)]), tmp_path / "B.PARQUET")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "year=2020").mkdir()
    with open_dataset(tmp_path) as data:
        assert data.edges[0].num_edges == 2
        assert data.notes["ignored_files"] == [str(tmp_path / "_SUCCESS"), str(tmp_path / "year=2020")]
    pa_parquet.write_table(table([(2, 3), (4, -5)]), tmp_path / "c.parquet")
    refused(r"c\.parquet: column dst: edge 3: destination id -5 is negative", tmp_path)


def test_sparse_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "e.txt", "5 700\n700 5\n9000000000 5\n")
    message = r"e\.txt: edge 2: source id 9000000000 is the largest id, but 3 edges .* --compact-ids"
    refused(message, path)
    with open_dataset(path, compact_ids=True) as data:
        assert data.edges[0].src.tolist() == [0, 1, 2]
        assert data.edges[0].dst.tolist() == [1, 0, 0]
        assert data.nodes["node"].extra["original_id"].tolist() == [5, 700, 9000000000]
        assert data.notes["compact_ids"] == {"nodes": 3, "largest": 9000000000}
    refused("with --compact-ids others do not exist", path, compact_ids=True, num_nodes=5)


@pytest.mark.parametrize(("text", "ends"), [
    ("id,label,age\n3,1,20\n", "src-column id --dst-column age .* --nodes TYPE="),
    ("userId,movieId\n3,3\n", "one node type, or --relation user:to:movie=.*csv:userId,movieId if they have"),
    ("post,user,time\n3,3,9\n", "--relation post:to:user="),
    ("3\t1\t20\n", "found 3 columns without names; give --src-column 0 --dst-column 1 "),
    ("% bip weighted\n1 2 1\n", "bipartite graph of KONECT; give --relation left:to:right=.*:0,1"),
    ("timestamp,author_id,paper_id\n9,3,1\n", "--relation author:to:paper="),
    ("user_id,item_id,start_time,end_time\n1,2,3,4\n", "--relation user:to:item=.*csv:user_id,item_id if they"),
    ("x,y,z\n1,2,3\n", "--src-column x .*; --type-column names a column of edge types"),
    ("n4\tm1\nn3\tm2\n", "expected whole numbers as ids, found 'n4 m1', 'n3 m2'; give --string-ids if ids are names"),
])  # fmt: skip
def test_columns_that_may_be_anything_are_refused(tmp_path: Path, text: str, ends: str) -> None:
    refused(ends, write(tmp_path / "e.csv", text))
    if "," in text:
        pa_parquet.write_table(pa.table({name: [3] for name in text.split("\n")[0].split(",")}), tmp_path / "e.parquet")
        refused(ends.split("csv")[0].split("found")[0], tmp_path / "e.parquet")


@pytest.mark.parametrize(("text", "edge"), [
    ("time,FromNodeId,ToNodeId\n7,1,2\n", (1, 2)), ("node_1,node_2\n1,2\n", (1, 2)),
    ("src_index,dst_index,Source Label,Target Label\n1,2,3,4\n", (1, 2)),
    ("Source Label,Target Label,Source,Target\n3,4,1,2\n", (1, 2)),
    ("citedPaper,citingPaper,n\n2,1,5\n", (1, 2)), ("head,rel,tail\n1,7,2\n", (1, 2)), ("1 2 0.5\n", (1, 2)),
    ("% asym positive\n% 1 2 2\n1 2 1 77\n", (1, 2)), ("# FromNodeId\tToNodeId\tSign\n1\t2\t-1\n", (1, 2)),
    ("likes,1,2\n", (1, 2)),
])  # fmt: skip
def test_columns_that_names_comments_or_values_tell(tmp_path: Path, text: str, edge: tuple[int, int]) -> None:
    with open_dataset(write(tmp_path / "e.csv", text)) as data:
        assert (data.edges[0].src.tolist(), data.edges[0].dst.tolist()) == ([edge[0]], [edge[1]])


@pytest.mark.parametrize(("text", "options", "message"), [
    ("", {}, "the file has no edges"),
    ("# only\n# comments\n", {}, "the file has no edges"),
    ("src,dst\n", {}, "the file has no edges"),
    ("0 1\n\n2 x\n", {}, "line 3: expected a whole number as destination id, found 'x'; .*--string-ids"),
    ("0 1\n1.5 2\n", {}, "line 2: expected a whole number as source id, found '1.5'"),
    ("0,1\n1,\n", {}, "line 2: expected a whole number as destination id, found ''"),
    ("0 1\n1 2 3\n", {}, "line 2: expected 2 fields, found 3: '1 2 3'"),
    ("1 2 9\n3  4\n", {"num_nodes": 10, "dst_column": 1}, "line 2: expected 3 fields, found 2"),
    ("a,b\n0,1\n\nc,2\n", {}, "line 4: expected a whole number as source id, found 'c'"),
    ("0 1\n99999999999999999999 2\n", {}, "line 2: expected a whole number as source id"),
    ("0 1\n-1 2\n", {}, r"edge 1: source id -1 is negative"),
    ("0 1\n5 2\n", {"num_nodes": 5}, r"num-nodes says 5 nodes, ids 0\.\.4, but id 5 occurs"),
    ("17\n18\n", {}, "expected two ids per line"),
    ("0 1\n", {"delimiter": "ab"}, "expected one character, tab or space"),
    ("0,1\n", {"src_column": "from"}, "src-column from: no such column; there are: 0, 1"),
    ("0,1\n", {"src_column": 1}, "source and destination are the same column"),
    ("0,1\n", {"weight_column": 2}, "weight-column 2: no such column; there are: 0, 1"),
    ("0,1,w\n", {"weight_column": 2}, "line 1: expected a weight, found 'w'"),
    ("0,1,-3\n", {"weight_column": 2}, "weights of 0 or more, found -3.0 at edge 0"),
    ("0\0 1\n", {}, "expected text, found binary data"),
    ("0 1\n", {"feature_dim": 3}, "--feature-dim: does not apply to a file; give the directory"),
])  # fmt: skip
def test_bad_text(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "e.txt", text)
    refused(message, path, work_dir=tmp_path, **options)
    assert list(tmp_path.iterdir()) == [path], "temporary files are gone"


def table(pairs: list[tuple[int, int]], kind: Any = None) -> pa.Table:
    kind = kind or pa.int64()
    return pa.table({"src": pa.array([u for u, _ in pairs], kind), "dst": pa.array([v for _, v in pairs], kind)})


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=PAIRS, files=st.integers(1, 3), group=st.integers(1, 9), kind=st.sampled_from([pa.int32(), pa.uint64()]))
def test_parquet_round_trip(tmp_path_factory, pairs, files, group, kind):
    folder = tmp_path_factory.mktemp("parquet")
    for i in range(files):
        part = pairs[len(pairs) * i // files : len(pairs) * (i + 1) // files]
        pa_parquet.write_table(table(part, kind), folder / f"part-{i}.parquet", row_group_size=group)
    assert detect_format(folder) == "parquet"
    with open_dataset(folder) as data:
        edges = data.edges[0]
        assert list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == pairs
        assert len(data.files) == files


def test_parquet_weights_and_single_file(tmp_path: Path) -> None:
    columns = {"weight": [1, 2], "to": [1, 0], "from": [0, 1], "note": ["a", "b"]}
    pa_parquet.write_table(pa.table(columns), tmp_path / "e.parquet")
    data = open_dataset(tmp_path / "e.parquet")
    assert data.edges[0].src.tolist() == [0, 1]
    assert data.edges[0].data["weight"].tolist() == [1.0, 2.0]
    assert data.notes["columns"] == {"src": "from", "dst": "to", "weight": "weight"}


@pytest.mark.parametrize(("columns", "message"), [
    ({"src": [0, None, 2], "dst": [1, 1, 1]}, "column src: expected a number in each row, found null at edge 1"),
    ({"src": ["a", "b"], "dst": [1, 2]}, "dst: expected ids as names, as in src .*string.*, found int64;"),
    ({"src": [0.0, 1.0], "dst": [1, 1]}, "src: expected ids as whole numbers, or names in both .*, found double"),
    ({"src": [0, -1], "dst": [1, 1]}, "edge 1: source id -1 is negative"),
    ({"src": pa.array([2**63], pa.uint64()), "dst": [1]}, r"expected ids below 2\^63, found 9223372036854775808"),
    ({"src": [0]}, "expected two or more columns"),
    ({"src": [0], "dst": [1], "weight": ["x"]}, "expected numbers as weights, found (large_)?string"),
    ({"src": [0], "dst": [1], "weight": [float("nan")]}, "found nan at edge 0"),
    ({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}, "there are no edges in e.parquet"),
])  # fmt: skip
def test_bad_parquet(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    pa_parquet.write_table(pa.table(columns), tmp_path / "e.parquet")
    refused(message, tmp_path / "e.parquet")


def test_parquet_files_that_do_not_match(tmp_path: Path) -> None:
    pa_parquet.write_table(table([(0, 1)]), tmp_path / "a.parquet")
    pa_parquet.write_table(pa.table({"x": [1], "y": [2]}), tmp_path / "b.parquet")
    refused(r"b\.parquet: expected column src as in the first file, found x, y", tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 damaged")
    refused(r"b\.parquet: the parquet file is damaged", tmp_path)


def test_detection_says_what_it_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(InputError, match=r"looked for SRC__NAME__DST.*\*\.parquet.*found: notes.md"):
        detect_format(tmp_path)
    with pytest.raises(InputError, match=r"looked for .* parquet .*, text .*; give `format`"):
        detect_format(tmp_path / "notes.md")
    np.save(tmp_path / "edge_index.txt.npy", np.zeros(3))
    with pytest.raises(InputError, match="give the directory that holds it"):
        detect_format(tmp_path / "edge_index.txt.npy")
    refused("expected a parquet file of edges, found nothing", tmp_path, "parquet", error=MissingError)
    refused(r"format: expected auto, igb, npy, csc, .*parquet, .*found 'nothing'", tmp_path, "nothing")
    refused(r"found 'webgraph'; docs/importing.md has the two commands", tmp_path, "webgraph")


@pytest.mark.parametrize(("options", "message"), [
    ({"color": 1}, "option color: unknown; the import's options are spec, num_nodes"),
    ({"num_nodes": "x"}, "num-nodes: expected a whole number of 0 or more, found 'x'"),
    ({"num_nodes": -1}, "num-nodes: expected a whole number of 0 or more"),
    ({"num_nodes": "a=,"}, "expected TYPE=VALUE"),
    ({"feature_dim": 0}, "feature-dim: expected a whole number of 1 or more, found 0"),
    ({"feature_dtype": "float33"}, "feature-dtype: expected one of float16"),
    ({"split": "0.6,0.6,0.2"}, "split: expected three fractions"),
    ({"split": "a,b"}, "split: expected three fractions"),
    ({"split": (0, 0.5, 0.5)}, "split: expected three fractions"),
    ({"label": "2K"}, "--label: does not apply to format npy; it applies to igb, csc, csr, tables"),
    ({"self_loops": "maybe"}, "self-loops: expected one of keep, remove, add"),
    ({"header": True}, "--header: does not apply to format npy; it applies to graphbolt, tables, edgelist"),
    ({"relations": "a"}, "--relations: does not apply to format npy; it applies to igb, csc, csr"),
    ({"feature_dim": {"fos": 3}}, "feature-dim: no node type fos; there are: node"),
])  # fmt: skip
def test_bad_options(npy_dir: Path, options: dict[str, Any], message: str) -> None:
    refused(message, npy_dir, **options)


def test_a_first_line_of_names_that_may_be_a_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "user_id,friend_id\nann,bob\n")
    refused("whether the first line is a header, found 'user_id friend_id'; give --header", path, string_ids=True)
    with open_dataset(path, string_ids=True, header=True, src_column="user_id", dst_column="friend_id") as data:
        assert data.edges[0].num_edges == 1
    with open_dataset(path, string_ids=True, header=False) as data:
        assert data.edges[0].num_edges == 2


def test_names_with_a_column_of_types_name_both_options(tmp_path: Path) -> None:
    path = write(tmp_path / "kg.csv", "head,rel,tail\na,knows,b\n")
    refused("give --string-ids if ids are names, and --type-column rel", path)
    with open_dataset(path, string_ids=True, type_column="rel") as data:
        assert [edges.relation for edges in data.edges] == [("node", "knows", "node")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_two_kinds_in_one_space_of_ids_are_noted_once(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, table = tmp_path / f"r.{kind}", pa.table({"userId": [1], "movieId": [1], "src": [1], "dst": [2]})
    pa_csv.write_csv(table, path) if kind == "csv" else pa_parquet.write_table(table, path)
    for columns, notes in ((("userId", "movieId"), 1), (("dst", "src"), 0)):
        open_dataset(path, src_column=columns[0], dst_column=columns[1]).close()
        assert capsys.readouterr().err.count("`relation` user:to:movie=") == notes
