"""Nodes that the user puts first: in the order, in the tiers, beside adjacency lists, in a chain."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sealed import edit_manifest
from toy_datasets import toy_dataset

import tiering
from tiering.errors import FormatError, InputError
from tiering.formats.order import Order
from tiering.graph.build import build_graph
from tiering.memory import Budget
from tiering.reorder.arrays import SIZES, NodeArrays, PieceSizes
from tiering.reorder.rank import PIECE_BYTES, SORT_SPACE, THREAD_SPACE, NodeOrders, read_first
from tiering.scores.plan import score_graph

NODES = 40
"""Of `tiny_dataset`."""


@pytest.fixture
def scored(chain):
    """Graph and scores by degree."""
    return chain / "graph", chain / "degree"


def expected_order(scores, first):
    """By plain sorting: those put first, then by falling score, ties by id."""
    rest = sorted(set(range(len(scores))) - set(first), key=lambda node: (-scores[node], node))
    return [*first, *rest]


def test_nodes_put_first_lie_in_the_fastest_tiers(tiering_cli, scored, tmp_path):
    graph, scores = scored
    first = [31, 2, 17, 5, 38]
    np.save(tmp_path / "first.npy", np.array(first))
    reorder = ("reorder", graph, "--scores", scores, "--out", tmp_path / "reordered")
    told = tiering_cli(*reorder, "--first", tmp_path / "first.npy", "--dry-run", "--json").ok()
    assert json.loads(told.out)["stages"][0]["steps"][0]["name"] == "rank node"
    tiering_cli(*reorder, "--first", tmp_path / "first.npy").ok()
    tiering_cli("check", tmp_path / "reordered", "--full").ok()
    reordered, values = tiering.open(tmp_path / "reordered"), tiering.open(scores).values()
    assert reordered.new_to_old().tolist() == expected_order(values.tolist(), first)
    assert reordered.order.first() == 5
    np.testing.assert_array_equal(reordered.order.score(), values[reordered.new_to_old()])
    assert list(reordered.manifest.provenance["inputs"]) == ["first of node", "graph", "scores"]
    assert "pinned nodes" in tiering_cli("info", tmp_path / "reordered/order").ok().out

    sizes = ("--gpu", 3 * 24, "--cpu", "10%", "--ssd", tmp_path / "ssd")
    layout = tiering_cli("layout", tmp_path / "reordered", *sizes, "--out", tmp_path / "layout").ok()
    assert "note: node: 5 pinned nodes: 3 in gpu, 2 in cpu" in layout.err
    dry = tiering_cli("layout", tmp_path / "reordered", *sizes, "--out", tmp_path / "l", "--dry-run").ok().out
    assert "5 pinned nodes: 3 in gpu, 2 in cpu" in " ".join(dry.split())
    source = np.load(graph.parent / "data/node_feat.npy")
    with tiering.open(tmp_path / "layout") as opened:
        np.testing.assert_array_equal(opened.features().gather(np.arange(NODES)).numpy(), source[opened.new_to_old()])


@settings(max_examples=6)
@given(data=st.data())
def test_the_order_is_that_of_a_plain_sort_in_any_memory(data):
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        toy = toy_dataset(where / "data", data.draw(st.integers(0, 2**32)), min_nodes=35)
        graph = build_graph(toy.dataset, where / "graph")
        scores = score_graph(graph, "degree", where / "scores")
        chosen = {}
        for node_type in graph.node_types:
            count = graph.num_nodes(node_type)
            ids = data.draw(st.lists(st.integers(0, count - 1), max_size=count, unique=True))
            if ids:
                chosen[node_type] = np.array(ids, data.draw(st.sampled_from(["int32", "int64"])))
        first = read_first(graph, chosen) if chosen else {}
        orders = NodeOrders(graph, scores, NodeArrays(Budget(1 << 30, "large"), SIZES, 2), first)
        small = PieceSizes(min_ranked=5, score_bins=4, scores=5)
        room = SORT_SPACE + THREAD_SPACE + small.score_piece + small.min_ranked * PIECE_BYTES + 40
        in_pieces = NodeOrders(graph, scores, NodeArrays(Budget(room, "small"), small, 2), first)
        for node_type in graph.node_types:
            wanted = expected_order(scores.values(node_type).tolist(), chosen.get(node_type, np.empty(0)).tolist())
            whole, pieces = list(orders.pieces(node_type)), list(in_pieces.pieces(node_type))
            assert np.concatenate(whole).tolist() == np.concatenate(pieces).tolist() == wanted
            assert len(pieces) > 3
            assert {piece.dtype for piece in (*whole, *pieces)} == {np.dtype(np.int32)}


def test_beside_adjacency_lists_on_the_gpu(tiering_cli, chain, tmp_path):
    """Scores of the order stay predictions: the split accepts them, and its figures count what is read."""
    graph, scores = chain / "graph", tmp_path / "scores"
    tiering_cli("score", graph, "--fanouts", "3,2", "--batch-size", 5, "--out", scores).ok()
    values = tiering.open(scores).values()
    coldest = np.argsort(values, kind="stable")[:4]
    reordered = tiering.reorder_graph(graph, scores, out=tmp_path / "reordered", first=coldest)
    cache = ("--adjacency-cache", "20%", "--scores", scores, "--gpu", 400, "--cpu", "50%", "--ssd", tmp_path / "ssd")
    told = tiering_cli("layout", reordered.path, *cache, "--out", tmp_path / "layout", "--json").ok()
    features = told.json["split"]["predicted"]["features"]
    rows = told.json["node_types"]["node"]["tiers"]["gpu"]["rows"]
    assert rows > 4
    assert features["served"] == pytest.approx(values[reordered.new_to_old()[:rows]].sum())
    assert features["reads"] == pytest.approx(values.sum())
    auto = ("--adjacency-cache", "auto", *cache[2:])
    tiering_cli("layout", reordered.path, *auto, "--out", tmp_path / "layout", "--force").ok()


@pytest.mark.parametrize(("ids", "words"), [
    ([3, 40], ["expected original ids 0..39 of type 'node', found 40 at position 1"]),
    ([3, -1], ["found -1 at position 1"]),
    ([3, 5, 3], ["expected each node once, found 3 repeated"]),
    (np.zeros(0, np.int64), ["the array has no node ids"]),
    ([0.5], ["expected whole numbers, found float64 (1,)"]), ([[1, 2], [3, 4]], ["node ids, one column"]),
])  # fmt: skip
def test_nodes_that_cannot_come_first(tiering_cli, scored, tmp_path, ids, words):
    graph, scores = scored
    np.save(tmp_path / "first.npy", np.array(ids))
    for more in ((), ("--dry-run",)):
        reorder = ("reorder", graph, "--scores", scores, "--first", tmp_path / "first.npy", "--out", tmp_path / "r")
        tiering_cli(*reorder, *more).refused("first.npy", *words)
    assert not (tmp_path / "r").exists()
    with pytest.raises(InputError, match=r"^first: .* has no node type author"):
        tiering.reorder_graph(graph, scores, out=tmp_path / "r", first={"author": [1]})


def test_a_reader_that_does_not_know_of_them_refuses_the_order(scored, tmp_path):
    graph, scores = scored
    order = tiering.reorder_graph(graph, scores, out=tmp_path / "r", first=[7]).order
    assert order.manifest.requires == ("first",)
    document = json.loads((order.path / "manifest.json").read_text())
    assert document["requires"] == ["first"]
    assert document["body"]["first"] == {"node": 1}

    edit_manifest(order.path, lambda manifest: manifest["body"].update(first={"node": 41}))
    with pytest.raises(FormatError, match="expected at most 40 nodes of type 'node', found 41"):
        Order.open(order.path)
    edit_manifest(order.path, lambda manifest: manifest.update(requires=[], body={**document["body"]}))
    with pytest.raises(FormatError, match="requires: expected 'first', found none"):
        Order.open(order.path)


def test_a_chain_notices_that_other_nodes_come_first(tiering_cli, tiny_dataset, tmp_path):
    config = tmp_path / "chain.toml"
    config.write_text(
        f'[dataset]\npath = "{tiny_dataset}"\n[score]\nmethod = "degree"\n[reorder]\nfirst = "first.npy"\n'
        '[layout]\ngpu = "25%"\n[output]\ndir = "out"\n'
    )
    for ids, done in (([7, 3], [True] * 4), ([7, 3], [False] * 4), ([3, 7], [False, False, True, True])):
        np.save(tmp_path / "first.npy", np.array(ids))
        stages = json.loads(tiering_cli("run", config, "--json").ok().out)["stages"]
        assert [stage["done"] for stage in stages] == done
        assert tiering.open(tmp_path / "out/reordered").new_to_old()[:2].tolist() == ids
    tiering_cli("run", config, "--dry-run", "--force").ok()
