"""Adapted batches are the same wherever rows come from, in whatever order stages run, and end as native ones do."""

from __future__ import annotations

import threading

import pytest
import torch

from tiering.errors import InputError
from tiering.loader.batches.pipeline import StageError

pytest.importorskip("torch_geometric")

from pyg_batches import same

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 32, "seed": 7}


@pytest.mark.parametrize("options", [{"window": 1}, {"window": 3}, {"memory": "auto"}, {"workers": 4, "prefetch": 5}])
def test_rows_read_ahead_in_memory_or_batch_by_batch(kit, build, options):
    layout = build(kit.small_graph(images=3, edge_ids=True))
    expected = list(layout.pyg_loader(**OPTIONS, memory="tiers").epoch(2))
    found = list(layout.pyg_loader(**OPTIONS, **options).epoch(2))
    assert len(found) == len(expected) and all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_a_transform_that_fails_is_told_in_the_loop(kit, build):
    def refuse(data):
        raise InputError(f"no {data.num_nodes} nodes")

    loader = build(kit.small_graph()).pyg_loader(**OPTIONS, transform=refuse)
    with pytest.raises(StageError, match="epoch 0, batch 0") as told:
        next(iter(loader))
    assert isinstance(told.value.__cause__, InputError)
    assert not [t for t in threading.enumerate() if t.name.startswith("tiering")]


@pytest.mark.parametrize("method", ["pyg_loader", "dgl_loader"])
def test_samplers_of_our_own(kit, build, method):
    if method == "dgl_loader":
        pytest.importorskip("dgl")
    layout = build(kit.small_graph())
    make = getattr(layout, method)
    hops = {"num_neighbors" if method == "pyg_loader" else "fanouts": [20, 20]}
    batch = next(iter(make(sampler="ladies", batch_size=16, **hops)))
    weight = batch.edge_weight if method == "pyg_loader" else batch[2][0].edata["weight"]
    native = next(iter(layout.loader(sampler="ladies", batch_size=16, fanouts=[20, 20], frontier="new")))
    if method == "pyg_loader":
        assert torch.equal(weight, torch.cat([hop["node", "to", "node"] for hop in native.weights]))
    assert weight.numel() and (weight > 0).all()
    with pytest.raises(InputError, match="replace, sampler: each chooses how neighbours are drawn; leave one out"):
        make(sampler="ladies", replace=True, **hops)
    with pytest.raises(TypeError, match="unexpected keyword argument 'frontier'"):
        make(frontier="all", **hops)
