"""First lines of texts that are no edges: headers, numbers of nodes and edges, comments that name the ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

import tiering
import tiering.datasets.text as text_blocks
from tiering.datasets.open import open_dataset

Edges = list[tuple[Any, Any]]
NAMES = {"string_ids": True}
RING = [(0, 1), (1, 2), (2, 0)]


def read(path: Path, text: str, **options: Any) -> Edges:
    """Edges by ids, or names, of the source."""
    path.write_text(text)
    with open_dataset(path, **options) as data:
        node, edges = data.nodes["node"], data.edges[0]
        ids = node.extra.get("original_id", np.arange(node.num_nodes)).tolist()
        if node.names is not None:
            ids = [node.names.encoded(k).decode() for k in range(node.num_nodes)]
        return [(ids[u], ids[v]) for u, v in zip(edges.src.tolist(), edges.dst.tolist(), strict=True)]


@pytest.mark.parametrize("block", [8, 1 << 24])
@pytest.mark.parametrize(("text", "options", "edges", "said"), [
    (",0,1\n0,0,1\n1,1,2\n2,2,0\n", {}, RING, "column '' is skipped as an index of rows"),
    (",0,1\n0,0,1\n1,1,2\n2,2,0\n", {"src_column": 1, "dst_column": 0}, [(v, u) for u, v in RING], "index"),
    (",src,dst\n7,0,1\n8,1,2\n9,2,0\n", {}, RING, "column '' is skipped as an index of rows"),
    ("Unnamed: 0,0,1\n0,0,1\n1,1,2\n2,2,0\n", {}, RING, "column 'unnamed: 0' is skipped as an index"),
    (",0,1,2\n0,0,1,.5\n1,1,2,1.5\n2,2,0,2.5\n", {}, RING, "header: ' 0 1 2'"),
    (",0,1,weight\n0,0,1,5\n1,1,2,6\n2,2,0,7\n", {}, RING, "header: ' 0 1 weight'"),
    (",0,1\n0,a,b\n1,b,c\n", NAMES, [("a", "b"), ("b", "c")], "column '' is skipped"),
    (
        "a,5\n0,1\n1,2\n2,0\n",
        {"src_column": 0, "dst_column": 1},
        RING,
        "the first line is read as a header: 'a 5' (else: `header=False`)",
    ),
    (
        "5,a\n0,1\n1,2\n2,0\n",
        {"src_column": 0, "dst_column": 1},
        RING,
        "the first line is read as a header: '5 a' (else: `header=False`)",
    ),
    (",0,1\n0,0,1\n1,1,2\n2,2,0\n", {"relation": "node:to:node=e.csv:0,1"}, RING, ""),
    (",s,t\n0,0,1\n1,1,2\n2,2,0\n", {"edge_data": "#"}, RING, ""),
    ("a,1\nb,2\n", NAMES, [("a", "1"), ("b", "2")], ""), ("a,1,2\nb,2,3\n", {}, [(1, 2), (2, 3)], ""),
    ("a,1,2\n", {}, [(1, 2)], ""),
])  # fmt: skip
def test_an_empty_cell_or_a_word_above_numbers_makes_a_header(
    tmp_path, monkeypatch, capsys, text, options, edges, said, block
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
    assert read(tmp_path / "e.csv", text, **options) == edges
    assert said in capsys.readouterr().err


def test_headers_whose_ends_are_not_known_are_refused(tmp_path: Path) -> None:
    for header in ('"","V1","V2"', "id,0,1", "5,7,A12"):
        (tmp_path / "e.csv").write_text(f"{header}\n1,2,3\n4,5,6\n")
        refused("cannot tell which columns are source and destination", tmp_path / "e.csv")
        found = read(tmp_path / "e.csv", f"{header}\n1,2,3\n4,5,6\n", src_column="0", dst_column="2")
        assert found == ([(2, 3), (5, 6)] if "0" in header else [(1, 3), (4, 6)])


@pytest.mark.parametrize("executor", [(), ("--executor", "local", "--shards", "3")])
def test_tasks_read_the_same_edges(tmp_path: Path, tiering_cli: Any, executor: tuple[str, ...]) -> None:
    for text in (",0,1\n0,1,0\n1,2,0\n2,3,1\n", "4 3\n1 0\n2 0\n3 1\n", "# ToNodeId FromNodeId\n0 1\n0 2\n1 3\n"):
        (tmp_path / "e.csv").write_text(text)
        tiering_cli("import", tmp_path / "e.csv", "--out", tmp_path / "g", "--force", *executor).ok()
        indptr, indices = tiering.open(tmp_path / "g").csc()
        assert (indptr.tolist(), indices.tolist()) == ([0, 2, 3, 3, 3], [1, 2, 3])


@pytest.mark.parametrize(("text", "options", "edges", "skipped"), [
    ("3 3\n0 1\n1 2\n2 0\n", {}, RING, True),
    ("3 3\n0 1\n1 2\n2 0\n", {"header": False}, [(3, 3), *RING], False),
    ("# c\n\n3,3\n\n0,1\n1,2\n2,0", {}, RING, True),
    ("3 3\n1 2\n2 3\n3 1\n", {}, [(1, 2), (2, 3), (3, 1)], True),
    ("3 3\n1 2\n2 3\n3 1\n", {"first_id": 1}, RING, True),
    ("3 3\n0 10\n10 20\n20 0\n", {}, [(0, 10), (10, 20), (20, 0)], True),
    ("3 3\n0 90\n90 700\n700 0\n", {"compact_ids": True}, [(0, 90), (90, 700), (700, 0)], True),
    ("3,2\na,b\nb,c\n", NAMES, [("a", "b"), ("b", "c")], True),
    ("3 3\n0 1 .5\n1 2 .5\n2 0 1\n", {}, RING, True), ("9 3\n0 1\n1 2\n2 0\n", {"num_nodes": 9}, RING, True),
    ("2 3\n0 1\n1 2\n2 0\n", {}, [(2, 3), *RING], False), ("3 2\n0 1\n1 2\n2 0\n", {}, [(3, 2), *RING], False),
    ("7 1\n1 2\n", {}, [(7, 1), (1, 2)], False),
])  # fmt: skip
def test_a_first_line_that_counts_what_follows_is_left_out(
    tmp_path, monkeypatch, capsys, text, options, edges, skipped
):
    for block in (4, 7, 1 << 24):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
        assert read(tmp_path / "e.txt", text, **options) == edges
        said = re.findall(r"e\.txt: the first line, (\d+ \d+), is skipped", capsys.readouterr().err)
        assert len(said) == skipped


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    first=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    compact=st.booleans(),
)
def test_only_lines_that_count_are_left_out(tmp_path_factory, pairs, first, compact):
    path = tmp_path_factory.mktemp("text") / "e.txt"
    text = "".join(f"{u} {v}\n" for u, v in [first, *pairs])
    ids = [*map(int, np.unique(pairs))]
    counts = {len(ids)} if compact else {len(ids), ids[-1] + 1, ids[-1] + (ids[0] == 0)}
    options = {"compact_ids": compact}
    if first[1] == len(pairs) and first[0] in counts:
        assert read(path, text, **options) == pairs
    elif first[1] == len(pairs) > 2 and first[0] > max(counts):
        path.write_text(text)
        refused(f"the first line, {first[0]} {first[1]}, before {len(pairs)} edges; give --no-header", path, **options)
    else:
        assert read(path, text, **options) == [first, *pairs]


def test_a_line_of_counts_with_fewer_fields_than_edges_must_count_them(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("3 4\n0 1 .5\n1 2 .5\n2 0 1\n")
    refused("line 2: expected 2 fields, found 3", tmp_path / "e.txt")


@pytest.mark.parametrize(("text", "options", "edges"), [
    ("# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t0\n", {}, RING), ("# ToNodeId\tFromNodeId\n1\t0\n2\t1\n0\t2\n", {}, RING),
    ("# ToNodeId FromNodeId\n1\t0\n2\t1\n0\t2\n", {}, RING),
    ("# Directed graph: roads\n# Nodes: 3 Edges: 3\n# ToNodeId FromNodeId\n1 0\n2 1\n0 2\n", {}, RING),
    ("# target,source,weight\n1,0,4\n2,1,5\n0,2,6\n", {}, RING),
    ("% time src dst\n7 0 1\n8 1 2\n9 2 0\n", {}, RING), ("# to from\n1 0 4\n2 1 5\n0 2 6\n", {}, RING),
    ("# ToNodeId FromNodeId\n1 0\n2 1\n0 2\n", {"src_column": 0, "dst_column": 1}, [(v, u) for u, v in RING]),
    ("# ToNodeId FromNodeId\n1 0 4\n2 1 5\n0 2 6\n", {"edge_data": "2", "delimiter": "space"}, RING),
    ("# target,source\n1,0\n2,1\n0,2\n", {"edge_data": "#"}, RING),
    ("#dst,src\n1,0\n2,1\n0,2\n", {**NAMES, "comment": "#"}, [(str(u), str(v)) for u, v in RING]),
    ("# from a file to another one\n0 1\n1 2\n2 0\n", {}, RING),
])  # fmt: skip
def test_comments_name_the_ends_as_headers_do(tmp_path, monkeypatch, text, options, edges):
    for block in (8, 1 << 24):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
        assert sorted(read(tmp_path / "e.csv", text, **options)) == sorted(edges)


@pytest.mark.parametrize(("text", "options", "line"), [
    ("#cats,#dogs\na,b\n", NAMES, "#cats,#dogs"), ("%cats\t%dogs\na\tb\n", NAMES, r"%cats\\t%dogs"),
    ("src,dst\n#cats,#dogs\na,b\n", NAMES, "#cats,#dogs"),
    ("user,movie\n#cats,#dogs\na,b\n", {"relation": "user:likes:movie=e.csv"}, "#cats,#dogs"),
    ("#cats\na\n", {"nodes": "user=e.csv:0", "relation": "user:likes:user=f.csv"}, "#cats"),
])  # fmt: skip
def test_lines_of_names_that_begin_as_comments_do_are_refused(tmp_path, monkeypatch, text, options, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.csv").write_text("src,dst\na,a\n")
    (tmp_path / "e.csv").write_text(text)
    message = f"e.csv: cannot tell whether a line is a comment, found '{line}', .* --comment '{line[0]}' if"
    refused(message, tmp_path / "e.csv", **options)
    for comment in ("none", line[0]):
        with open_dataset(tmp_path / "e.csv", comment=comment, **options):
            pass


def test_comments_of_other_widths_and_above_headers_or_numbers_are_left_out(tmp_path: Path, capsys: Any) -> None:
    assert read(tmp_path / "e.csv", "# exported\na,b\n", **NAMES) == [("a", "b")]
    assert read(tmp_path / "e.csv", "#cats,#dogs\nsrc,dst\na,b\n", **NAMES) == [("a", "b")]
    assert read(tmp_path / "e.csv", "# a,b\n0,1\n1,2\n2,0\n") == RING
    assert capsys.readouterr().err.count("lines skipped as comments: 1") == 3
