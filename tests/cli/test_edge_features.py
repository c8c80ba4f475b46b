"""Features of edges, from the user's files to batches, against the source's own rows by the ids of the edges."""

from __future__ import annotations

import numpy as np
import pytest

import tiering
from tiering.memory import own_memory

NODES, EDGES = 60, 500
STORED = {"float16": "<f2", "float32": "<f4", "bfloat16": "<u2", "uint8": "|u1", "int64": "<i8"}


def rows_of(count: int, dim: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Random rows as they are stored, no two alike."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, dim * np.dtype(dtype).itemsize), dtype=np.uint8)
    return rows.view(dtype)


def write_source(folder, dtype: str = "float32", dim: int = 5, edges: int = EDGES, nodes: int = NODES) -> np.ndarray:
    """A graph with hubs, duplicates, self loops and isolated nodes in npy format; its rows of edge features."""
    random = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edge_index.npy", (nodes * random.random((2, edges)) ** 2).astype(np.int64))
    np.save(folder / "node_feat.npy", random.standard_normal((nodes, 4), dtype=np.float32))
    np.save(folder / "node_label.npy", random.integers(0, 3, nodes))
    np.save(folder / "train_idx.npy", random.permutation(nodes)[: nodes // 2])
    rows = rows_of(edges, dim, STORED[dtype])
    np.save(folder / "edge_feat.npy", rows)
    return rows


def assert_rows(graph, rows: np.ndarray, relation=None) -> None:
    """Each edge of a graph has the row that the source gives it."""
    data = graph.edge_data(relation)
    assert data["feat"].dtype == rows.dtype
    np.testing.assert_array_equal(data["feat"].view(np.uint8), rows[data["edge_ids"]].view(np.uint8))


@pytest.mark.parametrize("dtype", STORED)
def test_rows_go_with_their_edges_through_import_transpose_and_reorder(tiering_cli, tmp_path, dtype):
    rows = write_source(tmp_path / "source", dtype)
    graph, turned, reordered = (tmp_path / name for name in ("graph", "turned", "reordered"))
    tiering_cli("import", tmp_path / "source", "--edge-ids", "--out", graph).ok()
    tiering_cli("transpose", graph, "--out", turned).ok()
    tiering_cli("score", graph, "--method", "degree", "--out", tmp_path / "scores").ok()
    tiering_cli("reorder", graph, "--scores", tmp_path / "scores", "--out", reordered).ok()
    src, dst = np.load(tmp_path / "source/edge_index.npy")
    for path in (graph, turned, reordered):
        opened = tiering.open(path)
        assert_rows(opened, rows)
        indptr, indices = opened.csc()
        old = opened.new_to_old() if path == reordered else np.arange(NODES)
        ends = old[indices], old[np.repeat(np.arange(NODES), np.diff(indptr))]
        ids = opened.edge_data()["edge_ids"]
        for found, wanted in zip(ends, (dst, src) if path == turned else (src, dst), strict=True):
            np.testing.assert_array_equal(found, wanted[ids])
        tiering_cli("check", path, "--full").ok()


def test_a_tight_budget_counts_wide_rows_and_gives_the_same_bytes(tiering_cli, tmp_path):
    rows = write_source(tmp_path / "source", dim=512, edges=40_000, nodes=2_000)
    least = own_memory() + (72 << 20)  # the rows alone are 78 MiB
    tight, roomy = ("--memory", str(least)), ("--memory", "4GiB")
    asked = ("import", tmp_path / "source", "--edge-ids", "--out", tmp_path / "tight")
    steps = tiering_cli(*asked, *tight, "--dry-run", "--json").ok().json
    assert "buckets" in str(steps), steps
    tiering_cli(*asked, *tight).ok()
    tiering_cli(*asked[:-1], tmp_path / "roomy", *roomy).ok()
    opened = tiering.open(tmp_path / "tight")
    assert_rows(opened, rows)
    assert opened.manifest.files == tiering.open(tmp_path / "roomy").manifest.files
    tiering_cli("score", tmp_path / "tight", "--method", "degree", "--out", tmp_path / "scores").ok()
    reorder = ("reorder", tmp_path / "tight", "--scores", tmp_path / "scores")
    tiering_cli(*reorder, "--memory", str(own_memory() + (120 << 20)), "--out", tmp_path / "a").ok()
    tiering_cli(*reorder, *roomy, "--out", tmp_path / "b").ok()
    assert_rows(tiering.open(tmp_path / "a"), rows)
    assert tiering.open(tmp_path / "a").manifest.files == tiering.open(tmp_path / "b").manifest.files
