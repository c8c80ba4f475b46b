"""Batches for PyG: those of the native loader, in PyG's words, and what the source says of their nodes and edges."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from tiering.errors import InputError, MissingError
from tiering.sampling import Negatives

pytest.importorskip("torch_geometric")
from pyg_batches import assert_of_source, parts, same
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling, NumNeighbors

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 32, "seed": 7}
NATIVE = {"fanouts": [4, 3], "batch_size": 32, "seed": 7, "frontier": "new"}


@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
def test_batches_are_the_native_ones(kit, build, make):
    data = getattr(kit, make)(images=2, edge_ids=True)
    layout = build(data)
    seed_type = "node" if make == "small_graph" else "paper"
    pairs = list(zip(layout.pyg_loader(**OPTIONS), layout.loader(**NATIVE), strict=True))
    assert len(pairs) == len(layout.pyg_loader(**OPTIONS)) > 2
    for batch, native in pairs:
        assert isinstance(batch, Data if make == "small_graph" else HeteroData)
        assert batch.validate()
        assert_of_source(data, layout, batch)
        seeds = parts(batch)[0][seed_type]
        assert seeds.batch_size == len(native.seeds)
        old = layout.new_to_old(seed_type)
        np.testing.assert_array_equal(seeds.n_id[: seeds.batch_size].numpy(), old[native.seeds.numpy()])
        split = data.nodes[seed_type].splits["train"]
        np.testing.assert_array_equal(seeds.n_id[: seeds.batch_size].numpy(), split[seeds.input_id.numpy()])
        for t, store in parts(batch)[0].items():
            counts = np.cumsum(store.num_sampled_nodes).tolist()
            assert counts == [known[t] for known in native.num_nodes]
        for r, store in parts(batch)[1].items():
            assert store.num_sampled_edges == [hop[r].shape[1] for hop in native.hops]
            assert torch.equal(store.edge_index, torch.cat([hop[r] for hop in native.hops], 1))


def test_input_nodes_in_every_form(kit, build):
    layout = build(kit.small_graph())
    chosen = torch.tensor([7, 3, 250, 11])
    common = {"num_neighbors": [2], "batch_size": 8, "shuffle": False}

    def ids(**options) -> list[int]:
        batches = list(layout.pyg_loader(**common, **options))
        return torch.cat([b.n_id[: b.batch_size] for b in batches]).tolist()

    mask = torch.zeros(300, dtype=torch.bool)
    mask[chosen] = True
    for given in (chosen, chosen.int(), chosen.tolist(), chosen.numpy(), ("node", chosen)):
        assert ids(input_nodes=given) == chosen.tolist()
    assert ids(input_nodes=mask) == sorted(chosen.tolist())
    assert ids(input_nodes="node") == ids(input_nodes=("node", None)) == list(range(300))
    assert ids(seeds=layout.old_to_new()[chosen.numpy()]) == chosen.tolist()
    twice = next(iter(layout.pyg_loader(**common, input_nodes=torch.tensor([5, 9, 5]))))
    assert twice.batch_size == 2 and twice.input_id.tolist() == [0, 1]


def test_neighbors_by_relation(kit, build):
    layout = build(kit.hetero_graph())
    by_relation = {
        ("paper", "cites", "paper"): [2, 1], ("author", "writes", "paper"): [0, 3],
        ("paper", "written_by", "author"): [4, 4], ("venue", "publishes", "paper"): [1, 0],
    }  # fmt: skip
    for given in (by_relation, NumNeighbors(by_relation), NumNeighbors({("paper", "cites", "paper"): [2, 1]}, [1, 1])):
        batch = next(iter(layout.pyg_loader(num_neighbors=given, batch_size=50)))
        limit = by_relation if given is by_relation else given.get_values(layout.relations)
        for r, numbers in limit.items():
            before = [0, *np.cumsum(batch[r].num_sampled_edges)]
            for hop, most in enumerate(numbers):
                col = batch[r].edge_index[1, before[hop] : before[hop + 1]]
                assert col.numel() == 0 if most == 0 else int(torch.bincount(col, minlength=1).max()) <= most


def test_what_batches_take_along(kit, build):
    layout, plain = build(kit.small_graph(edge_ids=True)), build(kit.small_graph())

    def first(loader):
        return next(iter(loader))

    lean = first(layout.pyg_loader(**OPTIONS, edge_attrs=[], return_edge_id=False, masks=False))
    assert not {"edge_weight", "e_id", "train_mask"} & set(lean.keys())
    assert {"edge_weight", "e_id", "train_mask"} <= set(first(layout.pyg_loader(**OPTIONS)).keys())
    assert "e_id" not in first(plain.pyg_loader(**OPTIONS))
    assert first(layout.pyg_loader(**OPTIONS, transform=lambda data: data.num_nodes)) == lean.num_nodes
    with pytest.raises(InputError, match="no relation has edge data 'wieght'; available: weight, edge_ids"):
        layout.pyg_loader(**OPTIONS, edge_attrs=["wieght"])
    with pytest.raises(InputError, match="import again with `edge_ids`"):
        plain.pyg_loader(**OPTIONS, return_edge_id=True)


def test_weighted_and_repeated_draws(kit, build):
    layout = build(kit.small_graph())
    for options, native in (({"replace": True}, "replacement"), ({"weight_attr": "weight"}, "weighted")):
        expected = next(iter(layout.loader(**NATIVE, sampler=native)))
        batch = next(iter(layout.pyg_loader(**OPTIONS, **options)))
        assert torch.equal(batch.edge_index, torch.cat([hop["node", "to", "node"] for hop in expected.hops], 1))


@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
@pytest.mark.parametrize("chosen", [90, None], ids=["some", "all"])
def test_links_are_those_given_or_all_of_the_source(kit, build, make, chosen):
    """With and without negatives, whose labels are 0."""
    data = getattr(kit, make)(edge_ids=True)
    layout, relation = build(data), ("node", "to", "node") if make == "small_graph" else ("author", "writes", "paper")
    ends = np.stack(data.edges[relation])[:, :chosen]
    if chosen is None:
        given = None if make == "small_graph" else ("author", "paper")
        options = {"edge_label": torch.arange(ends.shape[1]), "shuffle": False}
    else:
        given = torch.from_numpy(ends) if make == "small_graph" else (relation, torch.from_numpy(ends))
        options = {"neg_sampling": "binary"}
    seen = []
    for batch in layout.pyg_link_loader(**OPTIONS, edge_label_index=given, **options):
        assert_of_source(data, layout, batch)
        links, nodes = batch if make == "small_graph" else batch[relation], parts(batch)[0]
        own = links.input_id.numel()
        expected = links.input_id.tolist() if chosen is None else [1.0] * own + [0.0] * own
        assert links.edge_label.tolist() == expected
        for end in (0, 1):
            ids = nodes[relation[2 * end]].n_id[links.edge_label_index[end]].numpy()
            np.testing.assert_array_equal(ids[:own], ends[end][links.input_id.numpy()])
        seen += links.input_id.tolist()
    assert (seen if chosen is None else sorted(seen)) == list(range(ends.shape[1]))


def test_links_with_triplets_and_labels(kit, build):
    data = kit.small_graph()
    layout, ends = build(data), torch.from_numpy(np.stack(data.edges["node", "to", "node"])[:, :40])
    batch = next(iter(layout.pyg_link_loader([3], batch_size=16, edge_label_index=ends,
                                             neg_sampling=NegativeSampling("triplet", 2))))  # fmt: skip
    assert batch.dst_neg_index.shape == (16, 2)
    assert torch.equal(batch.n_id[batch.src_index], ends[0][batch.input_id])
    assert torch.equal(batch.n_id[batch.dst_pos_index], ends[1][batch.input_id])
    classes = torch.arange(40) % 3
    labeled = {"edge_label_index": ends, "edge_label": classes, "batch_size": 16}
    batch = next(iter(layout.pyg_link_loader([3], **labeled, neg_sampling={"mode": "binary", "amount": 0.5})))
    assert torch.equal(batch.edge_label, torch.cat([classes[batch.input_id] + 1, torch.zeros(8, dtype=torch.int64)]))
    batch = next(iter(layout.pyg_link_loader([3], **labeled)))
    assert torch.equal(batch.edge_label, classes[batch.input_id])
    every = list(layout.pyg_link_loader([2], batch_size=700))
    assert sum(b.input_id.numel() for b in every) == 3000 and "edge_label" not in every[0]


def test_the_native_link_loader_gives_the_same(kit, build):
    data = kit.hetero_graph()
    layout, relation = build(data), ("paper", "written_by", "author")
    ends = np.stack(data.edges[relation])[:, :70]
    ranks = np.stack([layout.old_to_new(t)[ids] for t, ids in zip(("paper", "author"), ends, strict=True)])
    options = {"batch_size": 32, "seed": 7}
    native = layout.link_loader(relation, links=ranks, negatives=Negatives("triplet", 2), **NATIVE)
    adapted = layout.pyg_link_loader([4, 3], edge_label_index=(relation, ends), **options,
                                     neg_sampling={"mode": "triplet", "amount": 2})  # fmt: skip
    for a, b in zip(native, adapted, strict=True):
        assert a.y is None and a.links.count == b[relation].input_id.numel()
        assert torch.equal(a.links.src, b["paper"].src_index)
        assert torch.equal(a.links.dst, b["author"].dst_pos_index)
        assert torch.equal(a.links.dst_negative, b["author"].dst_neg_index)


def test_a_loader_can_be_pickled(kit, build):
    loader = build(kit.small_graph()).pyg_loader(**OPTIONS)
    expected = [batch.n_id.tolist() for batch in loader.epoch(4)]
    assert [batch.n_id.tolist() for batch in pickle.loads(pickle.dumps(loader)).epoch(4)] == expected


@pytest.mark.parametrize(("options", "words"), [
    ({"input_nodes": torch.tensor([4, 300])}, r"entry 1 is 300; expected original ids of 'node', 0 \.\. 299"),
    ({"input_nodes": torch.zeros(7, dtype=torch.bool)}, r"expected a mask of shape \(300,\)"),
    ({"input_nodes": torch.rand(3)}, "expected original ids of 'node', whole numbers"),
    ({"num_neighbors": []}, "expected one entry per hop"),
    ({"weight_attr": "time"}, "sampled only by the edge data 'weight', found 'time'"),
    ({"weight_attr": "weight", "replace": True}, "omit one of them"),
])  # fmt: skip
def test_arguments_that_make_no_sense(kit, build, options, words):
    with pytest.raises(InputError, match=words):
        build(kit.small_graph()).pyg_loader(**{**OPTIONS, **options})
    with pytest.raises(InputError, match=r"the type is missing; give it as \(type, ids\) or node_type"):
        build(kit.hetero_graph()).pyg_loader(**OPTIONS, input_nodes=torch.arange(3))


def test_links_that_make_no_sense(kit, build):
    layout = build(kit.small_graph())
    pairs = torch.tensor([[0, 1], [2, 3]])
    for options, words in (
        ({"edge_label": torch.ones(3)}, "needs the links that it labels: give edge_label_index"),
        ({"edge_label": torch.ones(3), "edge_label_index": pairs}, "one label for each of 2 links, found 3"),
        ({"edge_label": torch.ones(2), "edge_label_index": pairs, "neg_sampling": "triplet"}, "have no labels"),
        ({"edge_label_index": torch.tensor([[0, 1], [2, 900]])}, "destinations: entry 1 is 900"),
        ({"neg_sampling": "some"}, "binary or triplet"),
    ):
        with pytest.raises(InputError, match=words):
            layout.pyg_link_loader([2], **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'split'"):
        layout.link_loader(split="train")


def test_input_id_means_what_it_means_in_pyg(kit, build):
    from torch_geometric.loader import NodeLoader

    layout = build(kit.small_graph(edge_ids=True))
    mask, chosen = torch.zeros(300, dtype=torch.bool), torch.tensor([7, 3, 250, 11])
    mask[chosen] = True
    for nodes, expected in ((mask, [3, 7, 11, 250]), (chosen, [0, 1, 2, 3]), (None, list(range(300)))):
        own = layout.pyg_loader(num_neighbors=[2], batch_size=300, shuffle=False, input_nodes=nodes)
        if nodes is not None:
            over = NodeLoader(layout.pyg_stores(), layout.pyg_sampler([2]), input_nodes=nodes, batch_size=300)
            assert next(iter(over)).input_id.tolist() == expected
        assert next(iter(own)).input_id.tolist() == expected
    names = {"num_neighbors": [2], "batch_size": 9, "input_nodes": mask, "input_id": torch.tensor([40, 30, 20, 10])}
    assert next(iter(layout.pyg_loader(**names, shuffle=False))).input_id.tolist() == [40, 30, 20, 10]
    with pytest.raises(InputError, match="input_id: expected one for each of 'node': 4 seeds, found 2"):
        layout.pyg_loader(**{**names, "input_id": [1, 2]})
    assert next(iter(layout.pyg_loader(None, [2], batch_size=8, shuffle=False))).n_id[:8].tolist() == list(range(8))


def test_relations_by_their_types(kit, build):
    layout = build(kit.hetero_graph())
    assert layout.num_edges(("author", "paper")) == layout.num_edges("author:writes:paper")
    two = {r[::2]: [3, 2] for r in layout.relations}
    expected = next(iter(layout.pyg_loader(num_neighbors={r: [3, 2] for r in layout.relations}, batch_size=9)))
    assert same(next(iter(layout.pyg_loader(num_neighbors=two, batch_size=9))), expected)
    pairs = torch.tensor([[0, 1], [2, 3]])
    likes = ("author", "likes", "paper")
    batch = next(iter(layout.pyg_link_loader([2], edge_label_index=(likes, pairs), shuffle=False)))
    assert "edge_index" not in batch[likes]
    assert torch.equal(batch["author"].n_id[batch[likes].edge_label_index[0]], pairs[0])
    with pytest.raises(MissingError, match="no single relation"):
        layout.pyg_link_loader([2], edge_label_index=("author", "venue"))


def test_hetero_batches_of_one_type_and_pyg_s_name_of_weights(kit, build):
    layout = build(kit.small_graph())
    plain = next(iter(layout.pyg_loader(**OPTIONS, weight_attr="edge_weight")))
    typed = next(iter(layout.pyg_loader(**OPTIONS, weight_attr="weight", hetero=True)))
    assert isinstance(typed, HeteroData) and torch.equal(typed["node", "to", "node"].edge_index, plain.edge_index)
    assert torch.equal(typed["node"].x, plain.x)
    links = next(iter(layout.pyg_link_loader([2], hetero=True, batch_size=4)))
    assert links["node", "node"].input_id.numel() == 4


def test_what_scripts_ask_a_dataset_for(kit, build):
    plain, typed = build(kit.small_graph()), build(kit.hetero_graph())
    assert plain.num_features == plain.num_node_features == plain.feature_dim() == 8
    assert plain.num_classes == plain.num_classes() == plain.num_classes("node") == 3
    assert plain.num_nodes == plain.num_nodes() == 300 and plain.num_edge_features == 0
    assert isinstance(torch.nn.Linear(plain.num_features, plain.num_classes), torch.nn.Module)
    assert typed.num_features == {t: typed.feature_dim(t) if t in typed.feature_types else 0 for t in typed.node_types}
    assert typed.num_classes == typed.num_classes("paper") and typed.num_classes("venue") is None
    assert typed.num_nodes == sum(map(typed.num_nodes, typed.node_types)) and typed.num_edges("writes") > 0
    assert typed.metadata() == (typed.node_types, typed.relations)
    assert pickle.loads(pickle.dumps(plain.num_classes)) == 3
    loader = plain.pyg_loader("train", batch_size=7)
    assert len(loader.dataset) == plain.split("train").size


@pytest.mark.parametrize("options", [{}, {"memory": "tiers"}, {"window": 2}])
def test_a_loader_called_with_positions_gives_their_batch(kit, build, options):
    data = kit.small_graph(images=2, edge_ids=True)
    layout = build(data)
    loader = layout.pyg_loader(None, [4, 3], batch_size=32, **options)
    batch = loader([5, 0, 7])
    assert batch.n_id[:3].tolist() == batch.input_id.tolist() == [5, 0, 7]
    assert_of_source(data, layout, batch)
    assert sum(batch.batch_size for batch in loader) == 300
    links = layout.pyg_link_loader([2], neg_sampling="binary", batch_size=8)
    batch = links(torch.tensor([6, 2]))
    assert batch.input_id.tolist() == [6, 2] and batch.edge_label.tolist() == [1, 1, 0, 0]
    ends = batch.n_id[batch.edge_label_index[:, :2]].numpy()
    np.testing.assert_array_equal(ends, np.stack(data.edges["node", "to", "node"])[:, [6, 2]])
