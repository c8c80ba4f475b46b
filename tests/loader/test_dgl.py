"""Batches for DGL: those of the native loader as input nodes, output nodes and blocks."""

from __future__ import annotations

import importlib
from functools import partial

import numpy as np
import pytest
import torch

from tiering.errors import InputError
from tiering.loader.batches.tensors import tensors_in

dgl = pytest.importorskip("dgl")
dgl_batches = importlib.import_module("tiering.loader.dgl.batch")

OPTIONS = {"fanouts": [3, 4], "batch_size": 32, "seed": 7}
NATIVE = {"fanouts": [4, 3], "batch_size": 32, "seed": 7, "frontier": "all"}


def by_type(nodes, only: str) -> dict:
    return nodes if isinstance(nodes, dict) else {only: nodes}


@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
def test_batches_are_the_native_ones(kit, build, make):
    data = getattr(kit, make)(images=2, edge_ids=True)
    layout, seed_type = build(data), "node" if make == "small_graph" else "paper"
    loader = layout.dgl_loader(**OPTIONS)
    pairs = list(zip(loader, layout.loader(**NATIVE), strict=True))
    assert len(pairs) == len(loader) > 2
    for (inputs, outputs, blocks), native in pairs:
        old = {t: layout.new_to_old(t) for t in layout.node_types}
        inputs, outputs = by_type(inputs, seed_type), by_type(outputs, seed_type)
        for t, ids in inputs.items():
            np.testing.assert_array_equal(ids.numpy(), old[t][native.nodes[t].numpy()])
            np.testing.assert_array_equal(outputs[t].numpy(), ids[: native.num_nodes[0][t]].numpy())
            source = data.nodes[t]
            if source.table is not None:
                rows = blocks[0].srcnodes[t].data["feat"]
                rows = rows.view(torch.uint16) if source.dtype == "bfloat16" else rows
                np.testing.assert_array_equal(rows.numpy(), source.table[ids.numpy()])
            if source.labels is not None:
                labels = blocks[-1].dstnodes[t].data["label"].numpy()
                np.testing.assert_array_equal(labels, source.labels[outputs[t].numpy()])
        assert [block.is_block for block in blocks] == [True, True]
        for block, layer in zip(blocks, native.blocks(), strict=True):
            for t in inputs:
                assert block.num_src_nodes(t) == layer.num_src[t] and block.num_dst_nodes(t) == layer.num_dst[t]
            for relation, edges in layer.edge_index.items():
                src, dst = block.edges(etype=relation)
                assert torch.equal(torch.stack((src, dst)), edges)
                place = block.edges[relation].data[dgl.EID].numpy()
                ends = data.edges[relation]
                for end, nodes, t in ((0, src, relation[0]), (1, dst, relation[2])):
                    frame = (block.srcnodes if end == 0 else block.dstnodes)[t].data[dgl.NID]
                    np.testing.assert_array_equal(frame[nodes].numpy(), ends[end][place])
                weight = block.edges[relation].data["weight"].numpy()
                np.testing.assert_array_equal(weight, data.weights[relation][place])


def test_every_tensor_of_a_batch_is_told(kit, build):
    """A GPU's allocator must not give memory out again that a batch uses: whatever is in the triple is listed."""
    inputs, outputs, blocks = batch = next(iter(build(kit.hetero_graph(edge_ids=True)).dgl_loader(**OPTIONS)))
    told = {t.data_ptr() for t in tensors_in(batch, partial(dgl_batches.DglAdapter.contents, None))}
    wanted = [*inputs.values(), *outputs.values()]
    for block in blocks:
        wanted += [v for values in block.srcdata.values() for v in values.values()]
        wanted += [v for values in block.dstdata.values() for v in values.values()]
        wanted += [v for values in block.edata.values() for v in values.values()]
    assert {t.data_ptr() for t in wanted if t.numel()} <= told


def test_fanouts_and_seeds_as_dgl_takes_them(kit, build):
    layout = build(kit.hetero_graph())
    one = {("paper", "cites", "paper"): 2, ("author", "writes", "paper"): 0,
           ("paper", "written_by", "author"): 5, ("venue", "publishes", "paper"): 1}  # fmt: skip
    chosen = torch.tensor([7, 3, 150])
    loader = layout.dgl_loader(fanouts=[one, 4], indices={"paper": chosen}, batch_size=3, shuffle=False)
    _, outputs, blocks = next(iter(loader))
    assert outputs["paper"].tolist() == chosen.tolist()
    assert blocks[0].num_edges("writes") == 0 < blocks[1].num_edges("writes")
    assert blocks[0].in_degrees(etype="cites").max() <= 2 < blocks[1].in_degrees(etype="cites").max() <= 4
    named = next(iter(layout.dgl_loader(fanouts=[2], batch_size=4, feature_name="h", label_name="y")))[2][0]
    assert "h" in named.srcnodes["paper"].data and "y" in named.dstnodes["paper"].data


def test_weighted_and_repeated_draws(kit, build):
    layout = build(kit.small_graph())
    for options, native in (({"replace": True}, "replacement"), ({"prob": "weight"}, "weighted")):
        expected = next(iter(layout.loader(**NATIVE, sampler=native))).blocks()
        _, _, blocks = next(iter(layout.dgl_loader(**OPTIONS, **options)))
        for block, layer in zip(blocks, expected, strict=True):
            assert torch.equal(torch.stack(block.edges()), layer.edge_index["node", "to", "node"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"indices": torch.tensor([300])}, r"indices: entry 0 is 300; expected original ids"),
        ({"indices": {}}, "expected ids of one type, as {type: ids}, found 0"),
        ({"fanouts": 5}, r"expected one entry per layer such as \[10, 10\], found 5"),
        ({"prob": "w"}, "drawn by the edge data 'weight'"),
        ({"prob": "weight", "replace": True}, "leave one out"),
    ],
)
def test_arguments_that_make_no_sense(kit, build, options, words):
    with pytest.raises(InputError, match=words):
        build(kit.small_graph()).dgl_loader(**{**OPTIONS, **options})
