"""The cut of destinations into blocks, and which nodes a layer needs: by graph and nodes alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inferred import RELATION, Sage, all_edges, odd_graph

from tiering.errors import BudgetError, InputError
from tiering.loader.inference import degrees
from tiering.loader.inference.blocks import LEAST_NODES, InferenceBlock, cut_runs, needed_nodes

same_graph = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def in_edges(layout, node_type, nodes):
    """In-edges of each node, over all relations."""
    ends = [edges[1].numpy() for r, edges in all_edges(layout).items() if r[2] == node_type]
    count = layout.artifact.graph.num_nodes(node_type)
    return sum((np.bincount(dst, minlength=count) for dst in ends), np.zeros(count, np.int64))[nodes]


@pytest.fixture
def layouts(kit, build):
    return [build(odd_graph(kit)), build(kit.hetero_graph())]


@same_graph
@given(st.data())
def test_blocks_cover_all_nodes_and_are_as_large_as_their_edges_allow(layouts, data):
    layout = data.draw(st.sampled_from(layouts))
    node_type = data.draw(st.sampled_from(layout.node_types))
    edges, count = data.draw(st.integers(1, 3000)), layout.artifact.graph.num_nodes(node_type)
    ids = data.draw(st.none() | st.sets(st.integers(0, count - 1)).map(lambda found: np.array(sorted(found), np.int64)))
    runs = cut_runs(layout.artifact.graph, node_type, ids, edges)
    nodes = np.arange(count) if ids is None else ids
    degrees, bounds = in_edges(layout, node_type, nodes), runs.bounds
    assert bounds[0] == 0 and bounds[-1] == len(runs) == len(nodes)
    assert runs.edges.tolist() == [degrees[a:b].sum() for a, b in pairwise(bounds)]
    plan = runs.plan(0)
    assert len(plan) == len(runs.edges)
    blocks = [plan[b][node_type] for b in range(len(plan))]
    assert np.concatenate([*blocks, np.empty(0, np.int64)]).tolist() == nodes.tolist()
    for number, (begin, end) in enumerate(pairwise(bounds)):
        last = number == len(blocks) - 1
        assert end > begin
        assert (degrees[begin:end] + 1).sum() <= edges or end - begin == 1, "more than asked for, of several nodes"
        assert last or (degrees[begin : end + 1] + 1).sum() > edges, "the next node would have fitted"
    for number in range(len(blocks)):
        rest = runs.since(number)
        assert (
            rest.plan(0)[0][node_type].tolist() == blocks[number].tolist() and len(rest) == len(nodes) - bounds[number]
        )
        assert runs.block_of(int(bounds[number])) == runs.block_of(int(bounds[number + 1]) - 1) == number


def test_functions_get_at_least_so_many_destinations():
    """Those added are the last one again, with one in-edge each; sources stay where edges find them."""
    to, own = ("author", "wrote", "paper"), ("paper", "cites", "paper")
    nodes = {"paper": torch.tensor([7, 9, 4, 2]), "author": torch.tensor([5, 6])}
    edges = {to: torch.tensor([[1, 0], [0, 1]]), own: torch.tensor([[3, 1, 2], [0, 0, 1]])}
    x = {t: ids[:, None] * torch.ones(3) for t, ids in nodes.items()}
    positions = {r: torch.arange(pairs.shape[1]) for r, pairs in edges.items()}
    block, rows = InferenceBlock("paper", nodes, edges, 2, positions).padded(x)
    assert block.num_dst == LEAST_NODES and block.nodes["paper"].tolist() == [7, *[9] * 15, 4, 2]
    assert torch.equal(rows["paper"][:, 0], block.nodes["paper"].float()) and rows["author"] is x["author"]
    for relation, pairs in block.edges.items():
        count = edges[relation].shape[1]
        assert pairs[1].tolist() == [*edges[relation][1].tolist(), *range(2, LEAST_NODES)]
        before = nodes[relation[0]][edges[relation][0]].tolist()
        assert block.nodes[relation[0]][pairs[0]].tolist() == before + before[-1:] * (LEAST_NODES - 2)
        assert block.positions[relation].tolist() == [*range(count), *[count - 1] * (LEAST_NODES - 2)]
    one, same = InferenceBlock("paper", {"paper": nodes["paper"]}, {own: edges[own]}, 2).padded(x["paper"])
    assert torch.equal(same, rows["paper"]) and torch.equal(one.edges[own], block.edges[own])
    whole = InferenceBlock("paper", {"paper": torch.arange(LEAST_NODES)}, {}, LEAST_NODES)
    assert whole.padded(x)[0] is whole


@same_graph
@given(st.data())
def test_needed_nodes(layouts, monkeypatch, data):
    """Of each layer the nodes that later ones read: those within so many steps against the edges, one by one."""
    monkeypatch.setattr(degrees, "EDGES", data.draw(st.sampled_from([1, 50, 1 << 20])))
    layout = data.draw(st.sampled_from(layouts))
    node_type = data.draw(st.sampled_from(layout.node_types))
    count = layout.artifact.graph.num_nodes(node_type)
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=20))), np.int64)
    reads = data.draw(st.lists(st.booleans(), min_size=1, max_size=3))
    found = needed_nodes(layout.artifact.graph, {node_type: ids}, reads)
    edges = {r: both.numpy() for r, both in all_edges(layout).items()}
    wanted = {(node_type, int(i)) for i in ids}
    for number in range(len(reads) - 1, -1, -1):
        own = {(t, int(i)) for t, nodes in found[number].items() for i in nodes}
        assert own == wanted, number
        sources = {
            (r[0], int(u))
            for r, (src, dst) in edges.items()
            for u, v in zip(src, dst, strict=True)
            if (r[2], v) in wanted
        }
        wanted |= sources if reads[number] else set()
    assert needed_nodes(layout.artifact.graph, None, reads) == [dict.fromkeys(layout.node_types)] * len(reads)


@pytest.mark.parametrize("choice", ["ids", "mask", "by type"])
def test_embeddings_of_some_nodes(kit, build, tmp_path, choice):
    """Their rows are those of all nodes; no others are kept."""
    layout, model = build(odd_graph(kit)), Sage(12, 20, 5)
    ids = np.array([3, 899, 3, 0])
    asked = {"mask": np.isin(np.arange(900), ids), "by type": ("node", ids)}.get(choice, ids)
    found = layout.inference(model.layers, tmp_path / "e", nodes=asked, edges=300)
    ranks = np.unique(layout.old_to_new()[ids])
    assert found.nodes().tolist() == ranks.tolist() and len(found.numpy()) == len(ranks) and len(found) == 900
    whole = layout.inference(model.layers, tmp_path / "all", edges=300)
    np.testing.assert_allclose(found.numpy(), whole[ranks], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.gather(ids, original=True), whole.gather(ids, original=True), 1e-5, 1e-6)
    absent = np.setdiff1d(np.arange(900), ranks)[:1]
    with pytest.raises(InputError, match=f"node {absent[0]} of 'node' has no row"):
        found.gather(absent)


def test_a_node_whose_messages_do_not_fit(kit, build, tmp_path):
    layout = build(odd_graph(kit))
    with pytest.raises(BudgetError, match="memory"):
        layout.inference(Sage(12, 20, 5).layers, tmp_path / "e", memory="1MiB")
    assert not list(tmp_path.glob(".e*"))


def test_the_estimate(kit, build, tmp_path):
    layout = build(odd_graph(kit))
    estimate = layout.inference(Sage(12, 20, 5).layers, tmp_path / "e", dry_run=True)
    text = str(estimate.describe())
    assert "layer 0" in text and "layer 1" in text and not list(tmp_path.glob("*e"))
    steps = estimate.plans[0].steps
    assert [step.amount for step in steps] == [layout.artifact.graph.num_edges(RELATION)] * 2
    assert [step.disk_written for step in steps] == [0, 20480] and steps[0].disk_scratch == 73728
