"""A dataset of one type with every oddity that a graph may have."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_odd_dataset(folder: Path) -> Path:
    """Parallel edges, self loops, a hub, isolated nodes, weights, 14-byte rows, NaN labels."""
    random, nodes, edges = np.random.default_rng(3), 700, 5000
    src = random.integers(0, nodes // 2, edges)
    dst = np.where(random.random(edges) < 0.3, 17, (random.random(edges) ** 3 * nodes).astype(np.int64))
    src[:50], dst[:50] = src[50:100], dst[50:100]
    dst[100:120] = src[100:120]
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.stack([src, dst]))
    np.save(folder / "edge_weight.npy", random.random(edges).astype(np.float32))
    np.save(folder / "edge_feat.npy", random.random((edges, 3)).astype(np.float16))
    np.save(folder / "node_feat.npy", random.random((nodes, 7)).astype(np.float16))
    labels = random.integers(0, 4, nodes).astype(np.float32)
    labels[::9] = np.nan
    np.save(folder / "node_label.npy", labels)
    for name, ids in zip(("train", "val", "test"), np.split(random.permutation(nodes)[:270], 3), strict=True):
        np.save(folder / f"{name}_idx.npy", ids)
    return folder
