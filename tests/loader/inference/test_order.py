"""Inference in any order gives the rows it gives by rank; the order is chosen by counting pages, recorded and kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from inferred import RelationalSage, Sage, odd_graph, with_edge_data
from toy_datasets import tree_bytes

import tiering
from tiering.artifacts import checksum
from tiering.errors import BudgetError, InputError
from tiering.loader.inference import Layer, order_choice, run
from tiering.loader.inference.order import NodeOrder, rcm_bytes
from tiering.loader.inference.order_choice import OrderCosts
from tiering.loader.inference.page_count import CountedTable, count_reads

SHUFFLED = "shuffled"  # ids of all nodes in an order of the test's


def order_of(layout, name):
    """A name, or shuffled ids of the only type or by type."""
    rng = np.random.default_rng(3)
    graph = layout.artifact.graph
    ids = {t: rng.permutation(graph.num_nodes(t)) for t in graph.node_types}
    return (ids if len(ids) > 1 else next(iter(ids.values()))) if name == SHUFFLED else name


def assert_same(embeddings, expected):
    for t in expected.node_types:
        np.testing.assert_allclose(embeddings.numpy(t), expected.numpy(t), rtol=1e-4, atol=1e-5)
        ids = np.random.default_rng(1).integers(0, expected.entry(t).rows, 40)
        np.testing.assert_array_equal(embeddings.gather_numpy(ids, t), embeddings.numpy(t)[ids])


@pytest.fixture
def moved(monkeypatch):
    """Features are moved into the order before they are read."""
    found = OrderCosts.first
    monkeypatch.setattr(OrderCosts, "first", lambda costs, order: (found(costs, order)[0], True))


@pytest.mark.parametrize("before", [False, True], ids=["by rank", "moved"])
@pytest.mark.parametrize("name", ["original", "rcm", SHUFFLED])
def test_every_order_gives_the_rows_of_ranks(kit, build, tmp_path, request, name, before):
    if before:
        request.getfixturevalue("moved")
    layout, model = build(odd_graph(kit, images=2)), Sage(12, 20, 5)
    expected = layout.inference(model.layers, tmp_path / "rank", edges=300, order="rank")
    found = layout.inference(model.layers, tmp_path / "e", edges=300, order=order_of(layout, name))
    assert_same(found, expected)
    assert sorted(tree_bytes(tmp_path / "e")) == sorted(tree_bytes(tmp_path / "rank"))
    assert {"id", "vector"} == set(found.to_arrow().schema.names)
    old = np.arange(50)
    np.testing.assert_allclose(
        found.gather_numpy(old, original=True), expected.gather_numpy(old, original=True), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", ["original", "rcm", SHUFFLED])
def test_several_node_types(kit, build, tmp_path, moved, name):
    layout = build(kit.hetero_graph())
    model = RelationalSage(layout.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
    layers = [model.layer(0), model.layer(1)]
    expected = layout.inference(layers, tmp_path / "rank", edges=300, order="rank")
    assert_same(layout.inference(layers, tmp_path / "e", edges=300, order=order_of(layout, name)), expected)


def test_some_nodes_functions_by_rank_and_neighbours_that_are_drawn(kit, build, tmp_path, moved):
    """Ranks in a block, its edge positions and drawn neighbours are the same as by rank."""
    data = odd_graph(kit)
    layout = build(data)
    (x,) = (torch.as_tensor(np.array(layout.features(t).gather(torch.arange(900)))) for t in layout.node_types)
    nodes = np.random.default_rng(5).choice(900, 200, replace=False)

    def first(block, rows):
        assert torch.equal(rows, x[block.nodes["node"]])
        return rows[: block.num_dst] + block.nodes["node"][: block.num_dst, None]

    def drawn(block, rows):
        src, dst = block.edge_index
        return torch.zeros(block.num_dst, rows.shape[1]).index_add_(0, dst, rows[src])

    layers = [Layer(first, neighbours=False), Layer(drawn, fanouts=3)]
    expected = layout.inference(layers, tmp_path / "rank", edges=200, order="rank", nodes=nodes)
    found = layout.inference(layers, tmp_path / "e", edges=200, order="original", nodes=nodes)
    np.testing.assert_array_equal(found.nodes(), expected.nodes())
    assert_same(found, expected)


def test_edge_data_is_that_of_the_edges(kit, build, tmp_path, moved):
    nn = pytest.importorskip("torch_geometric.nn")
    layout = build(with_edge_data(odd_graph(kit)))
    net = nn.GCN(12, 16, num_layers=2, out_channels=4).eval()
    expected = layout.pyg_inference(net, tmp_path / "rank", edges=300, order="rank")
    assert_same(layout.pyg_inference(net, tmp_path / "e", edges=300, order=order_of(layout, SHUFFLED)), expected)
