"""Batches of a GPU beside those of the host."""

from __future__ import annotations

from typing import Any

import torch


def bits(tensor: Any) -> torch.Tensor:
    """A tensor's bytes, in host memory."""
    return torch.cat([tensor.cpu().reshape(-1)]).view(torch.uint8)  # of one element strides may be 0


def assert_same(found: Any, expected: Any) -> None:
    """Every tensor of two batches is the same, bit for bit, wherever it lies."""
    for name in ("epoch", "index", "seed_type", "num_nodes"):
        assert getattr(found, name) == getattr(expected, name)
    pairs = [(found.nodes, expected.nodes), (found.features, expected.features)]
    for name in ("hops", "weights", "positions"):
        pairs += zip(getattr(found, name), getattr(expected, name), strict=True)
    for ours, theirs in pairs:
        assert list(ours) == list(theirs)
        for key, tensor in theirs.items():
            assert ours[key].dtype == tensor.dtype and ours[key].shape == tensor.shape
            assert bits(ours[key]).equal(bits(tensor)), key
    assert (found.y is None) == (expected.y is None)
    assert found.y is None or found.y.cpu().equal(expected.y)
