"""A graph with every edge turned round, against scipy and its own second turn."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from toy_datasets import toy_dataset, tree_bytes

from tiering.formats.graph import Graph
from tiering.graph import build_graph, external, transpose_graph
from tiering.graph.scatter_plan import ScatterPlan
from tiering.graph.sizes import CscSizes
from tiering.graph.transpose import reversed_relation
from tiering.memory import Budget


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


@pytest.mark.parametrize("held", [None, 0.0, 0.5])
@pytest.mark.parametrize("threads", [1, 3])
def test_same_bytes_by_way_of_the_disk(graph, tmp_path, monkeypatch, held, threads):
    def plan(sizes: CscSizes, room: int) -> ScatterPlan | None:
        nbytes = int((held or 0) * sizes.num_edges) * sizes.record_bytes
        whole = sizes.num_edges * sizes.record_bytes
        return None if held is None else ScatterPlan(100, 3, 64, nbytes, 0, whole - nbytes)

    transpose_graph(graph, tmp_path / "memory")
    monkeypatch.setattr(external, "plan_scatter", plan)
    monkeypatch.setattr(CscSizes, "in_memory", lambda self: 1 << 60)
    transpose_graph(graph, tmp_path / "disk", threads=threads, memory=Budget(1 << 34, "test"))
    assert tree_bytes(tmp_path / "memory") == tree_bytes(tmp_path / "disk")


def test_names_turn_back(graph, tmp_path):
    turned = transpose_graph(graph, tmp_path / "turned")
    again = transpose_graph(turned, tmp_path / "again")
    assert again.relations == graph.relations
    for relation in graph.relations:
        for first, second in zip(graph.csc(relation), again.csc(relation), strict=True):
            assert first.shape == second.shape
