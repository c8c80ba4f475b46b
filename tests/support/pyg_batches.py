"""Batches of PyG against the dataset that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

LOOP = ("node", "to", "node")


def parts(batch: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Return node and edge stores by type; a homogeneous batch is its own store."""
    if isinstance(batch, Data):
        return {"node": batch}, {LOOP: batch}
    return {t: batch[t] for t in batch.node_types}, {r: batch[r] for r in batch.edge_types}


def truth(source: Any, name: str) -> np.ndarray | None:
    """Return a tensor of the source by original id; ``None`` if the type has none of the name."""
    if name == "x":
        return source.table
    if name == "y":
        return source.labels
    split = name.removesuffix("_mask")
    return np.isin(np.arange(source.count), source.splits[split]) if split in source.splits else None


def plain(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as NumPy; bfloat16 as uint16."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def assert_of_source(data: Any, layout: Any, batch: Any, ids: str = "original") -> None:
    """Check that nodes have the tensors of their original ids, and that edges are those of the source by ``e_id``."""
    nodes, edges = parts(batch)
    assert set(nodes) == set(data.nodes) and set(edges) == set(data.edges)
    old = {}
    for t, store in nodes.items():
        old[t] = store.n_id.numpy() if ids == "original" else layout.new_to_old(t)[store.n_id.numpy()]
        assert store.num_nodes == old[t].size == sum(store.num_sampled_nodes) and np.unique(old[t]).size == old[t].size
        for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
            expected = truth(data.nodes[t], name)
            assert (name in store) == (expected is not None)
            if expected is not None:
                np.testing.assert_array_equal(plain(store[name]), expected[old[t]])
    for r, store in edges.items():
        src, dst = data.edges[r]
        row, col = store.edge_index.numpy()
        place = store.e_id.numpy() if ids == "original" else layout.graph.edge_data(r)["edge_ids"][store.e_id.numpy()]
        np.testing.assert_array_equal(src[place], old[r[0]][row])
        np.testing.assert_array_equal(dst[place], old[r[2]][col])
        if "edge_weight" in store:
            np.testing.assert_array_equal(store.edge_weight.numpy(), data.weights[r][place])
        assert sum(store.num_sampled_edges) == row.size


def same(one: Any, other: Any) -> bool:
    """Return whether two batches hold the same, bit for bit."""

    def equal(x: Any, y: Any) -> bool:
        if isinstance(x, dict):
            return x.keys() == y.keys() and all(equal(x[k], y[k]) for k in x)
        if isinstance(x, torch.Tensor):
            return x.dtype == y.dtype and np.array_equal(plain(x), plain(y))
        return bool(x == y)

    return equal(one.to_dict(), other.to_dict())
