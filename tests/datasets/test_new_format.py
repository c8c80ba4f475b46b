"""A format is one module with a `Reader` and one line in the table of readers: CONTRIBUTING.md shows this one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiering
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader
from tiering.datasets.nodes import NodeArrays, make_dataset
from tiering.datasets.open import READERS
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.graph import Graph


def open_json_graph(path: Path, context: ImportContext) -> Dataset:
    """Read ``{"nodes": N, "edges": [[source, destination], ...]}``."""
    context.record_file(path)
    document = json.loads(path.read_text())
    src, dst = np.array(document["edges"], np.int64).reshape(-1, 2).T
    edges = EdgeData(RELATION, src, dst, where=str(path))
    nodes = NodeArrays(counts=[(str(path), document["nodes"])])
    return make_dataset(path.stem, {NODE: nodes}, [edges], context)


READER = Reader(
    open_json_graph, takes=frozenset(), file=Detector("a graph in JSON (.json)", lambda path: path.suffix == ".json")
)


def test_a_new_format_is_detected_imported_checked_and_named(tmp_path, monkeypatch, tiering_cli):
    monkeypatch.setitem(READERS, "json", READER)
    path = tmp_path / "tiny.json"
    path.write_text('{"nodes": 4, "edges": [[0, 1], [2, 1], [1, 0]]}')
    tiering_cli("import", path, "--out", tmp_path / "graph", "--split", "0.5,0.25,0.25", "--add-reverse").ok()
    graph = Graph.open(tmp_path / "graph")
    indptr, indices = graph.csc()
    np.testing.assert_array_equal(indptr, [0, 2, 5, 6, 6])
    np.testing.assert_array_equal(np.sort(indices[2:5]), [0, 0, 2])
    assert graph.splits() == ["train", "val", "test"]
    with pytest.raises(InputError, match=r"tiny\.json: expected 5 nodes of type node as in `num_nodes`, found 4"):
        tiering.import_graph(path, tmp_path / "wrong", num_nodes=5)
    with pytest.raises(InputError, match="header: does not apply to format json; it applies to"):
        tiering.import_graph(path, tmp_path / "wrong", header=True)
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(InputError, match=r"looked for .*a graph in JSON \(\.json\)"):
        tiering.import_graph(tmp_path / "notes.md", tmp_path / "wrong")
