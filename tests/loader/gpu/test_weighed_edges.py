"""Samplers that weigh their edges, random walks and layers: what the GPU samples is what the host samples."""

from __future__ import annotations

import itertools

import pytest
import torch
from simulated_gpu import resident_share

from tiering.formats.layout import Layout

PLACES = itertools.count()
PINSAGE = {"sampler": "pinsage", "num_walks": 12}
BACK = [[("author", "writes", "paper"), ("paper", "written_by", "author")], [("paper", "cites", "paper")]]
"""Metapaths from papers to papers."""


def assert_same(found, expected):
    """Nodes, edges and weights are the same, bit for bit."""
    assert found.num_nodes == expected.num_nodes
    assert all(torch.equal(found.nodes[t], expected.nodes[t]) for t in expected.nodes)
    for ours, theirs in zip(found.hops, expected.hops, strict=True):
        assert list(ours) == list(theirs) and all(torch.equal(ours[r], theirs[r]) for r in theirs)
    for ours, theirs in zip(found.weights, expected.weights, strict=True):
        assert list(ours) == list(theirs)
        assert all(torch.equal(ours[r].view(torch.int32), theirs[r].view(torch.int32)) for r in theirs)


def compare(layout, options):
    """All batches of an epoch; returns how many edges they had."""
    there = layout.loader(device="cuda", sample_on="gpu", features=None, **options)
    here, edges = layout.loader(features=None, **options), 0
    for found, expected in zip(there, here, strict=True):
        assert_same(found, expected)
        edges += sum(weights.numel() for hop in expected.weights for weights in hop.values())
    return edges


@pytest.mark.parametrize(("share", "frontier"), [(0, "all"), (0.5, "new"), (1, "all")])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("small_graph", {**PINSAGE, "fanouts": "3,2"}),
        ("small_graph", {**PINSAGE, "fanouts": "4,-1", "walk_length": 3, "restart": 0.0}),
        ("small_graph", {**PINSAGE, "fanouts": "5", "walk_length": 5, "restart": 1.0}),
        ("hetero_graph", {**PINSAGE, "fanouts": "3,2"}),
        ("hetero_graph", {**PINSAGE, "fanouts": "3,2", "metapaths": BACK, "restart": 0.2, "walk_length": 3}),
        ("hetero_graph", {**PINSAGE, "fanouts": "3", "metapaths": [BACK[0][:1]], "walk_length": 1}),
    ],
)
def test_same_batches(gpu, kit, build, monkeypatch, share, frontier, data, options):
    monkeypatch.setattr(Layout, "adjacency_prefix", resident_share(share, weights=False))
    assert compare(build(getattr(kit, data)()), {**options, "batch_size": 50, "seed": 9, "frontier": frontier}) > 100
