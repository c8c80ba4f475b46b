"""PyG's own loaders over the stores and the sampler of a layout: what their batches hold is what the source says."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from tiering.errors import CapabilityError, InputError, MissingError

pytest.importorskip("torch_geometric")
from pyg_batches import LOOP, assert_of_source, parts, plain, same, truth
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.remote_backend_utils import num_nodes
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
WRITES = ("author", "writes", "paper")
GRAPHS = pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
IDS = pytest.mark.parametrize("ids", ["original", "rank"])


def node_loader(layout, make: str, ids: str = "original", seed: int = 5, **options) -> NodeLoader:
    """PyG's loader over the first 100 nodes of a graph of the kit."""
    nodes = torch.arange(100)
    given = {"input_nodes": nodes if make == "small_graph" else ("paper", nodes), "batch_size": 32, **options}
    sampler = layout.pyg_sampler([4, 3], ids=ids, seed=seed)
    return NodeLoader(layout.pyg_stores(ids), sampler, **given)


@GRAPHS
@IDS
def test_node_batches_hold_what_the_source_says(kit, build, make, ids):
    data = getattr(kit, make)(images=2, edge_ids=True)
    layout = build(data)
    for at, batch in enumerate(node_loader(layout, make, ids)):
        assert isinstance(batch, Data if make == "small_graph" else HeteroData) and batch.validate()
        assert_of_source(data, layout, batch, ids)
        seeds = parts(batch)[0]["node" if make == "small_graph" else "paper"]
        assert seeds.n_id[: seeds.batch_size].tolist() == seeds.input_id.tolist() == list(range(100))[32 * at :][:32]
        for relation, store in parts(batch)[1].items():
            hops = np.split(store.edge_index[1].numpy(), np.cumsum(store.num_sampled_edges)[:-1])
            lists = np.bincount(data.edges[relation][1], minlength=data.nodes[relation[2]].count)
            begin = 0
            for col, limit, found in zip(hops, (4, 3), parts(batch)[0][relation[2]].num_sampled_nodes, strict=False):
                old = parts(batch)[0][relation[2]].n_id[begin : begin + found].numpy()
                old = old if ids == "original" else layout.new_to_old(relation[2])[old]
                drawn = np.bincount(col - begin, minlength=found)  # only nodes first found at the hop before draw
                np.testing.assert_array_equal(drawn, np.minimum(lists[old], limit))
                begin += found


@GRAPHS
def test_both_ids_mean_the_same_batches(kit, build, make):
    layout = build(getattr(kit, make)())
    seed_type = "node" if make == "small_graph" else "paper"
    ranks = torch.from_numpy(layout.old_to_new(seed_type)[np.arange(100)])
    nodes = ranks if make == "small_graph" else ("paper", ranks)
    pairs = zip(node_loader(layout, make), node_loader(layout, make, "rank", input_nodes=nodes), strict=True)
    for original, ranked in pairs:
        for t, store in parts(original)[0].items():
            other = parts(ranked)[0][t]
            np.testing.assert_array_equal(store.n_id.numpy(), layout.new_to_old(t)[other.n_id.numpy()])
            assert all(np.array_equal(plain(store[k]), plain(other[k])) for k in ("x", "y") if k in store)
        for r, store in parts(original)[1].items():
            assert torch.equal(store.edge_index, parts(ranked)[1][r].edge_index)


@pytest.mark.parametrize(("make", "context", "filter_per_worker"), [
    ("small_graph", "fork", True), ("hetero_graph", "fork", True), ("hetero_graph", "fork", False),
    pytest.param("hetero_graph", "spawn", True, marks=pytest.mark.long),
    pytest.param("small_graph", "spawn", False, marks=pytest.mark.long),
])  # fmt: skip
def test_workers_make_the_same_batches(kit, build, make, context, filter_per_worker, capfd):
    layout = build(getattr(kit, make)(images=2, edge_ids=True))
    count = 2 if context == "fork" else 1  # one that is spawned imports torch for seconds
    workers = {"num_workers": count, "multiprocessing_context": context, "filter_per_worker": filter_per_worker}
    expected, got = list(node_loader(layout, make)), list(node_loader(layout, make, **workers))
    assert len(got) == 4 and all(same(*pair) for pair in zip(expected, got, strict=True))
    if make == "hetero_graph":
        assert got[0]["author"].x.dtype == torch.bfloat16
    assert "nanobind: leaked" not in capfd.readouterr().err


