"""Whole chains on real graphs: what `tiering layout` plans is what a GPU holds, and batches are the host's."""

from __future__ import annotations

import pytest

import tiering
from tiering.runtime.gpu import device
from tiering.runtime.gpu.adjacency import Spread, load_adjacency


def prepare(run, source, tmp_path, *layout_options):
    """Import, score, reorder, layout; the layout's path."""
    graph, scores, ordered, out = (str(tmp_path / name) for name in ("graph", "scores", "ordered", "layout"))
    fanouts = ["--fanouts", "5,5", "--batch-size", "256"]
    run("import", *source, "--out", graph).ok()
    run("score", graph, "--method", "hybrid", *fanouts, "--out", scores).ok()
    run("reorder", graph, "--scores", scores, "--out", ordered).ok()
    split = ["--scores", scores] if "--split" in layout_options else []
    run("layout", ordered, "--out", out, *layout_options, *split).ok()
    return out


def compare(path, batches=6):
    with tiering.open(path) as layout:
        options = {"fanouts": [5, 5], "batch_size": 256, "seed": 3}
        here, there = layout.loader(**options), layout.loader(device="cuda", **options)
        for found, expected, _ in zip(there, here, range(batches), strict=False):
            assert found.num_nodes == expected.num_nodes
            assert all(found.nodes[t].equal(expected.nodes[t]) for t in expected.nodes)
            for ours, theirs in zip(found.hops, expected.hops, strict=True):
                assert all(ours[r].equal(theirs[r]) for r in theirs)
            assert all(found.features[t].equal(expected.features[t]) for t in expected.features)
            assert found.y is None or found.y.equal(expected.y)


def test_split_budget(gpu, tiering_cli, tmp_path):
    """Lists that the plan puts on the GPU are there, no more and no fewer."""
    data = tmp_path / "data"
    tiering_cli("generate", str(data), "--nodes", "3000", "--edges", "60000", "--dim", "32", "--seed", "0").ok()
    path = prepare(tiering_cli, [str(data)], tmp_path, "--gpu", "150KiB", "--split", "auto")
    with tiering.open(path) as layout:
        before = gpu.live("bytes")
        held = load_adjacency(layout.artifact, device.open_device(0), Spread())
        (columns,) = held.columns.values()
        (prefix,) = (layout.artifact.adjacency_prefix(r) for r in layout.relations)
        assert columns == prefix.columns > 0
        ids = columns * layout.graph.node_keys(layout.node_types[0]).itemsize
        assert gpu.live("bytes") - before == prefix.bytes + ids
        rows = layout.features(device="cuda").placement()["gpu"]["bytes"]
        assert 0 < rows + prefix.bytes <= 150 * 1024
    compare(path)


@pytest.mark.parametrize("name", ["cora", "tolokers"])
def test_real_graph(gpu, tiering_cli, tmp_path, shared_data, name):
    tiers = ["--gpu", "10%", "--peer", "2x5%", "--cpu", "40%", "--ssd", str(tmp_path / "ssd")]
    path = prepare(tiering_cli, [str(shared_data / name)], tmp_path, *tiers)
    compare(path)
