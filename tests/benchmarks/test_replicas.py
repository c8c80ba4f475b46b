"""Replicas of published datasets: their trees, read by other means and by the importer."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tiering
from benchmarks.replicas import replicate, scaled_document
from benchmarks.replicas.content import SPLITS, Content
from tiering.datasets.specs import find_spec


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    shares = {"igbh-tiny": 0.005, "igb-full": 4e-6, "mag240m": 8e-6, "ogbn-papers100m": 1e-5, "ogbn-arxiv": 0.01,
              "friendster": 1e-5, "reddit": 0.002, "wikikg90m-v2": 1e-5}  # fmt: skip
    for name, share in shares.items():
        replicate(name, folder / name, scale=share)
    return folder


def test_igbh_has_its_tree_with_pickles_and_citations_in_both_directions(replicas):
    tree = replicas / "igbh-tiny" / "tiny" / "processed"
    papers = np.load(tree / "paper/node_feat.npy")
    assert papers.shape == (500, 1024)
    assert papers.dtype == np.float32
    with pytest.raises(ValueError, match="pickle"):
        np.load(tree / "paper/paper_id_index_mapping.npy")
    cites = np.load(tree / "paper__cites__paper/edge_index.npy")
    pairs = cites[: len(cites) // 2 * 2].reshape(-1, 2, 2)
    assert (pairs[:, 0] == pairs[:, 1, ::-1]).all()
    assert cites.max() < 500 - 5  # the last hundredth is isolated
    assert len(np.unique(cites, axis=0)) < len(cites)


def test_igb_full_has_files_without_headers_labels_of_a_prefix_and_loops(replicas):
    source, tree = find_spec(str(replicas / "igb-full/source.json")), replicas / "igb-full/full/processed"
    papers = source.nodes["paper"]
    assert (tree / "paper/node_feat.npy").stat().st_size == papers * 4096
    labels = np.fromfile(tree / "paper/node_label_19.npy", np.float32)
    assert labels.size == round(227_130_858 * 4e-6) < papers
    edges = np.load(tree / "paper__cites__paper/edge_index.npy")
    assert np.count_nonzero(edges[:, 0] == edges[:, 1]) == round(664_971 * 4e-6)


def test_mag240m_has_half_precision_labels_with_nan_and_pickled_splits(replicas):
    root = replicas / "mag240m/mag240m_kddcup2021"
    source = find_spec(str(replicas / "mag240m/source.json"))
    assert np.load(root / "processed/paper/node_feat.npy").dtype == np.float16
    assert not (root / "processed/author").exists()
    with zipfile.ZipFile(root / "split_dict.pt") as archive:
        splits: dict[str, Any] = pickle.loads(archive.read("split_dict/data.pkl"))
    labels = np.load(root / "processed/paper/node_label.npy")
    assert not np.isnan(labels[splits["train"]]).any()
    assert np.isnan(labels[splits["test-whole"]]).all()
    assert np.count_nonzero(~np.isnan(labels)) == source.about["labelled"]
    torch = pytest.importorskip("torch")
    meta = torch.load(root / "meta.pt", weights_only=False)
    assert meta == {**source.nodes, "num_classes": 153}
    assert (torch.load(root / "split_dict.pt", weights_only=False)["valid"] == splits["valid"]).all()


def test_papers100m_has_deflated_members_and_packed_splits(replicas):
    root = replicas / "ogbn-papers100m/papers100M-bin"
    with zipfile.ZipFile(root / "raw/data.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    with np.load(root / "raw/data.npz") as data:
        assert data["edge_index"].shape == (2, int(data["num_edges_list"][0]))
        assert data["node_feat"].shape == (int(data["num_nodes_list"][0]), 128)
    labels = np.load(root / "raw/node-label.npz")["node_label"]
    train = np.loadtxt(root / "split/time/train.csv.gz", dtype=np.int64, ndmin=1)
    assert not np.isnan(labels[train]).any()
    assert np.isnan(labels).mean() > 0.9


def test_text_is_as_snap_and_ogb_write_it(replicas):
    with gzip.open(replicas / "friendster/com-friendster.ungraph.txt.gz", "rt") as file:
        lines = file.read().splitlines()
    assert lines[0].startswith("# Nodes: 656 Edges: 18061")
    assert np.array([line.split("\t") for line in lines[2:]], np.int64).shape == (18061, 2)
    root = replicas / "ogbn-arxiv/ogbn_arxiv/raw"
    assert np.loadtxt(root / "node-feat.csv.gz", delimiter=",").shape == (1693, 128)
    assert np.loadtxt(root / "edge.csv.gz", delimiter=",", dtype=np.int64).shape == (11662, 2)


def test_reddit_is_a_matrix_of_scipy_and_numpy_files(replicas, tmp_path):
    root = replicas / "reddit/reddit"
    matrix = scipy.sparse.load_npz(root / "reddit_graph.npz")
    assert matrix.shape == (466, 466)
    assert (matrix.row.reshape(-1, 2)[:, 0] == matrix.col.reshape(-1, 2)[:, 1]).all()
    made = tiering.import_graph(replicas / "reddit", tmp_path / "graph", spec=str(replicas / "reddit/source.json"))
    indptr, indices = made.csc(("node", "to", "node"))
    assert np.array_equal(indices, matrix.row[np.argsort(matrix.col, kind="stable")])
    assert np.array_equal(np.diff(indptr), np.bincount(matrix.col, minlength=466))
    assert [made.split(name, "node").size for name in SPLITS] == [307, 48, 111]
    table = made.feature_table("node")
    assert table is not None
    assert np.array_equal(table.open(), np.load(root / "node_feat.npy"))


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    files = []
    for k in range(3):
        replicate("mag240m", tmp_path / str(k), 2e-6, seed=k // 2)
        files.append([path.read_bytes() for path in sorted((tmp_path / str(k)).rglob("*.npy"))])
    assert files[0] == files[1]
    assert files[0] != files[2]


@pytest.mark.parametrize("name", ["igbh-tiny", "igb-full", "mag240m"])
def test_a_replica_is_imported_by_its_own_specification(replicas, tmp_path, name):
    own = replicas / name / "source.json"
    source = find_spec(str(own))
    graph = tiering.import_graph(replicas / name, tmp_path / "graph", spec=str(own))
    types = {file.of for file in source.files if file.holds == "features" and not file.optional}
    assert {t: graph.num_nodes(t) for t in graph.node_types} == {
        t: n for t, n in source.nodes.items() if t in types or name == "mag240m"
    }
    for relation in graph.relations:
        assert graph.num_edges(relation) in source.edges.values()


@pytest.mark.parametrize(("like", "scale"), [("ogbn-products", 0.5), ("ogbn-products", 1e-4), ("mag240m", 3.3e-3)])
def test_splits_of_any_scale_are_of_distinct_nodes(tmp_path, like, scale):
    (tmp_path / "source.json").write_text(json.dumps(scaled_document(like, scale)))
    content = Content(find_spec(str(tmp_path / "source.json")), 0)
    node_type = "paper" if like == "mag240m" else "node"
    ids = np.concatenate([content.split(node_type, name) for name in SPLITS])
    assert np.unique(ids).size == ids.size
