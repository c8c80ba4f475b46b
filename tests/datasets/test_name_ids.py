"""Ids that are names: numbered in ascending order whatever the runs and ranges, kept with the graph, found again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import tiering
from tiering.artifacts.document import MANIFEST
from tiering.datasets import name_ids
from tiering.datasets.import_context import Scratch
from tiering.datasets.name_ids import NameIds, decode_numbers
from tiering.datasets.open import open_dataset
from tiering.errors import FormatError, MissingError
from tiering.memory import parse_memory

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
PAIRS = [("Q42", "Q1"), ("Zoë", "a|b"), ("Q1", "Q1"), ("10", "Q42"), ("9", "10")]


def by_name(names: list[str]) -> list[str]:
    """Distinct names in the order of their ids."""
    return sorted(set(names), key=str.encode)


@settings(max_examples=80, deadline=None)
@given(
    edges=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=60), block=st.integers(1, 20),
    run_bytes=st.sampled_from([1, 300, 10**6]), range_bytes=st.sampled_from([1, 150, 10**6]),
)  # fmt: skip
def test_ids_are_places_among_the_sorted_names(edges, block, run_bytes, range_bytes):
    ids = NameIds(Scratch(None, parse_memory("8GiB")), run_bytes=run_bytes, range_bytes=range_bytes)
    for first in range(0, len(edges), block):
        for place, end in enumerate(("src", "dst")):
            encoded = [edge[place].encode() for edge in edges[first : first + block]]
            ids.append(end, pa.array(encoded, pa.large_binary()))
    ends, table = ids.finish()
    expected = by_name([name for edge in edges for name in edge])
    assert [table.encoded(k).decode() for k in range(len(table))] == expected
    assert [(expected[u], expected[v]) for u, v in zip(ends["src"], ends["dst"], strict=True)] == edges
    assert [table.position(name.encode()) for name in expected] == list(range(len(expected)))
    assert table.position(b"\0") is None and table.position(b"\xff") is None


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), min_size=1, max_size=4))
def test_whole_numbers_sort_as_numbers_in_any_number_of_columns(columns):
    ids = NameIds(Scratch(None, parse_memory("8GiB")), list(map(str, range(len(columns)))), run_bytes=1, range_bytes=1)
    for name, values in enumerate(columns):
        ids.append(str(name), pa.array(values, pa.int64()))
    found, table = ids.finish()
    numbers = decode_numbers(table)
    assert numbers.tolist() == sorted({value for values in columns for value in values})
    assert [numbers[found[str(name)]].tolist() for name in range(len(columns))] == columns


def write_text(path: Path) -> dict[str, Any]:
    path.with_suffix(".tsv").write_text("source\ttarget\n" + "".join(f"{u}\t{v}\n" for u, v in PAIRS))
    return {"source": path.with_suffix(".tsv"), "string_ids": True, "delimiter": "tab"}


def write_headless(path: Path) -> dict[str, Any]:
    path.with_suffix(".csv").write_text("".join(f'"{u}",{v},{k}\n' for k, (u, v) in enumerate(PAIRS)))
    return {"source": path.with_suffix(".csv"), "string_ids": True, "weight_column": "2"}


def write_parquet(path: Path, kind: Any = None) -> dict[str, Any]:
    kind = kind or pa.string()
    columns = {end: pa.array([pair[k] for pair in PAIRS], pa.string()).cast(kind) for k, end in enumerate(("u", "v"))}
    pa_parquet.write_table(pa.table(columns), path.with_suffix(".parquet"), row_group_size=2)
    return {"source": path.with_suffix(".parquet")}


@pytest.mark.parametrize("write", [
    write_text, write_headless, write_parquet, lambda path: write_parquet(path, pa.large_string()),
    lambda path: write_parquet(path, pa.dictionary(pa.int32(), pa.string())),
])  # fmt: skip
def test_names_stay_with_the_graph_through_every_stage(tmp_path: Path, write: Any) -> None:
    options = write(tmp_path / "edges")
    graph = tiering.import_graph(out=tmp_path / "g", **options)
    expected = by_name([name for pair in PAIRS for name in pair])
    assert graph.num_nodes() == len(expected)
    tiering.score_graph(tmp_path / "g", tmp_path / "s", scores=np.arange(float(len(expected))))
    reordered = tiering.reorder_graph(tmp_path / "g", tmp_path / "s", tmp_path / "r")
    assert reordered.new_to_old().tolist() != list(range(len(expected)))
    layout = tiering.write_layout(reordered, tmp_path / "l")
    for one in (graph, reordered, layout.graph):
        names = one.names()
        assert len(names) == len(expected)
        assert sorted(names.of(np.arange(len(names))), key=str.encode) == expected
        assert names.find(names.of(range(len(names)))).tolist() == list(range(len(names)))
        indptr, indices = one.csc()
        pairs = [(int(u), v) for v in range(len(names)) for u in indices[indptr[v] : indptr[v + 1]]]
        assert sorted(tuple(names.of(pair)) for pair in pairs) == sorted(PAIRS)
        assert one.problems("full") == []
    assert graph.names().of([0, len(expected) - 1]) == [expected[0], expected[-1]]
    by_rank = [graph.names().of([k])[0] for k in reordered.new_to_old()]
    assert by_rank == reordered.names().of(range(len(expected))) == layout.graph.names().of(range(len(expected)))
    layout.close()


def test_text_and_parquet_give_the_same_bytes_whatever_the_order_of_edges(tmp_path: Path, monkeypatch: Any) -> None:
    tiering.import_graph(out=tmp_path / "a", **write_parquet(tmp_path / "edges"))
    monkeypatch.setattr(name_ids, "SMALLEST", 1)
    monkeypatch.setattr(name_ids, "RUN_SHARE", 1 << 60)
    monkeypatch.setattr(name_ids, "RANGE_SHARE", 1 << 60)
    tiering.import_graph(out=tmp_path / "b", **write_text(tmp_path / "edges"))
    for file in ("names/nodes/node/offsets", "names/nodes/node/bytes", f"names/{MANIFEST}"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_names_that_are_not_there(tmp_path: Path) -> None:
    graph = tiering.import_graph(out=tmp_path / "g", **write_parquet(tmp_path / "edges"))
    with pytest.raises(MissingError, match="no node of type node has the name 'Q43'"):
        graph.names().find(["Q42", "Q43"])
    for wrong in (-1, graph.num_nodes()):
        with pytest.raises(MissingError, match=rf"expected ids 0..{graph.num_nodes() - 1} of node, found {wrong}"):
            graph.names().of([0, wrong])
    (tmp_path / "e.txt").write_text("0 1\n")
    assert tiering.import_graph(tmp_path / "e.txt", tmp_path / "n").names() is None


@pytest.mark.parametrize(("text", "options", "message"), [
    ("a,b\n,c\n", {}, "expected a name in each row, found an empty name at edge 1"),
    ("a,b\n\xff,c\n", {}, "(?i)utf-?8"),
    ("a,b\n", {"num_nodes": 3}, "names that occur .*: expected 3 nodes of type node as in --num-nodes, found 2"),
    ("a,b\n", {"compact_ids": True}, "--compact-ids: names are always numbered"),
])  # fmt: skip
def test_text_with_names_that_is_refused(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "e.csv").write_text(text, encoding="latin-1")
    refused(message, tmp_path / "e.csv", string_ids=True, **options)


def test_parquet_with_names_that_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    for src, message in (
        (pa.array(["a", None]), "expected a name in each row, found null at edge 1"),
        (pa.array(["a", ""]), "found an empty name at edge 1"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), "expected names in UTF-8"),
    ):
        pa_parquet.write_table(pa.table({"src": src, "dst": pa.array(["b", "c"])}), path)
        refused(message, path)
    refused("--string-ids: does not apply to format parquet", path, string_ids=True)


@pytest.mark.parametrize(("level", "name", "change", "message"), [
    ("structure", "offsets", lambda a: a.__setitem__(2, int(a[1])), "offsets do not increase at node 1"),
    ("structure", "offsets", lambda a: a.__setitem__(0, 1), "expected 0 .."),
    ("full", "bytes", lambda a: a.__setitem__(0, 255), "content changed"),
])  # fmt: skip
def test_damage_of_names_is_found(tmp_path: Path, level: str, name: str, change: Any, message: str) -> None:
    tiering.import_graph(out=tmp_path / "g", **write_parquet(tmp_path / "edges"))
    file = tmp_path / "g" / "names" / "nodes" / "node" / name
    array = np.memmap(file, np.int64 if name == "offsets" else np.uint8, "r+")
    change(array)
    array.flush()
    assert any(message in str(problem) for problem in tiering.check(tmp_path / "g", level))


def test_names_of_another_graph_are_refused(tmp_path: Path) -> None:
    graph = tiering.import_graph(out=tmp_path / "g", **write_parquet(tmp_path / "edges"))
    (tmp_path / "e.csv").write_text("a,b\n")
    tiering.import_graph(tmp_path / "e.csv", tmp_path / "h", string_ids=True)
    shutil.rmtree(tmp_path / "g" / "names")
    shutil.copytree(tmp_path / "h" / "names", tmp_path / "g" / "names")
    with pytest.raises(FormatError, match=r"one more than nodes|changed after it was recorded"):
        tiering.open(graph.path)


def test_a_name_longer_than_what_is_parsed_at_a_time(tmp_path):
    long = "n" * (3 << 20)
    (tmp_path / "long.csv").write_text(f"src,dst\na,b\n{long},a\nb,{long}\n")
    with open_dataset(tmp_path / "long.csv", string_ids=True) as data:
        assert (data.edges[0].src.tolist(), data.edges[0].dst.tolist()) == ([0, 2, 1], [1, 0, 2])
