"""Replicas of published datasets: their trees, read by other means and by the importer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.replicas import replicate, scaled_document
from benchmarks.replicas.content import SPLITS, Content
from tiering.datasets.specs import find_spec


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    files = []
    for k in range(3):
        replicate("mag240m", tmp_path / str(k), 2e-6, seed=k // 2)
        files.append([path.read_bytes() for path in sorted((tmp_path / str(k)).rglob("*.npy"))])
    assert files[0] == files[1]
    assert files[0] != files[2]


@pytest.mark.parametrize(("like", "scale"), [("ogbn-products", 0.5), ("ogbn-products", 1e-4), ("mag240m", 3.3e-3)])
def test_splits_of_any_scale_are_of_distinct_nodes(tmp_path, like, scale):
    (tmp_path / "source.json").write_text(json.dumps(scaled_document(like, scale)))
    content = Content(find_spec(str(tmp_path / "source.json")), 0)
    node_type = "paper" if like == "mag240m" else "node"
    ids = np.concatenate([content.split(node_type, name) for name in SPLITS])
    assert np.unique(ids).size == ids.size
