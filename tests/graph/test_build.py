"""COO to CSC as an artifact: equal to a stable sort, with everything that travels along."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_datasets import Toy, toy_dataset

import tiering
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.graph import Graph
from tiering.graph.build import build_graph


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), edge_ids=st.booleans())
def test_equals_a_stable_sort_of_the_edges(seed, edge_ids):
    with tempfile.TemporaryDirectory() as folder:
        toy = toy_dataset(Path(folder) / "data", seed)
        graph = build_graph(toy.dataset, Path(folder) / "graph", edge_ids=edge_ids, threads=2)
        assert tiering.check(graph.path, "full") == []
        for edges in toy.dataset.edges:
            order = np.argsort(edges.dst, kind="stable")
            indptr, indices = graph.csc(edges.relation)
            counts = np.bincount(edges.dst, minlength=graph.num_nodes(edges.relation[2]))
            np.testing.assert_array_equal(np.diff(indptr), counts)
            np.testing.assert_array_equal(indices, edges.src[order])
            assert indices.dtype == np.int32
            data = graph.edge_data(edges.relation)
            assert set(data) == set(edges.data) | ({"edge_ids"} if edge_ids else set())
            for name, values in edges.data.items():
                np.testing.assert_array_equal(data[name], values[order])
            if edge_ids:
                np.testing.assert_array_equal(data["edge_ids"], order)
        _check_nodes(graph, toy)


def _check_nodes(graph: Graph, toy: Toy) -> None:
    for name, nodes in toy.dataset.nodes.items():
        assert graph.num_nodes(name) == nodes.num_nodes
        labels = graph.labels(name)
        if nodes.labels is None:
            assert labels is None
        else:
            np.testing.assert_array_equal(labels, nodes.labels)
        for split, ids in nodes.splits.items():
            np.testing.assert_array_equal(graph.split(split, name), ids)
        table = graph.feature_table(name)
        if name in toy.tables:
            assert table is not None
            np.testing.assert_array_equal(table.open(), toy.tables[name])
        else:
            assert table is None


def test_edge_ids_of_the_dataset_are_kept(tmp_path):
    dataset = _pair([0, 1, 0], [1, 0, 0])
    dataset.edges[0].edge_ids = np.array([70, 80, 90])
    graph = build_graph(dataset, tmp_path / "graph")
    np.testing.assert_array_equal(graph.edge_data()["edge_ids"], [80, 90, 70])


def _pair(src: list[int], dst: list[int], nodes: int = 2) -> Dataset:
    edges = EdgeData(("node", "to", "node"), np.array(src, np.int64), np.array(dst, np.int64), where="edges.npy")
    return Dataset("toy", "npy", {"node": NodeData(nodes)}, [edges])


@pytest.mark.parametrize(("src", "dst", "side"), [([0, 5], [1, 1], "source"), ([0, 0], [1, -1], "destination")])
def test_ids_out_of_range_name_file_edge_and_bound(tmp_path, src, dst, side):
    with pytest.raises(InputError, match=rf"edges.npy: relation node:to:node: edge 1: {side} .*0\.\.1.*`num_nodes`"):
        build_graph(_pair(src, dst), tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("change", "message"), [
    (lambda edges, node: setattr(edges, "dst", np.array([1, 1])), "as many sources as destinations"),
    (lambda edges, node: setattr(edges, "src", np.array([0.5])), "int32 or int64, found float64"),
    (lambda edges, node: edges.data.update(weight=np.zeros(2)), "expected 1 values of weight"),
    (lambda edges, node: setattr(node, "labels", np.zeros(3, np.int64)), "2 nodes, but 3 rows of labels"),
    (lambda edges, node: node.splits.update(train=np.array([0, 2])), r"'train'.*0\.\.1, found 2 at position 1"),
])  # fmt: skip
def test_refuses_what_does_not_fit(tmp_path, change, message):
    dataset = _pair([0], [1])
    change(dataset.edges[0], dataset.nodes["node"])
    with pytest.raises(InputError, match=message):
        build_graph(dataset, tmp_path / "graph")


def test_refuses_names_and_edges_between_no_nodes(tmp_path):
    twice, bad, none = (_pair([0], [1]) for _ in range(3))
    twice.edges.append(twice.edges[0])
    bad.nodes["bad__name"] = NodeData(1)
    none.nodes["node"] = NodeData(0)
    no_nodes = r"edges\.npy: relation node:to:node: 1 edges, but no nodes of type 'node'; correct"
    for dataset, message in ((twice, "occurs twice"), (bad, "bad__name"), (none, no_nodes)):
        with pytest.raises(InputError, match=message):
            build_graph(dataset, tmp_path / "graph")