def test_a_batch_depends_on_seed_epoch_and_its_nodes_alone(kit, build):
    layout = build(kit.small_graph())
    sampler = layout.pyg_sampler([4, 3], seed=1)

    def drawn(sampler, nodes=range(20), input_id=None) -> list[int]:
        out = sampler.sample_from_nodes(NodeSamplerInput(input_id, torch.tensor(nodes)))
        return out.node[torch.stack((out.row, out.col))].tolist()

    first = drawn(sampler)
    assert drawn(sampler, input_id=torch.arange(20) + 7) == first == drawn(layout.pyg_sampler([4, 3], seed=1))
    assert drawn(layout.pyg_sampler([4, 3], seed=2)) != first
    sampler.set_epoch(3)
    third = drawn(sampler)
    assert third != first and drawn(pickle.loads(pickle.dumps(sampler))) == third
    of_seven = [pair for pair in zip(*drawn(sampler, range(19)), strict=True) if pair[1] == 7]
    assert of_seven != [pair for pair in zip(*third, strict=True) if pair[1] == 7]  # other nodes beside it: drawn anew
    sampler.set_epoch(0)
    assert drawn(sampler) == first
    with pytest.raises(InputError, match="epoch: expected a whole number, 0 or more, found -1"):
        sampler.set_epoch(-1)


def test_workers_that_live_on_see_the_epoch(kit, build):
    layout = build(kit.small_graph())
    alone, shared = node_loader(layout, "small_graph"), node_loader(
        layout, "small_graph", num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )  # fmt: skip
    seen = []
    for epoch in (0, 1):
        for loader in (alone, shared):
            loader.node_sampler.set_epoch(epoch)
        pairs = list(zip(alone, shared, strict=True))
        assert all(same(*pair) for pair in pairs)
        seen.append(pairs[0][0])
    assert not same(*seen)
    shared._iterator._shutdown_workers()  # PyG's loaders are cycles: collecting them waits ten seconds for workers


@GRAPHS
@IDS
def test_binary_links(kit, build, make, ids):
    data = getattr(kit, make)(edge_ids=True)
    layout, relation = build(data), LOOP if make == "small_graph" else WRITES
    ends = np.stack(data.edges[relation])[:, :90]
    own = [ids_of(layout, t, e, ids) for t, e in zip(relation[::2], ends, strict=True)]
    given = (None if make == "small_graph" else relation, torch.from_numpy(np.stack(own)))
    loader = LinkLoader(layout.pyg_stores(ids), layout.pyg_sampler([3, 2], ids=ids), given, neg_sampling="binary",
                        edge_label=torch.arange(90) % 3, batch_size=40)  # fmt: skip
    negatives = []
    for batch in loader:
        assert_of_source(data, layout, batch, ids)
        nodes, edges = parts(batch)
        links, count = edges[relation], edges[relation].input_id.numel()
        assert links.edge_label.tolist() == [*(links.input_id % 3 + 1).tolist(), *[0] * count]
        for end, t in enumerate(relation[::2]):
            got = nodes[t].n_id[links.edge_label_index[end]].numpy()
            np.testing.assert_array_equal(got[:count], own[end][links.input_id.numpy()])
        negatives.append(links.edge_label_index[:, count:])
    assert len(loader) == len(negatives) == 3 and not torch.equal(negatives[0], negatives[1])


def ids_of(layout, node_type: str, originals: np.ndarray, ids: str) -> np.ndarray:
    return originals if ids == "original" else layout.old_to_new(node_type)[originals].astype(np.int64)


@IDS
def test_triplets_go_by_the_weights_of_the_nodes(kit, build, ids):
    data = kit.hetero_graph()
    layout, ends = build(data), np.stack(data.edges[WRITES])[:, :60]
    heavy = np.array([3, 77, 150])
    weight = torch.zeros(200)
    weight[torch.from_numpy(ids_of(layout, "paper", heavy, ids))] = 1
    own = [ids_of(layout, t, e, ids) for t, e in zip(WRITES[::2], ends, strict=True)]
    stores, sampler = layout.pyg_stores(ids), layout.pyg_sampler([2], ids=ids)
    loader = LinkLoader(stores, sampler, (WRITES, torch.from_numpy(np.stack(own))),
                        neg_sampling=NegativeSampling("triplet", 2, dst_weight=weight), batch_size=30)  # fmt: skip
    for batch in loader:
        paper, author, link = batch["paper"], batch["author"], batch[WRITES].input_id.numpy()
        assert paper.dst_neg_index.shape == (30, 2)
        np.testing.assert_array_equal(author.n_id[author.src_index].numpy(), own[0][link])
        np.testing.assert_array_equal(paper.n_id[paper.dst_pos_index].numpy(), own[1][link])
        drawn = paper.n_id[paper.dst_neg_index].numpy().ravel()
        assert set(drawn) == set(ids_of(layout, "paper", heavy, ids))


