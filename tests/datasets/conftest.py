"""Small datasets on disk, and the real ones where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def npy_dir(tmp_path: Path) -> Path:
    """Five nodes, six edges, all optional files."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 0]], np.int64))
    np.save(folder / "node_feat.npy", np.arange(15, dtype=np.float32).reshape(5, 3))
    np.save(folder / "node_label.npy", np.array([0, 1, 0, -1, 2], np.int64))
    np.save(folder / "train_idx.npy", np.array([2, 0], np.int64))
    np.save(folder / "val_idx.npy", np.array([1], np.int64))
    np.save(folder / "test_idx.npy", np.array([4], np.int64))
    return folder


@pytest.fixture
def igb_dir(tmp_path: Path) -> Path:
    """A heterogeneous tree of IGBH's shape: fos without features, author of another dim and dtype."""
    tree = tmp_path / "igbh" / "tiny" / "processed"
    for name in ("paper", "author", "paper__cites__paper", "paper__written_by__author", "paper__topic__fos"):
        (tree / name).mkdir(parents=True)
    np.save(tree / "paper/node_feat.npy", np.ones((4, 8), np.float16))
    np.save(tree / "paper/node_label_19.npy", np.array([0, 1, np.nan, 1], np.float32))
    np.save(tree / "paper/node_label_2K.npy", np.array([7, 8, 9, 10], np.float32))
    np.save(tree / "paper/train_idx.npy", np.array([0, 3], np.int64))
    np.save(tree / "author/node_feat.npy", np.ones((3, 2), np.float32))
    np.save(tree / "paper__cites__paper/edge_index.npy", np.array([[0, 1], [1, 2], [2, 3]], np.int64))
    np.save(tree / "paper__written_by__author/edge_index.npy", np.array([[0, 2], [3, 0], [1, 1]], np.int32))
    np.save(tree / "paper__topic__fos/edge_index.npy", np.array([[0, 5], [1, 0], [3, 2]], np.int64))
    return tree
