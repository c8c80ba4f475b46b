"""Small graphs whose accesses can be counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiering.datasets.open import open_dataset
from tiering.formats.graph import Graph
from tiering.graph.build import build_graph


def import_graph(folder: Path, out: Path) -> Graph:
    with open_dataset(folder) as dataset:
        return build_graph(dataset, out)


def star_graph(folder: Path) -> Graph:
    """Nodes 1 .. 9 aggregate node 0; no features, no split."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edge_index.npy", np.stack([np.zeros(9, np.int64), np.arange(1, 10)]))
    return import_graph(folder, folder / "graph")


def two_types(folder: Path, *, featureless: bool = False) -> Graph:
    """a0, a1, a2 aggregate b0, and a3 aggregates b1; rows of `a` have 8 bytes, of `b` 2; all of `a` are trained on.

    With batches of 1 and any fanout, an epoch of 4 batches reads each row of `a` once, b0 three times and b1 once:
    8 reads, 4 x 8 + 4 x 2 = 40 bytes. All rows together have 4 x 8 + 2 x 2 = 36 bytes. `featureless`: `b` has no
    table.
    """
    for name in ("a", "b", "b__to__a"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "a/node_feat.npy", np.zeros((4, 2), np.float32))
    if not featureless:
        np.save(folder / "b/node_feat.npy", np.zeros((2, 1), np.float16))
    np.save(folder / "a/train_idx.npy", np.arange(4))
    np.save(folder / "b__to__a/edge_index.npy", np.array([[0, 0, 0, 1], [0, 1, 2, 3]]))
    return import_graph(folder, folder / "graph")