def test_links_of_a_relation_that_the_graph_does_not_have(kit, build):
    layout = build(kit.hetero_graph())
    pairs = torch.tensor([[1, 2, 1], [5, 6, 7]])
    loader = LinkLoader(
        layout.pyg_stores(), layout.pyg_sampler([2]), (("author", "reads", "paper"), pairs), batch_size=3
    )
    (batch,) = loader
    label = batch["author", "reads", "paper"].edge_label_index
    assert batch["author"].n_id[label[0]].tolist() == [1, 2, 1] and batch["paper"].n_id[label[1]].tolist() == [5, 6, 7]
    assert "edge_label" not in batch["author", "reads", "paper"]


def test_a_node_that_comes_twice_counts_once(kit, build):
    layout = build(kit.small_graph())
    (batch,) = NodeLoader(layout.pyg_stores(), layout.pyg_sampler([2]), torch.tensor([5, 9, 5, 3]), batch_size=4)
    assert batch.batch_size == 3 and batch.input_id.tolist() == [0, 1, 3] and batch.n_id[:3].tolist() == [5, 9, 3]


@GRAPHS
@IDS
def test_every_index_takes_its_rows(kit, build, make, ids):
    data = getattr(kit, make)()
    layout = build(data)
    store, _ = layout.pyg_stores(ids)
    for attr in store.get_all_tensor_attrs():
        if attr.attr_name == "edge_weight":  # comes with the batches of the sampler alone
            assert store.multi_get_tensor([replace(attr, index=torch.arange(3))]) == [None]
            continue
        node_type = attr.group_name or "node"
        count = data.nodes[node_type].count
        order = np.arange(count) if ids == "original" else layout.new_to_old(node_type)
        whole = truth(data.nodes[node_type], attr.attr_name)
        whole = np.arange(count) if attr.attr_name == "n_id" else whole[order]
        mask = np.arange(count) % 3 == 1
        chosen = np.array([7, 0, 7, 3])
        for index in (torch.from_numpy(chosen), torch.from_numpy(chosen).int(), chosen.tolist(), torch.from_numpy(mask),
                      torch.empty(0, dtype=torch.int64), slice(None), slice(2, 9), slice(None, None, -2), 5,
                      np.int64(6), chosen[:1]):  # fmt: skip # NumPy arrays of several ids fail in PyG 2.8 itself
            attr.index = index
            expected = whole[index.numpy() if isinstance(index, torch.Tensor) else index]
            np.testing.assert_array_equal(plain(store.get_tensor(attr)), expected)
            assert store.get_tensor_size(attr) == expected.shape
        attr.index = None
        np.testing.assert_array_equal(plain(store.get_tensor(attr)), whole)
        assert store.get_tensor_size(attr) == whole.shape
        np.testing.assert_array_equal(plain(store[attr.group_name, attr.attr_name, 4:6]), whole[4:6])


def test_attributes_are_made_anew(kit, build):
    features, graph = (layout := build(kit.hetero_graph())).pyg_stores(masks=False)
    for attr in features.get_all_tensor_attrs():
        assert not attr.is_set("index")
        attr.index = torch.arange(3)
    assert {(a.group_name, a.attr_name) for a in features.get_all_tensor_attrs() if not a.is_set("index")} == {
        ("paper", "x"), ("paper", "y"), ("paper", "n_id"), ("author", "x"), ("author", "n_id"), ("venue", "n_id"),
        *((relation, "edge_weight") for relation in layout.relations),
    }  # fmt: skip
    first, second = graph.get_all_edge_attrs(), graph.get_all_edge_attrs()
    assert first == second and all(a is not b for a, b in zip(first, second, strict=True))
    assert [num_nodes(features, graph, t) for t in ("paper", "author", "venue")] == [200, 120, 10]


