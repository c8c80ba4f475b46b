"""What an import read is said on standard error and by `tiering info`, of each kind of source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import tiering


def _folder(path: Path) -> Path:
    path.mkdir()
    np.save(path / "edge_index.npy", np.array([[0, 1], [1, 1]]))
    np.save(path / "node_feat.npy", np.zeros((3, 2), np.float32))
    (path / "README").write_text("x")
    return path


def _text(path: Path) -> Path:
    path.write_text("time,src,dst,weight\n7,0,1,0.5\n8,1,1,2\n")
    return path


def _parquet(path: Path) -> Path:
    pa_parquet.write_table(pa.table({"when": [5, 6], "source": ["a", "b"], "target": ["b", "b"]}), path)
    return path


@pytest.mark.parametrize(
    ("name", "make", "lines"),
    [
        (
            "toy",
            _folder,
            [
                "read: npy {} (edge_index.npy, node_feat.npy)",
                "edges: edge_index holds source, destination",
                "attributes: features of node (2 float32)",
                "not read: files README",
            ],
        ),
        (
            "e.csv",
            _text,
            [
                "read: edgelist {}",
                "edges: source src, destination dst, weight weight; the first line is a header",
                "attributes: weight of node:to:node",
                "not read: columns time",
            ],
        ),
        (
            "e.parquet",
            _parquet,
            ["edges: source source, destination target", "not read: columns when", "changed: remove self loops of"],
        ),
    ],
)
def test_an_import_says_what_it_read(
    tmp_path: Path, tiering_cli: Any, capfd: pytest.CaptureFixture[str], name: str, make: Any, lines: list[str]
) -> None:
    source, graph = make(tmp_path / name), tmp_path / "g"
    said = tiering_cli("import", source, "--out", graph, "--self-loops", "remove").ok()
    info = " ".join(tiering_cli("info", graph).ok().out.split())
    for line in lines:
        topic, _, words = line.format(source).partition(": ")
        assert f"{topic}: {words}" in said.err
        assert f"{topic} {words}" in info
    assert "node:to:node: 2 edges became 1" in info
    capfd.readouterr()
    tiering.import_graph(source, tmp_path / "again", self_loops="remove")
    assert lines[0].format(source) in capfd.readouterr().err
