"""Small operations of batches for other libraries: splits by bits, tensors joined without a copy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from tiering.loader.adapters import NodeAttributes
from tiering.loader.batches.tensors import concatenate


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20])
def test_splits_come_out_of_the_bits_of_a_node(kit, build, count):
    data, random = kit.small_graph(), np.random.default_rng(count)
    data.nodes["node"].splits = {f"part{k}": np.flatnonzero(random.random(300) < 0.3) for k in range(count)}
    graph = build(data).graph
    found = NodeAttributes(graph, "node", None, splits=True).splits(torch.arange(300))
    assert list(found) == graph.splits("node")
    for split, mask in found.items():
        assert set(torch.nonzero(mask).flatten().tolist()) == set(graph.split(split, "node").tolist())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cuts", [[0, 3, 8], [0, 0, 5, 8], [0, 8, 8], [0, 1, 2, 8]])
def test_pieces_of_one_memory_are_joined_without_a_copy(axis, cuts):
    whole = torch.arange(64).reshape(8, 8)
    parts = [whole.narrow(axis, first, last - first) for first, last in pairwise(cuts)]
    assert torch.equal(concatenate(parts, axis), whole)
    assert concatenate(parts, axis).data_ptr() == whole.data_ptr()
    assert torch.equal(concatenate(parts[:2], axis), torch.cat(parts[:2], axis))


@pytest.mark.parametrize("parts", [
    lambda whole: [whole[:, 3:], whole[:, :3]], lambda whole: [whole[:, :3], whole[:, 4:]],
    lambda whole: [whole[:, :3], whole.clone()[:, 3:]], lambda whole: [whole[:, ::2], whole[:, 1:4]],
], ids=["other order", "with a gap", "other memory", "other steps"])  # fmt: skip
def test_other_pieces_are_copied(parts):
    pieces = parts(torch.arange(16).reshape(2, 8))
    assert torch.equal(concatenate(pieces, 1), torch.cat(pieces, 1))