@GRAPHS
@IDS
def test_adjacency_is_that_of_the_source(kit, build, make, ids, monkeypatch):
    monkeypatch.setattr("tiering.loader.pyg.stores._PIECE", 50)  # many pieces, of which some are one long list
    data = getattr(kit, make)()
    layout = build(data)
    _, graph = layout.pyg_stores(ids)
    made = {"coo": graph.coo(), "csr": graph.csr(), "csc": graph.csc()}
    for relation, ends in data.edges.items():
        src, dst = (ids_of(layout, t, e, ids) for t, e in zip(relation[::2], ends, strict=True))
        expected = np.sort(src * 1000 + dst)
        counts = data.nodes[relation[0]].count, data.nodes[relation[2]].count
        for name, (rows, cols, _) in made.items():
            row, col = (rows, cols) if make == "small_graph" else (rows[relation], cols[relation])
            assert row.dtype == col.dtype == torch.int64
            row, col = row.numpy(), col.numpy()
            if name == "csr":
                row = np.repeat(np.arange(counts[0]), np.diff(row))
            if name == "csc":
                assert col.size == counts[1] + 1
                col = np.repeat(np.arange(counts[1]), np.diff(col))
            np.testing.assert_array_equal(np.sort(row * 1000 + col), expected)
        attr = EdgeAttr(None if make == "small_graph" else relation, EdgeLayout.CSC)
        row, colptr = graph.get_edge_index(attr)
        for v in range(counts[1]):  # each list in the order of the source
            mine = ends[1] == (v if ids == "original" else layout.new_to_old(relation[2])[v])
            np.testing.assert_array_equal(row[colptr[v] : colptr[v + 1]].numpy(), src[mine])


def test_stores_and_sampler_can_be_pickled_together(kit, build):
    layout = build(kit.hetero_graph())
    features, graph, sampler = pickle.loads(
        pickle.dumps((*layout.pyg_stores("rank"), layout.pyg_sampler([2], ids="rank")))
    )
    assert torch.equal(features["paper", "x", None], layout.pyg_stores("rank")[0]["paper", "x", None])
    assert torch.equal(graph.csc()[0][WRITES], layout.pyg_stores("rank")[1].csc()[0][WRITES])
    given = NodeSamplerInput(None, torch.arange(9), None, "paper")
    mine = layout.pyg_sampler([2], ids="rank").sample_from_nodes(given)
    assert all(torch.equal(mine.node[t], ids) for t, ids in sampler.sample_from_nodes(given).node.items())
    assert features._layout is graph._layout is sampler._layout


def test_stores_are_for_reading(kit, build):
    features, graph = build(kit.small_graph()).pyg_stores()
    for change in (
        lambda: features.put_tensor(torch.ones(3), None, "x", None),
        lambda: features.update_tensor(torch.ones(3), None, "x", None),
        lambda: features.remove_tensor(None, "x", None),
        lambda: graph.put_edge_index((torch.ones(1), torch.ones(1)), None, "coo"),
        lambda: graph.remove_edge_index(None, "csc"),
        lambda: graph.coo(store=True),
    ):
        with pytest.raises(CapabilityError, match="layout-0: stores of a layout are read-only"):
            change()


def test_requests_that_make_no_sense(kit, build):
    layout = build(kit.hetero_graph())
    (features, graph), sampler = layout.pyg_stores(), layout.pyg_sampler([2])
    pairs = torch.tensor([[0, 1], [2, 3]])
    for words, kind, ask in (
        ("no node type 'reader'; types: author", MissingError, lambda: features["reader", "x", None]),
        ("no node type 'None'", MissingError, lambda: features[None, "x", None]),
        ("'venue' has no tensor 'x'; tensors: n_id", MissingError, lambda: features["venue", "x", None]),
        ("entry 1 is 200; expected original ids of 'paper', 0 .. 199", InputError,
         lambda: features["paper", "x", torch.tensor([0, 200])]),
        ("expected ranks of 'paper'", InputError, lambda: layout.pyg_stores("rank")[0]["paper", "y", -1]),
        ("expected a mask of shape", InputError, lambda: features["paper", "x", torch.ones(3, dtype=torch.bool)]),
        ("stored as csc, found a request for coo; graph_store.coo", InputError,
         lambda: graph.get_edge_index(WRITES, "coo")),
        ("no single relation .*'reads'", MissingError,
         lambda: graph.get_edge_index(("author", "reads", "paper"), "csc")),
        ("the type is missing", InputError, lambda: sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(3)))),
        ("input nodes: entry 0 is 200", InputError,
         lambda: sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([200]), None, "paper"))),
        ("seed_time: has no effect without time", InputError,
         lambda: sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(3), torch.arange(3), "paper"))),
        ("link_time: needs time", InputError, lambda: sampler.sample_from_edges(
            EdgeSamplerInput(None, *pairs, time=torch.arange(2), input_type=WRITES))),
        ("triplets have no labels", InputError, lambda: sampler.sample_from_edges(
            EdgeSamplerInput(None, *pairs, label=torch.ones(2), input_type=WRITES), NegativeSampling("triplet"))),
        ("dst_weight: expected one weight for each of 200 nodes", InputError, lambda: sampler.sample_from_edges(
            EdgeSamplerInput(None, *pairs, input_type=WRITES), NegativeSampling("triplet", dst_weight=torch.ones(3)))),
        ("no single relation", MissingError,
         lambda: sampler.sample_from_edges(EdgeSamplerInput(None, *pairs, input_type=("author", "reads", "book")))),
        ("ids: expected original .* or rank, found 'old'", InputError, lambda: layout.pyg_stores("old")),
        ("ids: expected original .* or rank, found 'old'", InputError, lambda: layout.pyg_sampler([2], ids="old")),
        ("sampled only by the edge data 'weight', found 'time'", InputError,
         lambda: layout.pyg_sampler([2], weight_attr="time")),
        ("num_neighbors: expected one entry per hop", InputError, lambda: layout.pyg_sampler([])),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            ask()


