"""Notes about artifacts that an earlier version may have written wrong: if their record leaves it open, only then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import tiering
from tiering.formats import known_defects
from tiering.version import __version__

EXAMPLES = Path(__file__).resolve().parents[2] / "data_specs" / "examples"
TEXT, PARQUET, NUMBERS = "src,dst,v\n1,2,.5\n2,5,1.5\n", {"src": [0, 1], "dst": [1, 2], "v": [0.5, 1]}, "1 2\n2 5\n"
FRACTIONS, JOINED, DELETED = "edge data lost its fractions", "became one node", "deleted rows became edges"
SPLITS, REVERSED = "splits have wrong nodes", "edges are reversed"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(known_defects, "_noted", set())


def make(folder: Path, monkeypatch: Any, source: str, options: dict[str, Any], version: str = "0.1.0") -> Any:
    data = folder / "data"
    data.mkdir()
    if source == "parquet":
        pa_parquet.write_table(pa.table(PARQUET), data / "part.parquet")
    else:
        (data / f"edges.{source}").write_text(TEXT if source == "csv" else NUMBERS)
    place = data if options.pop("directory", False) else next(data.iterdir())
    if options.pop("split_file", False):
        np.save(data / "train_idx.npy", [1])
    monkeypatch.setattr("tiering.artifacts.writer.__version__", version)
    relation = options.get("relation", {})
    return tiering.import_graph(None if relation else place, folder / "g", **{**options, **(
        {"relation": {key: str(place) for key in relation}} if relation else {})})  # fmt: skip


TYPED = {"relation": [("u", "r", "i")]}
CASES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "loops": ("csv", {"edge_data": "v", "self_loops": "add"}, {FRACTIONS, JOINED}),
    "loops between two types": ("csv", {**TYPED, "edge_data": "v", "self_loops": "add"}, {JOINED}),
    "loops and weights": ("csv", {"weight_column": "v", "self_loops": "add"}, set()),
    "edge data": ("parquet", {"edge_data": "v"}, set()),
    "numbers of a text table": ("csv", TYPED, {JOINED}),
    "numbers of a parquet table": ("parquet", TYPED, set()),
    "a directory of a table": ("parquet", {**TYPED, "directory": True}, {DELETED}),
    "a directory": ("parquet", {"directory": True}, {DELETED}),
    "a file": ("parquet", {}, set()),
    "splits": ("csv", {"compact_ids": True, "directory": True, "split_file": True}, {SPLITS}),
    "splits of first ids": ("csv", {"first_id": 1, "directory": True, "split_file": True}, {SPLITS}),
    "splits of ids as they are": ("csv", {"num_nodes": 6, "directory": True, "split_file": True}, set()),
    "random splits": ("csv", {"compact_ids": True, "random_train": "50%"}, set()),
    "no splits": ("csv", {"compact_ids": True}, set()),
    "two columns": ("txt", {}, {REVERSED}),
    "two columns by name": ("txt", {"src_column": "1", "dst_column": "0"}, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_an_import_of_an_earlier_version(tmp_path, monkeypatch, capsys, name):
    source, options, expected = CASES[name]
    graph = make(tmp_path, monkeypatch, source, dict(options))
    capsys.readouterr()
    tiering.open(graph.path)
    lines = [line for line in capsys.readouterr().err.splitlines() if "may have written errors" in line]
    assert len(lines) == bool(expected)
    for text in (FRACTIONS, JOINED, DELETED, SPLITS, REVERSED):
        assert (text in "".join(lines)) == (text in expected)
    if lines:
        assert lines[0].startswith(f"note: {graph.path}: tiering 0.1.0 may") and "; if so, import the data" in lines[0]
    tiering.open(graph.path)
    assert capsys.readouterr().err == "", "once in a process"


@pytest.mark.parametrize("version", [__version__, "0.10.0", "1.0"])
def test_later_versions_say_nothing(tmp_path, monkeypatch, capsys, version):
    graph = make(tmp_path, monkeypatch, "csv", dict(TYPED), version)
    capsys.readouterr()
    tiering.open(graph.path)
    assert capsys.readouterr().err == ""


def test_what_is_made_of_it_says_so_too(tmp_path, monkeypatch, tiering_cli):
    """What this version reorders keeps the version of the import, as does its layout; commands print the note once."""
    graph = make(tmp_path, monkeypatch, "txt", {"random_features": 4})
    monkeypatch.setattr("tiering.artifacts.writer.__version__", __version__)
    scores = tiering.score_graph(graph.path, tmp_path / "s", "degree")
    ordered = tiering.reorder_graph(graph.path, scores, tmp_path / "r")
    layout = tiering.write_layout(ordered, tmp_path / "l")
    assert ordered.manifest.body["changes"]["package"] == "tiering 0.1.0"
    layout.close()
    for path in ("g", "r", "l"):
        for command in ("check", "info"):
            known_defects._noted.clear()
            done = tiering_cli(command, "--json", tmp_path / path).ok()
            assert json.loads(done.out)
            assert done.err.count("tiering 0.1.0 may have written errors: edges are reversed") == 1
    again = tiering.import_graph(tmp_path / "data/edges.txt", tmp_path / "new")
    ordered = tiering.reorder_graph(again, tiering.score_graph(again, tmp_path / "t", "degree"), tmp_path / "q")
    assert "package" not in ordered.manifest.body["changes"]
    for path in ("new", "q"):
        assert "wrong" not in tiering_cli("info", tmp_path / path).ok().err


def test_embeddings(tmp_path, capsys):
    shutil.copytree(EXAMPLES / "embeddings", tmp_path / "e")
    assert tiering.check(tmp_path / "e") == []
    err = capsys.readouterr().err
    assert "tiering 0.1.0 may have written errors: embeddings of models that use degrees, norms or edge data" in err
    assert err.endswith("; if so, run inference again\n")


def test_the_golden_files_have_no_options_that_leave_it_open(capsys):
    for path in sorted(EXAMPLES.iterdir()):
        if path.name != "embeddings":
            assert tiering.check(path) == []
    assert capsys.readouterr().err == ""


def test_a_damaged_artifact_is_checked_all_the_same(tmp_path, monkeypatch):
    graph = make(tmp_path, monkeypatch, "txt", {})
    (graph.path / "relations/node__to__node/indptr").unlink()
    assert tiering.check(graph.path)
