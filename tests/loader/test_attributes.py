"""Small operations of batches for other libraries: classes and splits in one number, tensors joined without a copy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.loader.attributes import packed
from tiering.loader.batches.tensors import concatenate, has_bit, high_bits


@settings(max_examples=60, deadline=None)
@given(
    labels=st.none() | st.lists(st.sampled_from([-1, 0, 1, 2982, 2**28, 2**31, 2**40]), min_size=5, max_size=5),
    splits=st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=40),
)
def test_classes_and_splits_come_out_of_the_number_they_were_packed_into(labels, splits):
    if len(splits) > 20 and labels is not None:  # 64 bits hold both
        labels = [min(label, 2**20) for label in labels]
    nodes = [np.array(sorted(split), np.int64) for split in splits]
    table = packed(None if labels is None else np.array(labels), nodes, 5)
    known = torch.from_numpy(table)
    assert known.dtype in (torch.int32, torch.int64)
    for k, split in enumerate(splits):
        assert set(torch.nonzero(has_bit(known, k)).flatten().tolist()) == split
    if labels is not None:
        found = high_bits(known, len(splits))
        assert found.dtype == torch.int64
        assert found.tolist() == labels


def test_few_splits_and_classes_take_four_bytes_a_node():
    splits = [np.array([0]), np.array([1]), np.array([2])]
    assert packed(np.array([-1, 2982, 0]), splits, 3).dtype == np.int32
    assert packed(np.array([2**28 - 1] * 3), splits, 3).dtype == np.int32
    assert packed(np.array([2**28] * 3), splits, 3).dtype == np.int64


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cuts", [[0, 3, 8], [0, 0, 5, 8], [0, 8, 8], [0, 1, 2, 8]])
def test_pieces_of_one_memory_are_joined_without_a_copy(axis, cuts):
    whole = torch.arange(64).reshape(8, 8)
    parts = [whole.narrow(axis, first, last - first) for first, last in pairwise(cuts)]
    assert torch.equal(concatenate(parts, axis), whole)
    assert concatenate(parts, axis).data_ptr() == whole.data_ptr()
    assert torch.equal(concatenate(parts[:2], axis), torch.cat(parts[:2], axis))


@pytest.mark.parametrize(
    "parts",
    [
        lambda whole: [whole[:, 3:], whole[:, :3]],
        lambda whole: [whole[:, :3], whole[:, 4:]],
        lambda whole: [whole[:, :3], whole.clone()[:, 3:]],
        lambda whole: [whole[:, ::2], whole[:, 1:4]],
    ],
    ids=["other order", "with a gap", "other memory", "other steps"],
)
def test_other_pieces_are_copied(parts):
    pieces = parts(torch.arange(16).reshape(2, 8))
    assert torch.equal(concatenate(pieces, 1), torch.cat(pieces, 1))
