"""`tiering check`: what it compared with what, in words; feature files of the user's, sampled or whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from damage import flip

from tiering.artifacts import checksum

NODES, DIM = 1600, 1024  # 6.25 MiB: more than the 64 samples of 64 KiB cover


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset whose feature file has a byte that no sample covers."""
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "edge_index.npy", random.integers(0, NODES, (2, 5000)))
    np.save(folder / "node_feat.npy", random.random((NODES, DIM), np.float32))
    np.save(folder / "train_idx.npy", np.arange(100))
    return folder


def flip_between_samples(file: Path) -> None:
    size, piece = file.stat().st_size, 64 * 1024
    at = (size - piece) // 63 - 100  # before the second sample begins, after the first has ended
    assert at > piece
    flip(file, 8 * at + 3)


def test_features_known_by_samples(tiering_cli, tmp_path: Path, dataset: Path) -> None:
    tiering_cli("import", dataset, "--out", tmp_path / "graph").ok()
    shown = tiering_cli("check", tmp_path / "graph", "--full").ok().out
    assert f"only 64 samples were compared of {dataset}/node_feat.npy (read whole)" in shown
    flip_between_samples(dataset / "node_feat.npy")
    assert "sound" in tiering_cli("check", tmp_path / "graph", "--full").ok().out
    flip(dataset / "node_feat.npy", 8000)
    result = tiering_cli("check", tmp_path / "graph", "--full")
    assert result.code == 1 and "content changed: expected xxh3-64-sampled:" in result.out


def test_features_with_checksums(tiering_cli, tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1 << 20)
    graph, scores = tmp_path / "graph", tmp_path / "scores"
    tiering_cli("import", dataset, "--out", graph, "--checksum-features").ok()
    tiering_cli("score", graph, "--out", scores).ok()
    tiering_cli("reorder", graph, "--scores", scores, "--out", tmp_path / "reordered").ok()
    for artifact in (graph, tmp_path / "reordered"):
        assert "alone" not in tiering_cli("check", artifact, "--full").ok().out
    document = tiering_cli("check", graph, "--full", "--json").ok().json
    assert document["coverage"]["compared"] == document["coverage"]["known"] > NODES * DIM * 4
    flip_between_samples(dataset / "node_feat.npy")
    result = tiering_cli("check", tmp_path / "reordered", "--full")
    assert result.code == 1 and "node_feat.npy: content changed: bytes 0 to 1048576 differ from what was" in result.out
    words = ("node_feat.npy: bytes 0 to 1048576 differ from what was written", "--no-verify")
    tiering_cli("layout", tmp_path / "reordered", "--out", tmp_path / "layout").refused(*words)
    tiering_cli("reorder", graph, "--scores", scores, "--out", tmp_path / "other", "--features").refused(*words)
    assert not (tmp_path / "layout").exists() and not (tmp_path / "other").exists()
    tiering_cli("layout", tmp_path / "reordered", "--out", tmp_path / "layout", "--no-verify").ok()


def test_a_sample_of_the_blocks(tiering_cli, tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1 << 10)
    tiering_cli("import", dataset, "--out", tmp_path / "graph").ok()
    tiering_cli("check", tmp_path / "graph", "--sample", "1%").refused("only --full compares blocks")
    tiering_cli("check", tmp_path / "graph", "--full", "--sample", "3").refused("expected a fraction of the blocks")
    document = tiering_cli("check", tmp_path / "graph", "--full", "--sample", "20%", "--json").ok().json
    assert 0.15 < document["coverage"]["compared"] / document["coverage"]["known"] < 0.25
    indices = tmp_path / "graph/relations/node__to__node/indices"
    data = bytearray(indices.read_bytes())
    indices.write_bytes(bytes(byte ^ 1 for byte in data))
    assert tiering_cli("check", tmp_path / "graph", "--full", "--sample", "20%").code == 1
