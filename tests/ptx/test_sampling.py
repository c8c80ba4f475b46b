"""The sampler as compiled: the batches of the CPU's, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tiering import cuda, native

pytestmark = pytest.mark.slow


@dataclass
class Relation:
    """Adjacency as CSC: column = destination."""

    src: int
    dst: int
    indptr: Any
    indices: Any
    weights: Any = None
    columns: int = 0
    """Those in the GPU's own memory."""


@dataclass
class Graph:
    """Node types, relations, and what random numbers depend on."""

    num_nodes: list[int]
    relations: list[Relation]
    keys: list[Any] = field(default_factory=list)


def random_graph(seed, index=np.int32, share=0.3, num_nodes=(60, 25)):
    """Two types, three relations; parallel edges, loops, isolated nodes and one hub."""
    rng = np.random.default_rng(seed)
    relations = []
    for src, dst in ((0, 0), (1, 0), (0, 1)):
        degrees = rng.integers(0, 9, num_nodes[dst])
        degrees[rng.integers(0, num_nodes[dst], 5)] = 0
        degrees[1] = 40
        indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
        weights = rng.random(indptr[-1], np.float32)
        weights[rng.random(indptr[-1]) < 0.2] = 0
        weights[0] = 1
        indices = rng.integers(0, num_nodes[src], indptr[-1]).astype(index)
        relations.append(Relation(src, dst, indptr, indices, weights, int(share * num_nodes[dst])))
    keys = [rng.permutation(num_nodes[0]).astype(np.int32), rng.permutation(num_nodes[1])]
    return Graph(list(num_nodes), relations, keys)


