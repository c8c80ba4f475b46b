"""Bad input to the sampler: which thing, expected, found, what to do."""

from __future__ import annotations

import numpy as np
import pytest
from toy_graphs import HOMOGENEOUS, ToyGraph, homogeneous

from tiering.errors import InputError
from tiering.sampling import NeighborSampler, batches

HETERO = ToyGraph({"a": 3, "b": 3}, {("a", "x", "b"): np.array([[0], [1]]), ("b", "y", "a"): np.array([[0], [1]])})


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([0, 1], "mapping from node type"),
        ({"c": [0]}, "no node type 'c'; types: a, b"),
        ({"a": [0, 3]}, r"entry 1 is 3; expected ids, 0 \.\. 2"),
        ({"a": [-1]}, "entry 0 is -1"),
        ({"a": [0.5]}, "whole numbers of one dimension, found float64"),
        ({"a": [[0]]}, "shape"),
    ],
)
def test_seeds(seeds, words):
    sampler = NeighborSampler(HETERO, [1])
    with pytest.raises(InputError, match=words):
        sampler.sample(seeds)
    with pytest.raises(InputError, match=words):
        sampler.batches(seeds, 2, 0)


def test_batches():
    with pytest.raises(InputError, match="training nodes: expected at least 1, found 0"):
        batches({"a": []}, 2, 0)
    with pytest.raises(InputError, match="batch size: expected a whole number, 1 or more, found 0"):
        batches({"a": [1]}, 0, 0)
    with pytest.raises(InputError, match="use a smaller batch size"):
        batches({"a": [1]}, 2, 0, drop_last=True)


def test_arrays_of_a_wrong_shape_or_dtype():
    graph = homogeneous(3, np.array([[0], [1]]))
    indptr, indices = graph.csc(HOMOGENEOUS)
    graph._csc[HOMOGENEOUS] = (indptr[:-1], indices)
    with pytest.raises(InputError, match=r"indptr of node:to:node: expected int64 of shape \(4,\)"):
        NeighborSampler(graph, [1])
    graph._csc[HOMOGENEOUS] = (indptr, indices.astype(np.float32))
    with pytest.raises(InputError, match="indices of node:to:node"):
        NeighborSampler(graph, [1])
    graph._csc[HOMOGENEOUS] = (indptr, indices)
    graph._keys = {"node": np.arange(2)}
    with pytest.raises(InputError, match="node keys of 'node'"):
        NeighborSampler(graph, [1])
