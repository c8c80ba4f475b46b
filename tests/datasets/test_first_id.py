"""Ids that begin at 1, as KONECT and Network Repository have them: noticed, and cured by --first-id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from refusals import refused

import tiering

PAIRS = np.array([[1, 2], [2, 3], [3, 1], [3, 3]])
BELOW = "the smallest id is 1, node 0 has no edges; if the ids begin there, give --first-id 1"


@pytest.fixture(params=["text", "gzip", "csv", "parquet"])
def source(request: Any, tmp_path: Path) -> Path:
    if request.param == "parquet":
        path = tmp_path / "edges.parquet"
        pa_parquet.write_table(pa.table({"src": PAIRS[:, 0], "dst": PAIRS[:, 1]}), path)
        return path
    path = tmp_path / {"text": "edges.txt", "gzip": "edges.txt.gz", "csv": "edges.csv"}[request.param]
    comma = request.param == "csv"
    np.savetxt(path, PAIRS, "%d", delimiter="," if comma else "\t", header="src,dst" if comma else "", comments="")
    return path


def test_an_empty_node_0_is_said_and_cured(source: Path, tmp_path: Path, tiering_cli: Any) -> None:
    result = tiering_cli("import", source, "--out", tmp_path / "a").ok()
    assert f"note: {source}: {BELOW}" in result.err
    graph = tiering.open(tmp_path / "a")
    assert graph.num_nodes() == 4 and BELOW in graph.manifest.body["changes"]["warnings"][0]
    result = tiering_cli("import", source, "--out", tmp_path / "b", "--first-id", 1).ok()
    assert "smallest" not in result.err
    graph = tiering.open(tmp_path / "b")
    indptr, indices = graph.csc()
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 2, 4], [2, 0, 1, 2])
    assert graph.manifest.body["changes"]["options"] == {"first_id": 1}
    tiering_cli("import", source, "--out", tmp_path / "c", "--num-nodes", 3).refused("id 3 occurs; give --first-id 1")
    tiering_cli("import", source, "--out", tmp_path / "d", "--num-nodes", 3, "--first-id", 1).ok()
    where = "edge 0: source id 1 is below" if source.suffix == ".parquet" else "expected ids from 2"
    refused(f"{where}.*--first-id", source, first_id=2)


def test_the_line_of_an_id_below_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# made by hand\n1 2\n\n2  3\n7 0\n")
    refused(r"a\.txt: line 5: expected ids from 1 \(--first-id\), found 0", tmp_path / "a.txt", first_id=1)
    refused("names are always numbered", tmp_path / "a.txt", first_id=1, string_ids=True, delimiter="space")
    refused("expected a whole number", tmp_path / "a.txt", first_id=-1)
    graph = tiering.import_graph(tmp_path / "a.txt", tmp_path / "g", compact_ids=True)
    assert graph.num_nodes() == 5 and "warnings" not in graph.manifest.body["changes"]


def test_numpy_edges_say_it_too(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    np.save(tmp_path / "toy/edge_index.npy", PAIRS.T)
    graph = tiering.import_graph(tmp_path / "toy", tmp_path / "g")
    assert "or subtract 1 from them" in graph.manifest.body["changes"]["warnings"][0]
    refused("--first-id: does not apply to format npy", tmp_path / "toy", first_id=1)
