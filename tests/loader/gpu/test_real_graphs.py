"""A whole chain: what `tiering layout` plans is what a GPU holds, and batches are the host's."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_batches import assert_same

import tiering
from tiering.loader.gpu import device
from tiering.loader.gpu.memory import load_adjacency


@pytest.mark.parametrize("sampler", ["uniform", "weighted"])
def test_split_budget(gpu, tmp_path, sampler):
    """Lists that the plan puts on the GPU are there, no more and no fewer; all they need is in the budget."""
    data, random = tmp_path / "data", np.random.default_rng(0)
    data.mkdir()
    np.save(data / "edge_index.npy", (random.random((2, 60_000)) ** 2 * 3000).astype(np.int64))
    np.save(data / "edge_weight.npy", random.random(60_000, np.float32))
    np.save(data / "node_feat.npy", random.random((3000, 32), np.float32))
    np.save(data / "train_idx.npy", np.arange(0, 3000, 3))
    graph, options = tiering.import_graph(data, tmp_path / "graph"), {"fanouts": [5, 5], "batch_size": 256}
    scores = tiering.score_graph(graph, tmp_path / "scores", "hybrid", sampler=sampler, **options)
    ordered, sizes = tiering.reorder_graph(graph, scores, tmp_path / "ordered"), {"gpu": "150KiB", "scores": scores}
    with tiering.write_layout(ordered, tmp_path / "layout", adjacency_cache="auto", **sizes) as layout:
        before = gpu.live("bytes")
        ((relation, prefix),) = ((r, layout.artifact.adjacency_prefix(r)) for r in layout.relations)
        held = load_adjacency(layout.graph, {relation: prefix}, device.open_device(0), sampler == "weighted")
        (columns,) = held.columns.values()
        assert columns == prefix.columns > 0
        assert prefix.weights == (sampler == "weighted")
        assert gpu.live("bytes") - before == prefix.bytes
        rows = layout.features(device="cuda").placement()["gpu"]["bytes"]
        assert 0 < rows + prefix.bytes <= 150 * 1024
        options |= {"seed": 3, "sampler": sampler}
        here, there = layout.loader(**options), layout.loader(device="cuda", **options)
        for found, expected, _ in zip(there, here, range(6), strict=False):
            assert_same(found, expected)
