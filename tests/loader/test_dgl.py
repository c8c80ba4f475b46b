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
dgl_batches = importlib.import_module("tiering.loader.dgl")

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


@pytest.mark.parametrize(("options", "words"), [
    ({"indices": torch.tensor([300])}, r"indices: entry 0 is 300; expected original ids"),
    ({"indices": {}}, "expected ids of one type, as {type: ids}, found 0"),
    ({"fanouts": 5}, r"expected one entry per layer such as \[10, 10\], found 5"),
    ({"prob": "w"}, "sampled only by the edge data 'weight'"),
    ({"prob": "weight", "replace": True}, "omit one of them"),
])  # fmt: skip
def test_arguments_that_make_no_sense(kit, build, options, words):
    with pytest.raises(InputError, match=words):
        build(kit.small_graph()).dgl_loader(**{**OPTIONS, **options})


def edge_data(kit, make):
    """Return a dataset with edge ids, and the relation of its links."""
    data = getattr(kit, make)(images=2, edge_ids=True)
    return data, ("node", "to", "node") if make == "small_graph" else ("author", "writes", "paper")


@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
@pytest.mark.parametrize("chosen", ["ids", "pairs", "all"])
def test_batches_of_edges_are_those_of_dgl(kit, build, make, chosen):
    """Edges are those of the source, negatives as of Uniform(2), the types of graphs those of DGL's sampler."""
    (data, relation), k = edge_data(kit, make), 2
    layout, (src, dst) = build(data), data.edges[relation]
    ids = np.random.default_rng(3).permutation(len(src))[:70]
    indices = {"ids": torch.tensor(ids), "pairs": (src[ids], dst[ids]), "all": None}[chosen]
    loader = layout.dgl_link_loader(
        [3, 4], indices={relation: indices}, negative_sampler=dgl.dataloading.negative_sampler.Uniform(k),
        batch_size=32, shuffle=False,
    )  # fmt: skip
    graph = dgl.heterograph({r: tuple(map(torch.tensor, ends)) for r, ends in data.edges.items()})
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler([3, 4]), negative_sampler=dgl.dataloading.negative_sampler.Uniform(k)
    )
    seen = []
    for inputs, pairs, negatives, blocks in loader:
        nodes = [pairs.nodes[t].data[dgl.NID] for t in relation[::2]]
        places = pairs.edges[relation].data[dgl.EID]
        source = ids[places] if chosen == "pairs" else places.numpy()
        seen += source.tolist()
        for graph_of, ends in ((pairs, (src[source], dst[source])), (negatives, (src[source].repeat(k), None))):
            found = graph_of.edges(etype=relation)
            for side, expected in enumerate(ends):
                if expected is not None:
                    np.testing.assert_array_equal(nodes[side][found[side]], expected)
        if chosen != "pairs":
            np.testing.assert_array_equal(pairs.edges[relation].data["weight"], data.weights[relation][source])
        model = sampler.sample(graph, {relation: torch.tensor(source)})
        for own, theirs in zip((pairs, negatives), model[1:3], strict=True):
            assert own.canonical_etypes == theirs.canonical_etypes and own.ntypes == theirs.ntypes
            assert {r: own.num_edges(r) for r in own.canonical_etypes} == {
                r: theirs.num_edges(r) for r in theirs.canonical_etypes
            }
        for t in blocks[-1].dsttypes:  # the model's output of a node is that of the pair graph's
            assert torch.equal(blocks[-1].dstnodes[t].data[dgl.NID], pairs.nodes[t].data[dgl.NID])
            assert pairs.num_nodes(t) == negatives.num_nodes(t)
        assert set(by_type(inputs, "node")) == set(graph.ntypes) if make == "hetero_graph" else True
    assert sorted(seen) == (list(range(len(src))) if chosen == "all" else sorted(ids.tolist()))
    assert chosen == "all" or seen == ids.tolist()


def test_batches_of_edges_without_negatives_and_with_pairs_of_any_nodes(kit, build):
    layout = build(kit.small_graph())
    inputs, pairs, blocks = next(iter(layout.dgl_link_loader(batch_size=16)))
    assert pairs.num_edges() == 16 and dgl.EID not in pairs.edata and len(blocks) == 2
    assert torch.equal(blocks[0].srcdata[dgl.NID], inputs)
    for sampler, count in (({"mode": "binary", "amount": 2}, 32), ("binary", 16), (3, 48), ({"mode": "triplet"}, 16)):
        _, _, negatives, _ = next(iter(layout.dgl_link_loader(negative_sampler=sampler, batch_size=16)))
        assert negatives.num_edges() == count


@pytest.mark.parametrize(("options", "words"), [
    ({"indices": torch.arange(3)}, r"were not kept; import with `edge_ids`, or pass the edges as \(sources"),
    ({"indices": ([1], [300])}, "indices: destinations: entry 0 is 300"),
    ({"indices": ([1, 2], [3])}, "of equal length"),
    ({"indices": (1, 2)}, "indices: sources: expected original ids of .node., whole numbers of one dimension"),
    ({"indices": {"to": [0], "from": [0]}}, "edges of one relation, .* found 2; make a loader for each"),
    ({"exclude": "self"}, r"dgl_link_loader\(exclude=...\): expected None, found 'self': import the dataset without"),
    ({"reverse_eids": torch.arange(3)}, r"dgl_link_loader\(reverse_eids=...\): expected None"),
    ({"negative_sampler": dgl.dataloading.negative_sampler.GlobalUniform(2)}, "found GlobalUniform; mode 'binary'"),
    ({"negative_sampler": "some"}, "expected mode binary or triplet"),
])  # fmt: skip
def test_edges_that_make_no_sense(kit, build, options, words):
    with pytest.raises(InputError, match=words):
        build(kit.small_graph()).dgl_link_loader(**options)
    edges = {"indices": torch.tensor([2, 3000])}
    with pytest.raises(InputError, match="indices: entry 1 is 3000, not an edge id of node:to:node"):
        build(kit.small_graph(edge_ids=True)).dgl_link_loader(**edges)