def test_features_of_one_dimension_keep_their_shape(tmp_path):
    import tiering

    source = Data(
        x=torch.arange(100), edge_index=torch.randint(0, 100, (2, 500)), edge_attr=torch.arange(500.0), num_nodes=100
    )
    graph = tiering.import_graph(source, tmp_path / "graph", edge_ids=True)
    assert graph.feature_table("node").ndim == graph.edge_data()["feat"].ndim == 1
    tiering.score_graph(graph, tmp_path / "scores", "degree")
    for features in (False, True):
        reordered = tiering.reorder_graph(graph, tmp_path / "scores", tmp_path / f"r{features}", features=features)
        for tiers in ({}, {"edge_features": "auto"}):
            out = tmp_path / f"layout{features}{len(tiers)}"
            layout = tiering.open(tiering.write_layout(reordered, out, **tiers).path)
            batch = next(iter(layout.pyg_loader(None, [5], batch_size=20)))
            assert torch.equal(batch.x, batch.n_id) and torch.equal(batch.edge_attr, batch.e_id.float())
            store = layout.pyg_stores()[0]
            assert store[None, "x", None].shape == store.get_tensor_size(group_name=None, attr_name="x") == (100,)


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
@GRAPHS
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "filter_per_worker": False}])
def test_edge_data_come_with_the_batches(kit, build, make, workers):
    data = getattr(kit, make)(edge_ids=True)
    layout, batches = build(data), 0
    for batch in node_loader(layout, make, **workers):
        assert_of_source(data, layout, batch)
        for relation, store in parts(batch)[1].items():
            assert ("edge_weight" in store) == (relation in data.weights)
            assert isinstance(batch, Data) or "num_nodes" not in store._mapping
        batches += 1
    both = node_loader(layout, make, transform_sampler_output=lambda out: out.to_bidirectional(), **workers)
    assert batches == 4 and not any("edge_weight" in store for store in parts(next(iter(both)))[1].values())
    bare = NodeLoader(layout.pyg_stores(), layout.pyg_sampler([2], edge_attrs=[]), input_nodes=both.input_nodes)
    assert not any("edge_weight" in store for store in parts(next(iter(bare)))[1].values())


def test_stores_and_sampler_of_a_graph_of_one_type_as_hetero_data(kit, build):
    data = kit.small_graph(edge_ids=True)
    layout = build(data)
    stores, sampler = layout.pyg_stores(hetero=True), layout.pyg_sampler([4, 3], hetero=True)
    for chosen in (stores, pickle.loads(pickle.dumps(stores))):
        batch = next(iter(NodeLoader(chosen, sampler, input_nodes=("node", torch.arange(30)), batch_size=30)))
        assert isinstance(batch, HeteroData) and batch["node"].input_id.tolist() == list(range(30))
        assert torch.equal(
            batch["node", "node"].edge_weight, torch.from_numpy(data.weights[LOOP])[batch["node", "node"].e_id]
        )


def test_links_over_the_stores_are_the_edges_of_the_source(kit, build):
    data = kit.hetero_graph(edge_ids=True)
    layout = build(data)
    stores, ends = layout.pyg_stores(), np.stack(data.edges[WRITES])
    row, col, _ = stores[1].coo([WRITES])
    np.testing.assert_array_equal(torch.stack((row[WRITES], col[WRITES])).numpy(), ends)
    for named in (WRITES, (WRITES, None)):
        links = LinkLoader(stores, layout.pyg_sampler([2]), named, batch_size=50, shuffle=True)
        batch = next(iter(links))
        for end, t in enumerate(WRITES[::2]):
            ids = batch[t].n_id[batch[WRITES].edge_label_index[end]].numpy()
            np.testing.assert_array_equal(ids, ends[end][batch[WRITES].input_id.numpy()])
