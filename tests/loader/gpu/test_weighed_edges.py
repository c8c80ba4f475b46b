"""Samplers that weigh their edges, random walks and layers: what the GPU samples is what the host samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_gpu import resident_share

from tiering.errors import InputError
from tiering.formats.layout import Layout

PLACES = itertools.count()
PINSAGE = {"sampler": "pinsage", "num_walks": 12}
BACK = [[("author", "writes", "paper"), ("paper", "written_by", "author")], [("paper", "cites", "paper")]]
"""Metapaths from papers to papers."""


def assert_same(found, expected):
    """Nodes, edges and weights are the same, bit for bit."""
    assert found.num_nodes == expected.num_nodes
    assert all(torch.equal(found.nodes[t], expected.nodes[t]) for t in expected.nodes)
    pairs = itertools.chain(
        zip(found.hops, expected.hops, strict=True), zip(found.positions, expected.positions, strict=True)
    )
    for ours, theirs in pairs:
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


@pytest.mark.parametrize(
    ("data", "share", "frontier", "options"),
    [
        ("small_graph", 0, "all", {**PINSAGE, "fanouts": "3,2"}),
        ("small_graph", 0.5, "new", {**PINSAGE, "fanouts": "4,-1", "walk_length": 3, "restart": 0.0}),
        ("small_graph", 1, "all", {**PINSAGE, "fanouts": "5", "walk_length": 5, "restart": 1.0}),
        ("hetero_graph", 0.5, "all", {**PINSAGE, "fanouts": "3,2", "metapaths": BACK, "restart": 0.2}),
        ("hetero_graph", 1, "new", {**PINSAGE, "fanouts": "3", "metapaths": [BACK[0][:1]], "walk_length": 1}),
        ("small_graph", 1, "all", {"sampler": "ladies", "fanouts": "20,30", "edge_positions": True}),
        ("small_graph", 0, "new", {"sampler": "ladies", "fanouts": "20,-1,30"}),
        ("hetero_graph", 0.5, "all", {"sampler": "ladies", "fanouts": "9,-1,40", "edge_positions": True}),
    ],
)
def test_same_batches(gpu, kit, build, monkeypatch, data, share, frontier, options):
    monkeypatch.setattr(Layout, "adjacency_prefix", resident_share(share, weights=False))
    assert compare(build(getattr(kit, data)()), {**options, "batch_size": 50, "seed": 9, "frontier": frontier}) > 100


def test_positions_of_walks(gpu, kit, build):
    layout = build(kit.small_graph())
    for device in ("cpu", "cuda"):
        with pytest.raises(InputError, match="positions: an edge of a random walk"):
            layout.loader(device=device, fanouts="3", sampler="pinsage", edge_positions=True)


@st.composite
def graphs(draw):
    """Two node types, three relations; few or no edges, parallel ones, loops, hubs; seeds that repeat."""
    sizes = {"a": draw(st.integers(1, 40)), "b": draw(st.integers(1, 5))}
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    edges = {}
    for src, name, dst in (("a", "to", "a"), ("b", "of", "a"), ("a", "in", "b")):
        count = draw(st.integers(0, 120))
        edges[src, name, dst] = rng.integers(0, sizes[src], count), rng.integers(0, sizes[dst], count) ** 2 % sizes[dst]
    return sizes, edges, draw(st.lists(st.integers(0, sizes["a"] - 1), min_size=1, max_size=30))


WALKS = [[("a", "to", "a")], [("b", "of", "a"), ("a", "in", "b")]]
"""Metapaths of `graphs`."""


@st.composite
def samplings(draw):
    """Options of walks and layers over `graphs`."""
    hops = draw(st.lists(st.sampled_from([-1, 1, 2, 5, 50]), min_size=1, max_size=3))
    if draw(st.booleans()):
        return {"sampler": "ladies", "fanouts": hops}
    return {
        "sampler": "pinsage", "metapaths": draw(st.sampled_from([WALKS, WALKS[1:], None])), "fanouts": hops,
        "num_walks": draw(st.integers(1, 9)), "walk_length": draw(st.integers(1, 4)),
        "restart": draw(st.sampled_from([0.0, 0.4, 1.0])),
    }  # fmt: skip


@given(
    graph=graphs(),
    options=samplings(),
    frontier=st.sampled_from(["all", "new"]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_graph(gpu, kit, tmp_path, monkeypatch, graph, options, frontier, share):
    sizes, edges, seeds = graph
    monkeypatch.setattr(Layout, "adjacency_prefix", resident_share(share, weights=False))
    data = kit.Dataset({t: kit.Nodes(count) for t, count in sizes.items()}, edges)
    with kit.write_layout(tmp_path / f"layout-{next(PLACES)}", data) as layout:
        compare(layout, {**options, "frontier": frontier, "batch_size": 7, "node_type": "a", "seeds": np.array(seeds)})
