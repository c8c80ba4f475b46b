"""The GraphSAGE example on a GPU: the batches of the host, and a model that learns."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("data", ["small_graph", "hetero_graph"])
def test_example(gpu, kit, build, example, data, monkeypatch):
    layout = build(getattr(kit, data)())
    options = {"epochs": 2, "fanouts": [4, 3], "batch_size": 32, "hidden": 16}
    expected = example.train(layout.path, **options)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)  # the simulated GPU's memory is the host's
    found = example.train(layout.path, device="cuda", **options)
    assert found["batch_digest"] == expected["batch_digest"]
    assert found["losses"] == expected["losses"]
    assert found["test"] == expected["test"]
    for node_type, tiers in expected["tiers"].items():
        for tier, counters in tiers.items():
            assert found["tiers"][node_type][tier]["rows"] == counters["rows"]


def test_without_digest(gpu, kit, build, example, monkeypatch):
    layout = build(kit.small_graph())
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    found = example.train(layout.path, epochs=1, fanouts=[4], device="cuda", digest=False)
    assert found["batch_digest"] is None
    assert found["losses"][0] > 0