def on_gpu(gpu, graph, fanouts, rule, frontier, positions, seed):
    """The device's sampler; the hottest columns in its own memory."""
    adjacencies = []
    for relation in graph.relations:
        columns, indptr, indices = relation.columns, relation.indptr, relation.indices
        sums = np.empty(0, np.uint64)
        if rule == "weighted":
            sums = native.cumulative_weights(indptr, relation.weights, "r")
        whole = (gpu.lend(indptr), gpu.lend(indices), gpu.lend(sums), indices.size)
        local = (gpu.lend(indptr[: columns + 1].copy()), *whole[1:3], int(indptr[columns])) if columns else (0,) * 4
        wide = indices.dtype == np.int64
        adjacencies.append((relation.src, relation.dst, wide, columns, local, whole))
    keys = [
        (gpu.lend(own[: own.size // 2].copy()), own.size // 2, gpu.lend(own), own.dtype == np.int64)
        for own in graph.keys
    ] or [(0, 0, 0, False)] * len(graph.num_nodes)
    return cuda.Sampler(0, graph.num_nodes, adjacencies, fanouts, frontier == "new", rule, keys, seed, positions)


def compare(gpu, stream, graph, fanouts, rule, seeds, *, frontier="all", positions=False, batches=2):
    """Sample by both and compare everything."""
    there = on_gpu(gpu, graph, fanouts, rule, frontier, positions, 11)
    relations = [
        (f"r{i}", r.src, r.dst, r.indptr, r.indices, r.weights if rule == "weighted" else None)
        for i, r in enumerate(graph.relations)
    ]
    types = [f"t{i}" for i in range(len(graph.num_nodes))]
    keys = graph.keys or [None] * len(types)
    here = native.Sampler(types, graph.num_nodes, relations, fanouts, frontier, keys, 11, rule, None, 1)
    for batch in range(batches):
        given = [np.asarray(ids, np.int64) for ids in seeds]
        expected_nodes, expected_sizes, expected_hops, _ = here.sample(given, 3, batch, positions)
        there.start([(gpu.lend(ids), ids.size) for ids in given], 3, batch, stream.handle)
        sizes, edges = there.finish()
        assert [list(size) for size in sizes] == [list(size) for size in expected_sizes]
        for t, expected in enumerate(expected_nodes):
            nodes = np.full(sizes[-1][t], -7, np.int64)
            there.write_nodes(t, gpu.lend(nodes), stream.handle)
            stream.synchronize()
            assert np.array_equal(nodes, expected)
        for hop, groups in enumerate(expected_hops):
            for group, (src, dst, places, _) in enumerate(groups):
                out = np.full((2, edges[hop][group]), -7, np.int64)
                there.write_edges(hop, group, gpu.lend(out), stream.handle)
                stream.synchronize()
                assert np.array_equal(out, [src, dst])
                if positions:
                    found = np.full(out.shape[1], -7, np.int64)
                    there.write_positions(hop, group, gpu.lend(found), stream.handle)
                    stream.synchronize()
                    assert np.array_equal(found, places)


RULES = ["uniform", "replacement", "weighted"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("fanouts", [[[3, 2, 4], [2, 5, 1]], [[-1, 2, 0], [1, -1, 3]], [[50, 1, 7]]])
@pytest.mark.parametrize("frontier", ["all", "new"])
def test_same_batches(gpu, stream, rule, index, fanouts, frontier):
    compare(
        gpu, stream, random_graph(5, index), fanouts, rule, [[3, 1, 4, 1, 59], [2]], frontier=frontier, positions=True
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seeds", [[[], []], [[7], []], [[], [24]], [list(range(60)), []], [[1] * 33, [1]]])
def test_any_seeds(gpu, stream, rule, seeds):
    compare(gpu, stream, random_graph(8), [[2, 3, 1], [2, 2, 2]], rule, seeds)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0, 1])
def test_anywhere(gpu, stream, rule, share):
    """Lists in host memory alone, in the GPU's alone."""
    graph = random_graph(2, share=share)
    graph.keys = []
    compare(gpu, stream, graph, [[2, 2, 2], [2, 2, 2]], rule, [[0, 1, 2, 30], [0, 1]], positions=True)


@pytest.mark.parametrize("rule", ["uniform", "replacement"])
def test_lists_beyond_2_31_entries(gpu, stream, tmp_path, rule):
    """Lists that begin behind 2^31 and 2^32 entries, in a file with holes, where every entry is node 0."""
    indptr = np.array([0, 2**31 - 3, 2**31 + 70, 2**32 + 5, 2**32 + 38], np.int64)
    indices = np.memmap(tmp_path / "indices", np.int32, "w+", shape=int(indptr[-1]))
    rng = np.random.default_rng(1)
    for begin in indptr[:-1]:
        indices[begin : begin + 33] = rng.integers(0, 4, 33)
    indices[indptr[1] - 2 * 10**6 : indptr[1]] = rng.integers(0, 4, 2 * 10**6)
    compare(
        gpu, stream, Graph([4], [Relation(0, 0, indptr, indices)]), [[40], [3]], rule, [[0, 1, 2, 3]], positions=True
    )


def test_unsound_adjacency_and_seeds(gpu, stream):
    graph = random_graph(3)
    graph.relations[0].indices[::3] = 1000
    sampler = on_gpu(gpu, graph, [[-1, 0, 0]], "uniform", "all", False, 1)
    seeds = np.arange(60)
    sampler.start([(gpu.lend(seeds), 60), (0, 0)], 0, 0, stream.handle)
    with pytest.raises(ValueError, match="edge"):
        sampler.finish()
    bad = np.array([4, 60, -1])
    sampler.start([(gpu.lend(bad), 3), (0, 0)], 0, 0, stream.handle)
    with pytest.raises(ValueError, match="seed 1: its id is not a node of the graph"):
        sampler.finish()


def test_every_kernel(gpu, stream, kernels):
    for index in (np.int32, np.int64):
        graph = random_graph(9, index, num_nodes=(600, 25))  # so many that a table grows in the midst of a batch
        compare(gpu, stream, graph, [[9, 0, 3], [-1, -1, -1]], "weighted", [[0, 1, 2, 3, 4], []], positions=True)
    assert gpu.ran == set(kernels["sampler"])
