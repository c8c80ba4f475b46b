"""Format npz: matrices as scipy saves them, recipes of docs/datasets.md, and archives that are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import tiering
from tiering.datasets.open import detect_format, open_dataset
from tiering.errors import InputError, TieringError

DOCS = Path(__file__).resolve().parents[2] / "docs/datasets.md"
RELATION = ("node", "to", "node")


def in_lists(graph: Any) -> set[tuple[int, int]]:
    """Edges of a graph as pairs."""
    indptr, indices = graph.csc(RELATION)
    return set(zip(indices.tolist(), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)).tolist(), strict=True))


@given(data=st.data())
def test_the_edges_are_the_entries(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("npz")
    nodes, layout = data.draw(st.integers(1, 12)), data.draw(st.sampled_from(["coo", "csr", "csc"]))
    matrix = sp.random(nodes, nodes, 0.5, "coo", random_state=data.draw(st.integers(0, 99)))
    if not matrix.nnz:
        return
    sp.save_npz(path / "a.npz", matrix.asformat(layout), compressed=data.draw(st.booleans()))
    with open_dataset(path / "a.npz") as dataset:
        assert (dataset.format, dataset.nodes["node"].num_nodes) == ("npz", nodes)
    graph = tiering.import_graph(path / "a.npz", path / "graph")
    assert in_lists(graph) == set(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))


def test_a_directory_has_the_files_of_the_nodes_beside_the_matrix(tmp_path: Path) -> None:
    matrix = sp.coo_matrix(([5.0, 6.0], ([0, 2], [1, 0])), (3, 3))
    sp.save_npz(tmp_path / "any.npz", matrix)
    np.save(tmp_path / "node_feat.npy", np.ones((3, 2), np.float32))
    np.save(tmp_path / "edge_weight.npy", matrix.data)
    np.savez(tmp_path / "results.npz", x=np.ones(3))
    with open_dataset(tmp_path) as dataset:
        assert dataset.nodes["node"].features.dim == 2
        assert dataset.edges[0].data["weight"].tolist() == [5, 6]
        assert [Path(path).name for path in dataset.notes["ignored_files"]] == ["results.npz"]
    sp.save_npz(tmp_path / "other.npz", matrix)
    refused(r"expected one file of scipy.*, found any.npz, other.npz; give the path", tmp_path, error=TieringError)


MATRIX = {"format": np.array(b"coo"), "shape": np.array([3, 3]), "data": np.ones(2)}
ENDS = {"row": np.array([0, 1]), "col": np.array([1, 2])}
LISTS = {"indptr": np.array([0, 1, 2, 2]), "indices": np.array([1, 2])}


@pytest.mark.parametrize(("arrays", "message"), [
    ({**ENDS, "format": np.array(b"bsr")}, "expected a matrix coo, csr, csc, found 'bsr'; save matrix.tocsr"),
    ({**ENDS, "shape": np.array([3, 4])}, r"expected a square matrix.*found shape \[3, 4\]"),
    ({**ENDS, "shape": np.array([3, -1])}, "expected a square matrix"),
    ({**ENDS, "shape": np.array([-3, -3])}, "shape"),
    ({**ENDS, "col": np.array([1, 2, 0])}, "expected as many rows as columns, found 2 and 3"),
    ({**ENDS, "col": np.array([1.0, 2])}, "expected ids of dtype int32 or int64, found float64"),
    ({"row": ENDS["row"]}, "there is no array col"),
    ({**LISTS, "format": np.array("csr"), "indptr": np.array([0, 1, 2])}, "expected 4 offsets"),
    ({**LISTS, "format": np.array("csr"), "indptr": np.array([0, 2, 1, 2])}, "expected offsets that never decrease"),
    ({**ENDS, "row": np.array([0, 3])}, "num_nodes` or the file"),
    ({**ENDS, "row": np.array([0, -1])}, "num_nodes` or the file"),
])  # fmt: skip
def test_a_matrix_that_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **{**MATRIX, **arrays})
    assert detect_format(tmp_path / "a.npz") == "npz"
    with pytest.raises(InputError, match=message):
        tiering.import_graph(tmp_path / "a.npz", tmp_path / "graph")


@pytest.mark.parametrize(("options", "message"), [
    ({"num_nodes": 4}, "expected 4 nodes of type node as in --num-nodes, found 3"),
    ({"feature_dim": 4}, "give the directory with the features"),
])  # fmt: skip
def test_options_that_a_file_has_no_use_for(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **MATRIX, **ENDS)
    refused(message, tmp_path / "a.npz", **options)


def recipes() -> list[str]:
    """The lines of the page that make numpy files."""
    return re.findall(r"^```\n(import .*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)


def test_reddit_by_the_lines_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random, folder = np.random.default_rng(0), tmp_path / "reddit"
    folder.mkdir()
    matrix = sp.random(30, 30, 0.2, "coo", random_state=1)
    kinds = random.integers(1, 4, 30)
    rows = random.random((30, 602)).astype(np.float32)
    sp.save_npz(folder / "reddit_graph.npz", matrix)
    np.savez(folder / "reddit_data.npz", feature=rows, label=random.integers(0, 41, 30), node_types=kinds)
    subprocess.run([sys.executable, "-c", recipes()[0]], check=True)
    graph = tiering.import_graph(folder, tmp_path / "graph")
    assert in_lists(graph) == set(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))
    assert np.array_equal(graph.split("val", "node"), np.flatnonzero(kinds == 2))
    table = graph.feature_table("node")
    assert np.array_equal(table.open(), rows)


def test_wikikg_by_the_lines_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "processed").mkdir()
    triples = np.random.default_rng(0).integers(0, 20, (50, 3)).astype(np.int32)
    np.save("processed/train_hrt.npy", triples)
    np.save("processed/entity_feat.npy", np.ones((20, 768), np.float16))
    subprocess.run([sys.executable, "-c", recipes()[1]], check=True)
    graph = tiering.import_graph(tmp_path / "processed", tmp_path / "graph")
    assert graph.num_nodes("node") == 20
    indptr, indices = graph.csc(RELATION)
    dst = np.repeat(np.arange(20), np.diff(indptr))
    found = np.stack((indices, graph.edge_data(RELATION)["type"], dst), axis=1)
    assert np.array_equal(found, triples[np.argsort(triples[:, 2], kind="stable")])


@pytest.fixture
def edges() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 40, (2, 200))


def test_a_sparse_matrix_in_place_of_features(tmp_path: Path, edges: np.ndarray) -> None:
    np.save(tmp_path / "edge_index.npy", edges)
    sp.save_npz(tmp_path / "node_feat.npz", sp.random(40, 3, 0.5, "csr"))
    with pytest.raises(InputError, match=r"node_feat.npz: .* found a scipy sparse matrix .* for example (.*)") as told:
        open_dataset(tmp_path)
    advice = str(told.value).split("for example ")[1]
    subprocess.run([sys.executable, "-c", f"import numpy, scipy.sparse; {advice}"], cwd=tmp_path, check=True)
    (tmp_path / "node_feat.npz").unlink()
    with open_dataset(tmp_path) as dataset:
        assert dataset.nodes["node"].features.rows == 40


@pytest.mark.parametrize("name", ["edge_index.npz", "node_feat.npz", "train_idx.npz"])
def test_an_archive_beside_or_in_place_of_a_numpy_file(tmp_path, edges, name):
    if name != "edge_index.npz":
        np.save(tmp_path / "edge_index.npy", edges)
    np.savez(tmp_path / name, x=np.ones((40, 3)))
    refused(rf"{name}: expected a numpy file .*, found an archive \(npz\) of x", tmp_path)


def test_other_archives_are_nobodys_business(tmp_path, edges):
    np.save(tmp_path / "edge_index.npy", edges)
    np.savez(tmp_path / "results.npz", x=edges)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nothing")
    with open_dataset(tmp_path) as dataset:
        assert len(dataset.notes["ignored_files"]) == 2
    (tmp_path / "broken.npz").rename(tmp_path / "node_feat.npz")
    refused("damaged zip archive", tmp_path)
