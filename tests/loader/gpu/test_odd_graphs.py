"""Graphs of any shape: what the GPU samples is what the host samples."""

from __future__ import annotations

import itertools

import numpy as np
from gpu_batches import assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated_gpu import resident_share

from tiering.formats.layout import Layout

places = itertools.count()


@st.composite
def graphs(draw):
    """Two node types, three relations; few or no edges, parallel ones, loops; seeds that repeat."""
    sizes = {"a": draw(st.integers(1, 40)), "b": draw(st.integers(1, 5))}
    edges = {}
    for src, name, dst in (("a", "to", "a"), ("b", "of", "a"), ("a", "in", "b")):
        count = draw(st.integers(0, 120))
        seed = draw(st.integers(0, 2**20))
        rng = np.random.default_rng(seed)
        edges[src, name, dst] = (
            rng.integers(0, sizes[src], count),
            rng.integers(0, sizes[dst], count) ** 2 % sizes[dst],
        )
    hops = draw(st.integers(1, 3))
    fanouts = [{":".join(r): draw(st.sampled_from([-1, 0, 1, 2, 5, 50, 70])) for r in edges} for _ in range(hops)]
    seeds = draw(st.lists(st.integers(0, sizes["a"] - 1), min_size=1, max_size=30))
    return sizes, edges, fanouts, seeds


@given(
    graph=graphs(), sampler=st.sampled_from(["uniform", "replacement", "weighted"]),
    frontier=st.sampled_from(["all", "new"]), share=st.sampled_from([0.0, 0.5, 1.0]),
)  # fmt: skip
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_same_batches(gpu, kit, tmp_path, monkeypatch, graph, sampler, frontier, share):
    sizes, edges, fanouts, seeds = graph
    rng = np.random.default_rng(len(seeds))
    weights = {r: np.maximum(rng.random(ends[0].size, np.float32) - 0.2, 0) for r, ends in edges.items()}
    for values in weights.values():
        values[:1] = 1  # weights that are all zero are refused
    nodes = {"a": kit.Nodes(sizes["a"]), "b": kit.Nodes(sizes["b"])}
    monkeypatch.setattr(Layout, "adjacency_prefix", resident_share(share, weights=share < 1))
    with kit.write_layout(tmp_path / f"layout-{next(places)}", kit.Dataset(nodes, edges, weights)) as layout:
        options = {"fanouts": fanouts, "batch_size": 7, "frontier": frontier, "sampler": sampler, "node_type": "a"}
        options |= {"seeds": np.array(seeds), "features": None}
        for found, expected in zip(layout.loader(device="cuda", **options), layout.loader(**options), strict=True):
            assert_same(found, expected)
