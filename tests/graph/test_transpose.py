"""A graph with every edge turned round, against scipy and its own second turn."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from toy_datasets import toy_dataset, tree_bytes

from tiering.formats.graph import Graph
from tiering.graph import build_graph, transpose_graph
from tiering.graph.plan import SortSizes
from tiering.graph.transpose import reversed_relation


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Several types and relations, parallel edges, self loops, isolated nodes, edge data, edge ids."""
    data = toy_dataset(tmp_path / "data", 5, min_nodes=100, max_nodes=300, max_edges=2000).dataset
    return build_graph(data, tmp_path / "graph", edge_ids=True)


def test_lists_by_source(graph, tmp_path):
    turned = transpose_graph(graph, tmp_path / "turned", threads=2)
    assert turned.problems("full") == []
    assert turned.num_edges() == graph.num_edges()
    for relation in graph.relations:
        indptr, indices = graph.csc(relation)
        other = reversed_relation(relation)
        shape = graph.num_nodes(relation[0]), graph.num_nodes(relation[2])
        forth = sp.csc_matrix((np.ones(len(indices), np.int64), indices, indptr), shape)
        back_ptr, back = turned.csc(other)
        assert (sp.csc_matrix((np.ones(len(back), np.int64), back, back_ptr), shape[::-1]) != forth.T).nnz == 0
        for column in range(shape[0]):
            part = back[back_ptr[column] : back_ptr[column + 1]]
            assert (np.diff(part) >= 0).all()
        ids, back_ids = graph.edge_data(relation)["edge_ids"], turned.edge_data(other)["edge_ids"]
        ends = np.stack([indices, np.repeat(np.arange(shape[1]), np.diff(indptr))])
        back_ends = np.stack([np.repeat(np.arange(shape[0]), np.diff(back_ptr)), back])
        np.testing.assert_array_equal(ends[:, np.argsort(ids)], back_ends[:, np.argsort(back_ids)])


def test_nodes_and_features_stay(graph, tmp_path):
    turned = transpose_graph(graph, tmp_path / "turned")
    for node_type in graph.node_types:
        np.testing.assert_array_equal(turned.labels(node_type), graph.labels(node_type))
        assert turned.splits(node_type) == graph.splits(node_type)
        for name in graph.splits(node_type):
            np.testing.assert_array_equal(turned.split(name, node_type), graph.split(name, node_type))
    assert (turned.features is None) == (graph.features is None)
    assert turned.features is None or turned.features.digest == graph.features.digest


@pytest.mark.parametrize("resident", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_same_bytes_by_buckets(graph, tmp_path, resident, threads):
    sizes = SortSizes(
        largest_in_memory=-1, min_chunk=100, max_chunk=100, bucket_edges=8, run_records=1, columns=64, runs=4,
        resident=resident,
    )  # fmt: skip
    transpose_graph(graph, tmp_path / "memory")
    transpose_graph(graph, tmp_path / "buckets", threads=threads, sizes=sizes)
    assert tree_bytes(tmp_path / "memory") == tree_bytes(tmp_path / "buckets")


def test_names_turn_back(graph, tmp_path):
    turned = transpose_graph(graph, tmp_path / "turned")
    again = transpose_graph(turned, tmp_path / "again")
    assert again.relations == graph.relations
    for relation in graph.relations:
        for first, second in zip(graph.csc(relation), again.csc(relation), strict=True):
            assert first.shape == second.shape
