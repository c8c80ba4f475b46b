"""A layer that no list knows: one block is computed again among other nodes, and rows that change are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inferred import RELATION, RelationalSage, Sage, mean, odd_graph

from tiering.errors import ModelError
from tiering.loader.inference import Layer
from tiering.loader.inference.block_check import refuse_changed, with_other_destinations
from tiering.loader.inference.blocks import InferenceBlock


def by_degrees(block, x):
    """As GCN: edges are divided by degrees of both ends, of the block."""
    src, dst = block.edge_index
    degrees = torch.bincount(dst, minlength=len(x)) + 1
    weights = (degrees[src] * degrees[dst]) ** -0.5
    return torch.zeros(len(x), x.shape[1]).index_add(0, dst, x[src] * weights[:, None])[: block.num_dst]


def by_out_degrees(block, x):
    src, _ = block.edge_index
    return mean(x / torch.bincount(src, minlength=len(x)).clamp(min=1)[:, None], block.edge_index, block.num_dst)


def centered(block, x):
    rows = x[: block.num_dst] + mean(x, block.edge_index, block.num_dst)
    return rows - rows.mean(0)


def attention(block, x):
    return torch.softmax(x[: block.num_dst] @ x.T, 1) @ x


def longest(block, x):
    counts = torch.bincount(block.edge_index[1], minlength=block.num_dst)
    return x[: block.num_dst] / counts.max()


WRONG = [by_degrees, by_out_degrees, centered, attention, longest, lambda block, x: torch.rand(block.num_dst, 2)]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_rows_that_depend_on_the_block_are_refused(kit, build, tmp_path, number):
    layout = build(odd_graph(kit, 300))
    for fanouts in (-1,) if WRONG[number] is longest else (-1, 3):
        layers = [Layer(WRONG[number], fanouts=fanouts)]
        with pytest.raises(ModelError, match=r"^layer 0, 'node': rows depend on other nodes.*changes by"):
            layout.inference(layers, tmp_path / f"e{fanouts}", edges=400)
    layout.inference([WRONG[number]], tmp_path / "one", edges=50_000)  # of one block nothing is wrong


def test_single_rows_that_depend_on_the_block_are_refused(kit, build, tmp_path):
    layout = build(odd_graph(kit, 300))
    assert Layer(abs, neighbours=False) == Layer(abs, neighbors=False) != Layer(abs)
    layers = [Layer(lambda block, x: x - x.mean(0), neighbors=False)]
    with pytest.raises(ModelError, match="rows depend on other nodes"):
        layout.inference(layers, tmp_path / "e", edges=200)
    several = build(kit.hetero_graph())
    with pytest.raises(ModelError, match="layer 0, 'author': rows depend"):
        several.inference(
            [
                lambda block, x: (
                    x[block.node_type].float()[: block.num_dst] / len(x["paper"])
                    if block.node_type == "author"
                    else None
                )
            ],
            tmp_path / "h",
            edges=60,
        )


def test_others_are_not(kit, build, tmp_path):
    """Small and large blocks, several types, drawn neighbors, half precision, results of zeros."""
    layout, model = build(odd_graph(kit, 300)), Sage(12, 20, 5)
    several = build(kit.hetero_graph())
    relational = RelationalSage(several.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
    for edges in (250, 700):
        layout.inference(model.layers, tmp_path / f"a{edges}", edges=edges)
        several.inference([relational.layer(0), relational.layer(1)], tmp_path / f"b{edges}", edges=edges)
    layout.inference(model.layers, tmp_path / "c", edges=300, dtype="bfloat16")
    layers = [
        Layer(lambda block, x: (1e4 * x[: block.num_dst]).half(), fanouts=4),
        lambda block, x: torch.sparse.mm(block.adjacency(), x.float(), "mean").bfloat16(),
        lambda block, x: (x[: block.num_dst].float() - 1e9).relu(),
    ]
    layout.inference(layers, tmp_path / "d", edges=300)


@settings(max_examples=100)
@given(st.integers(1, 40), st.integers(0, 30), st.integers(0, 200), st.integers(0, 99))
def test_a_block_with_other_destinations(count, more, edge_count, seed):
    """The later destinations come first with the lists that they had; no row is new, and there are no more edges."""
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.permutation(1000)[: count + more])
    dst = np.sort(rng.integers(0, count, edge_count))
    edges = torch.from_numpy(np.stack([rng.integers(0, count + more, edge_count), dst]))
    x = ids[:, None].float()
    found = with_other_destinations(InferenceBlock("node", {"node": ids}, {RELATION: edges}, count), x)
    begin = count // 2
    if found is None:
        assert not (dst >= begin).any()
        return
    block, rows = found
    pairs, later = block.edges[RELATION], ids[begin:count]
    assert torch.equal(rows, block.nodes["node"][:, None].float()) and torch.equal(
        block.nodes["node"][: len(later)], later
    )
    assert len(set(block.nodes["node"].tolist())) == len(block.nodes["node"])
    kept = edges[:, edges[1] >= begin]
    names = block.nodes["node"]
    assert torch.equal(names[pairs[0, : kept.shape[1]]], ids[kept[0]]) and torch.equal(
        pairs[1, : kept.shape[1]], kept[1] - begin
    )
    assert (pairs[1, kept.shape[1] :] >= len(later)).all() and (pairs[1].diff() >= 0).all()
    assert pairs.shape[1] <= max(edge_count, 2 * kept.shape[1]) and block.num_dst <= len(names)
    out = torch.zeros(block.num_dst, 1)
    refuse_changed(torch.zeros(count, 1), out, 0, InferenceBlock("node", {"node": ids}, {}, count), x)
