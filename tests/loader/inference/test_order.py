"""Inference in any order gives the rows it gives by rank; the order is chosen by counting pages, recorded and kept."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from inferred import RelationalSage, Sage, all_rows, digest, odd_graph, with_edge_data
from loop_disk import loop_disk
from toy_datasets import tree_bytes

from tiering.artifacts import checksum
from tiering.errors import BudgetError, InputError, ModelError, StorageError
from tiering.loader.inference import Layer, run
from tiering.loader.inference.blocks import cut_runs
from tiering.loader.inference.order import NodeOrder, rcm_bytes
from tiering.loader.inference.order_choice import OrderCosts
from tiering.loader.inference.page_count import CountedTable, count_reads
from tiering.memory import own_memory, parse_memory

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


def move_features(monkeypatch, moved=True):
    """Features are moved into the order before they are read, or not."""
    found = OrderCosts.first
    monkeypatch.setattr(OrderCosts, "first", lambda costs, order: (found(costs, order)[0], moved))


@pytest.fixture
def moved(monkeypatch):
    move_features(monkeypatch)


@pytest.mark.parametrize("name", ["original", "rcm", SHUFFLED])
def test_every_order_gives_the_rows_of_ranks(kit, build, tmp_path, monkeypatch, name):
    """The bytes do not depend on whether features are moved; files that are moved are cut and written in pieces."""
    layout, model = build(odd_graph(kit, images=2)), Sage(12, 20, 5)
    expected = layout.inference(model.layers, tmp_path / "rank", edges=300, order="rank")
    found = layout.inference(model.layers, tmp_path / "e", edges=300, order=order_of(layout, name))
    assert_same(found, expected)
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    move_features(monkeypatch)
    again = layout.inference(model.layers, tmp_path / "moved", edges=300, order=order_of(layout, name))
    assert digest(again) == digest(found) and again.manifest.body == found.manifest.body
    assert sorted(tree_bytes(tmp_path / "moved")) == sorted(tree_bytes(tmp_path / "rank"))
    old = np.arange(50)
    np.testing.assert_array_equal(found.gather_numpy(old, original=True), found.numpy()[layout.old_to_new()[old]])
    assert np.concatenate(found.to_arrow().read_all()["id"].chunks).tolist() == layout.new_to_old().tolist()


@pytest.mark.parametrize("name", ["original", "rcm", SHUFFLED])
def test_several_node_types(kit, build, tmp_path, moved, name):
    layout = build(kit.hetero_graph())
    model = RelationalSage(layout.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
    layers = [model.layer(0), model.layer(1)]
    expected = layout.inference(layers, tmp_path / "rank", edges=300, order="rank")
    assert_same(layout.inference(layers, tmp_path / "e", edges=300, order=order_of(layout, name)), expected)


def test_functions_see_ranks_and_some_nodes_get_rows(kit, build, tmp_path, monkeypatch, moved):
    layout = build(odd_graph(kit))
    (x,) = all_rows(layout).values()
    nodes = np.random.default_rng(5).choice(900, 200, replace=False)

    def alone(block, rows):
        assert bool((rows == 1).all()) or torch.equal(rows, x[block.nodes["node"]])  # ones: of a plan
        return rows[: block.num_dst] + block.nodes["node"][: block.num_dst, None]

    layers = [Layer(alone, neighbors=False), *Sage(12, 20, 5).layers]
    options = {"edges": 200, "nodes": nodes}
    expected = layout.inference(layers, tmp_path / "rank", order="rank", **options)
    found = layout.inference(layers, tmp_path / "e", order=order_of(layout, SHUFFLED), **options)
    np.testing.assert_array_equal(found.nodes(), expected.nodes())
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)


def test_the_same_neighbors_are_drawn_from_the_graph_in_the_order(kit, build, tmp_path, monkeypatch):
    layout = build(odd_graph(kit))
    (first, last), found = Sage(12, 20, 5).layers, []
    for moved in (False, True):
        move_features(monkeypatch, moved)
        layers = [Layer(first, fanouts=3), Layer(last, fanouts=3)]
        found.append(layout.inference(layers, tmp_path / str(moved), edges=200, order="original"))
    assert digest(found[0]) == digest(found[1])


def test_edge_data_is_that_of_the_edges(kit, build, tmp_path, moved):
    nn = pytest.importorskip("torch_geometric.nn")
    layout = build(with_edge_data(odd_graph(kit)))
    net = nn.GCN(12, 16, num_layers=2, out_channels=4).eval()
    expected = layout.pyg_inference(net, tmp_path / "rank", edges=300, order="rank")
    assert_same(layout.pyg_inference(net, tmp_path / "e", edges=300, order=order_of(layout, SHUFFLED)), expected)


def test_counted_pages_are_those_of_the_best_policy(kit, build):
    """In three blocks: every page once where memory holds all, and by hand where it holds a page."""
    data = odd_graph(kit, 40)
    src, dst = np.array([20, 21, 0, 1, 20, 39]), np.array([0, 1, 12, 13, 26, 27])
    data.edges = dict.fromkeys(data.edges, (src, dst))
    graph = build(data).artifact.graph
    order, table = NodeOrder.make(graph, "original", parse_memory("1GiB")), {"node": CountedTable(40, 512)}
    runs = {"node": cut_runs(graph, "node", None, 15, order.positions["node"])}
    assert runs["node"].bounds.tolist() == [0, 12, 25, 38, 40]
    # Pages of 8 rows by block: 0 1 2, then 0 1 2 3, then 2 3 4, then 4.
    assert count_reads(graph, runs, order, table, 1 << 20, True, 0) == 5 * 4096
    assert count_reads(graph, runs, order, table, 4096, True, 0) == (11 - 4) * 4096  # of 6 times of a block 4 fit
    assert count_reads(graph, runs, order, table, 0, True, 100) == 11 * 4096 + 4 * 100
    assert count_reads(graph, runs, order, {"node": CountedTable(40, 512, 16)}, 1 << 20, False, 0) <= 3 * 4096


def test_the_order_with_the_fewest_bytes_is_taken_and_kept(kit, build, tmp_path, monkeypatch, capsys):
    """A resumed run takes order and edges from its record; a dry run names them, with the disk of what is moved."""
    layout, model = build(odd_graph(kit)), Sage(12, 20, 40)
    calls = []

    def fail(block, x):
        calls.append(block.num_dst)
        if len(calls) > 12:
            raise ValueError("no more")
        return model.step(1, x, block.edge_index, block.num_dst)

    with monkeypatch.context() as patch:
        patch.setattr(OrderCosts, "_total", lambda costs, order: {"rank": 9 << 30, "original": 1, "rcm": 2}[order.name])
        patch.setattr(run, "_EDGES", (300,))
        plan = layout.inference(model.layers, tmp_path / "e", dry_run=True)
        assert "order original" not in str(plan) and "order" in str(plan)  # rows fit
        with pytest.raises(ModelError):
            layout.inference([model.layers[0], fail], tmp_path / "e")
    assert "inference: order original, blocks of 300 edges" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"^order: changed since a run that left .*e unfinished"):
        layout.inference(model.layers, tmp_path / "e", order="rank", resume="trust")
    found = layout.inference(model.layers, tmp_path / "e", resume="trust")
    recorded = found.manifest.provenance["options"]
    assert (recorded["order"], recorded["edges"]) == ("original", 300)
    expected = layout.inference(model.layers, tmp_path / "again", order="original", edges=300)
    assert tree_bytes(tmp_path / "again") == tree_bytes(tmp_path / "e") and len(expected) == 900


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("hot", "order: expected auto, rank, original, rcm or ids of all nodes, found 'hot'"),
        (np.arange(899), "order: expected each of the 900 nodes of type 'node' once, found 899 ids, and node 899 is"),
        (np.arange(900) // 2, "order: expected each of the 900 nodes .* found 900 ids, and node 450 is missing; give"),
        (np.append(np.arange(900), 5), "order: expected each of .* found 901 ids, and none is missing; give"),
        (np.arange(1, 901), "order: entry 899 is 900; expected original ids of 'node', 0 .. 899"),
        (np.arange(900.0), "order: expected original ids of 'node', whole numbers of one dimension, found float64"),
        ({"paper": np.arange(900)}, "order: expected ids for each node type: node; found paper"),
    ],
)
def test_orders_that_are_refused(kit, build, tmp_path, order, words):
    with pytest.raises(InputError, match=f"^{words}"):
        build(odd_graph(kit)).inference(Sage(12, 20, 5).layers, tmp_path / "e", order=order)


def test_one_array_for_several_types_and_an_rcm_without_memory_are_refused(kit, build, tmp_path):
    layout = build(kit.hetero_graph())
    with pytest.raises(InputError, match=r"^order: give a mapping with ids for each node type: .*; found one array"):
        layout.inference([len], tmp_path / "e", order=[1, 2])
    graph = layout.artifact.graph
    with pytest.raises(BudgetError, match="reverse Cuthill-McKee of"):
        NodeOrder.make(graph, "rcm", replace(parse_memory("1GiB"), limit=own_memory() + rcm_bytes(graph) // 2))


def test_a_run_that_fails_after_features_moved_goes_on(kit, build, tmp_path, monkeypatch, moved):
    """The moved features stay for the next run, and are gone with the layer that reads them."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    layout, model, seen = build(odd_graph(kit)), Sage(12, 20, 40), []

    def fail(block, x):
        if len(seen) == 15 or (tmp_path / ".e.partial" / "layer-0").exists():
            seen.append((tmp_path / ".e.partial" / "features-in-order").stat().st_mtime_ns)
            if len(seen) == 15:
                raise ValueError("no more")
        return model.step(0, x, block.edge_index, block.num_dst)

    def later(block, x):
        assert not (tmp_path / ".again.partial" / "features-in-order").exists() or bool((x == 1).all())
        return model.step(1, x, block.edge_index, block.num_dst)

    options = {"edges": 300, "order": "original", "resume": "trust"}
    with pytest.raises(ModelError):
        layout.inference([fail, model.layers[1]], tmp_path / "e", **options)
    found = layout.inference([fail, model.layers[1]], tmp_path / "e", **options)
    assert len(seen) > 20 and len(set(seen)) == 1
    assert digest(found) == digest(layout.inference([model.layers[0], later], tmp_path / "again", **options))
    assert not list(tmp_path.glob(".*.partial"))


def test_a_full_disk_while_features_move(kit, build, tmp_path, monkeypatch, moved):
    layout, model = build(odd_graph(kit)), Sage(12, 20, 40)
    with loop_disk(tmp_path / "image", tmp_path / "disk", 8 << 20) as disk:
        filler, write_graph = disk.folder / "filler", run.write_graph

        def fill(*arguments):
            graph = write_graph(*arguments)
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk.folder).free - (16 << 10))
            return graph

        options = {"edges": 300, "order": "rcm"}
        with monkeypatch.context() as patch, pytest.raises(StorageError, match=r"no space left: .* needed, .* free"):
            patch.setattr(run, "write_graph", fill)
            layout.inference(model.layers, disk.folder / "e", **options)
        filler.unlink()
        found = digest(layout.inference(model.layers, disk.folder / "e", **options))
    assert found == digest(layout.inference(model.layers, tmp_path / "e", **options))
