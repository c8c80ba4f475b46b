"""Offsets of adjacency lists that are not in order, past the checksums: what is placed by them is refused."""

from __future__ import annotations

import numpy as np
import pytest

NODES, EDGES = 60, 500
INDPTR = "relations/node__to__node/indptr"
EDGES_PLACED = ("--cpu", "50%", "--ssd", "@/ssd")
CASES = {
    "the last is too small": (-1, -1, EDGES_PLACED, f"indptr ends at {EDGES - 1} but there are {EDGES} indices"),
    "the last is too large": (-1, 7, EDGES_PLACED, f"indptr ends at {EDGES + 7} but there are {EDGES} indices"),
    "the first is not 0": (0, 1, EDGES_PLACED, "indptr begins with 1, expected 0"),
    "one falls": (9, 1 << 40, EDGES_PLACED, "indptr decreases from"),
    "one falls, with lists on the GPU": (
        9,
        1 << 40,
        ("--gpu", "50%", "--cpu", "50%", "--adjacency-cache", "auto"),
        "indptr decreases from",
    ),
}


@pytest.fixture
def folder(tiering_cli, tmp_path):
    """A reordered graph with features of nodes and of edges, and its scores."""
    source, random = tmp_path / "source", np.random.default_rng(3)
    source.mkdir()
    np.save(source / "edge_index.npy", random.integers(0, NODES, (2, EDGES)))
    np.save(source / "node_feat.npy", random.standard_normal((NODES, 4), dtype=np.float32))
    np.save(source / "train_idx.npy", np.arange(NODES // 2))
    np.save(source / "edge_feat.npy", random.standard_normal((EDGES, 5), dtype=np.float32))
    tiering_cli("import", source, "--out", tmp_path / "graph").ok()
    hops = ("--method", "hybrid", "--fanouts", "3,3")
    tiering_cli("score", tmp_path / "graph", *hops, "--out", tmp_path / "scores").ok()
    tiering_cli("reorder", tmp_path / "graph", "--scores", tmp_path / "scores", "--out", tmp_path / "reordered").ok()
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused(tiering_cli, folder, case):
    at, change, options, message = CASES[case]
    indptr = np.fromfile(folder / "reordered" / INDPTR, np.int64)
    indptr[at] += change
    indptr.tofile(folder / "reordered" / INDPTR)
    told = [option.replace("@", str(folder)) for option in options]
    if "--adjacency-cache" in options:
        told += ["--scores", str(folder / "scores")]
    layout = ("layout", folder / "reordered", "--out", folder / "layout", *told)
    said = tiering_cli(*layout, "--no-verify")
    assert said.code == 1 and "internal error" not in said.err
    assert message in said.err and "the graph is damaged: run `tiering check" in said.err
    assert "differ from what was written" in tiering_cli(*layout).err, "checksums say it first"
    assert not (folder / "layout").exists()
