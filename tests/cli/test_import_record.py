"""What an import read is printed once, in its summary, as `tiering info` prints it, of each kind of source."""

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
                "not read: files README",
            ],
        ),
        (
            "e.csv",
            _text,
            [
                "read: edgelist {}",
                "edges: source src, destination dst, weight weight; the first line is a header",
                "not read: columns time",
            ],
        ),
        (
            "e.parquet",
            _parquet,
            ["edges: source source, destination target", "not read: columns when", "changed: node:to:node: removed"],
        ),
    ],
)
def test_an_import_says_what_it_read(
    tmp_path: Path, tiering_cli: Any, capfd: pytest.CaptureFixture[str], name: str, make: Any, lines: list[str]
) -> None:
    source, graph = make(tmp_path / name), tmp_path / "g"
    said = tiering_cli("import", source, "--out", graph, "--self-loops", "remove").ok()
    info = tiering_cli("info", graph).ok().out
    assert said.out == info
    words = " ".join(info.split())
    for line in lines:
        assert words.count(line.format(source).replace(": ", " ", 1)) == 1
    assert "node:to:node: removed 1 self loops" in words
    assert not [line for line in said.err.splitlines() if not line.startswith("note: ")]
    document = tiering_cli("import", source, "--out", tmp_path / "j", "--self-loops", "remove", "--json").ok()
    assert document.json["changes"]["format"] and "read" not in document.err
    capfd.readouterr()
    tiering.import_graph(source, tmp_path / "again", self_loops="remove")
    assert "read" not in capfd.readouterr().err


def test_facts_are_not_repeated_for_artifacts_made_of_a_graph(tmp_path: Path, tiering_cli: Any) -> None:
    source = _folder(tmp_path / "toy")
    tiering_cli("import", source, "--out", tmp_path / "g").ok()
    tiering_cli("score", tmp_path / "g", "--method", "degree", "--out", tmp_path / "s").ok()
    ranked = tiering_cli("reorder", tmp_path / "g", "--scores", tmp_path / "s", "--out", tmp_path / "r").ok()
    assert "ids are ranks" in ranked.out and "edge_index holds" not in ranked.out


def test_a_kind_of_note_is_printed_once(tmp_path: Path, tiering_cli: Any) -> None:
    """Of three types whose ids are numbered there is one note, which names all of them."""
    names = ("user", "item", "shop")
    for k, name in enumerate(names):
        (tmp_path / f"{name}.csv").write_text("".join(["src,dst\n", *(f"{9 + k},{90 + k}\n", f"{20 + k},{95 + k}\n")]))
    edges = [f"--relation={name}:buys{k}:{names[k - 1]}={tmp_path / f'{name}.csv'}" for k, name in enumerate(names)]
    said = tiering_cli("import", *edges, "--out", tmp_path / "g").ok().err
    assert said.count("original_id has the ids of the source") == 1
    assert all(said.count(f"ids of {name}") == 1 for name in names)
