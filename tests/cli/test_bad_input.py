"""Every kind of bad input: one clear line, exit code not 0, nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tiering


@pytest.fixture
def chain(chain):
    """Graph, scores and reordered graph of the tiny dataset."""
    return chain / "graph", chain / "scores", chain / "reordered"


@pytest.fixture
def unchanged(tmp_path):
    """Fails the test if it leaves files that were not there before the last call of the returned function."""
    seen: set[Path] = set()

    def remember() -> None:
        seen.clear()
        seen.update(tmp_path.rglob("*"))

    yield remember
    assert not set(tmp_path.rglob("*")) - seen


def test_import_of_nothing(tiering_cli, tmp_path, unchanged):
    (tmp_path / "empty").mkdir()
    unchanged()
    tiering_cli("import", tmp_path / "nowhere", "--out", tmp_path / "graph").refused("nowhere", "no such")
    tiering_cli("import", tmp_path / "empty", "--out", tmp_path / "graph").refused("empty")
    tiering_cli("import", tmp_path / "empty", "--out", tmp_path / "graph", "--format", "hdf5").refused("hdf5")


def test_nan_and_missing_labels_are_fine(tiering_cli, tmp_path, tiny_dataset):
    labels = np.load(tiny_dataset / "node_label.npy").astype(np.float32)
    labels[::3] = np.nan
    np.save(tiny_dataset / "node_label.npy", labels)
    made = tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph", "--json").ok().json
    assert made["node_types"]["node"]["classes"] == 3


def test_no_train_set(tiering_cli, tmp_path, tiny_dataset, unchanged):
    (tiny_dataset / "train_idx.npy").unlink()
    graph = tmp_path / "graph"
    tiering_cli("import", tiny_dataset, "--out", graph).ok()
    np.save(tmp_path / "none.npy", np.empty(0, np.int64))
    unchanged()
    tiering_cli("score", graph, "--method", "wrpr", "--out", tmp_path / "scores").refused("train", "--train")
    tiering_cli("evaluate", graph, "--fanouts", "5", "--epochs", 1).refused("train")
    wrong = ("0%", "101%", "nowhere.npy", tmp_path / "none.npy", tiny_dataset / "node_feat.npy")
    for train in wrong:
        tiering_cli("score", graph, "--train", train, "--out", tmp_path / "scores").refused()


def test_a_prior_weight_that_is_no_number(tiering_cli, tmp_path, chain, unchanged):
    unchanged()
    options = ("--method", "hybrid", "--fanouts", "3,2", "--prior-weight", "nan")
    tiering_cli("score", chain[0], *options, "--out", tmp_path / "again").refused("--prior-weight", "nan")


@pytest.mark.parametrize("weights", [(1, -1), (1, np.nan), (1, np.inf), (0, 0)])
def test_weights_that_cannot_be_sampled_by(tiering_cli, tmp_path, weights):
    """Negative, not a number, infinite, all zero, in a graph that was made before import looked."""
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,1\n1,2,2\n")
    graph = tmp_path / "graph"
    tiering_cli("import", tmp_path / "edges.csv", "--weight-column", "w", "--out", graph).ok()
    given = ("--fanouts", "2", "--sampler", "weighted", "--train", "100%", "--method", "presample")
    tiering_cli("score", graph, *given, "--out", tmp_path / "good").ok()
    (file,) = graph.rglob("weight")
    stored = np.dtype(tiering.open(graph).edge_data()["weight"].dtype)
    np.array(weights, stored).tofile(file)
    tiering_cli("score", graph, *given, "--out", tmp_path / "scores").refused("weight", ":")
    assert not (tmp_path / "scores").exists()


def test_layout_of_what_is_not_reordered(tiering_cli, tmp_path, chain, unchanged):
    unchanged()
    tiering_cli("layout", chain[0], "--cpu", "auto", "--out", tmp_path / "layout").refused("tiering reorder")
    tiering_cli("layout", chain[1], "--cpu", "auto", "--out", tmp_path / "layout").refused("graph", "scores")
    tiering_cli("reorder", chain[2], "--scores", chain[1], "--out", tmp_path / "again").refused("already reordered")
    for method in ("auto", "degree", "presample", "vip", "hybrid"):
        given = ("--method", method, "--fanouts", "3")
        tiering_cli("score", chain[2], *given, "--out", tmp_path / "again").refused("reordered")


def test_an_order_that_is_there(tiering_cli, chain):
    graph, scores, reordered = chain
    command = ("reorder", graph, "--scores", scores, "--out", reordered)
    tiering_cli(*command).refused("reordered: already exists", "--force")
    tiering_cli(*command, "--force").ok()


def test_damaged_artifact(tiering_cli, chain):
    for name in ("indices", "indptr"):
        path = next(chain[0].rglob(name))
        os.truncate(path, path.stat().st_size - 4)
    found = tiering_cli("check", chain[0])
    assert found.code == 1 and "2 problems" in found.out and found.err == ""
    assert [problem["kind"] for problem in tiering_cli("check", chain[0], "--json").json["problems"]] == ["size"] * 2
    tiering_cli("info", chain[0]).refused("indices", "indptr")


def test_output_that_cannot_be_written(tiering_cli, tmp_path, tiny_dataset):
    (tmp_path / "file").write_text("x")
    tiering_cli("import", tiny_dataset, "--out", tmp_path / "file" / "graph").refused("file")
    tiering_cli("import", tiny_dataset, "--out", "/proc/graph").refused("/proc")
    tiering_cli("import", tiny_dataset, "--out", "/").refused("/")
