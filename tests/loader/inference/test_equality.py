"""Inference equals the same layers over the whole graph in memory; its bits are the same for any memory and threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from inferred import RelationalSage, Sage, all_edges, all_rows, digest, layout_of, mean, odd_graph
from peaks import settle
from tight_memory import spare

import tiering
from tiering.errors import MissingError
from tiering.loader import loader
from tiering.loader.inference import Layer, run
from tiering.loader.memory import decide_memory


def assert_close(found, expected):
    torch.testing.assert_close(torch.as_tensor(np.array(found)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("edges", [200, 50_000])
def test_layers_by_hand(kit, build, tmp_path, edges):
    layout, model = build(odd_graph(kit, images=2)), Sage(12, 20, 5)
    embeddings = layout.inference(model.layers, tmp_path / "e", edges=edges)
    assert_close(embeddings.numpy(), model.whole(layout))
    assert embeddings.nodes() is None and len(embeddings) == 900 and embeddings.entry().dim == 5


def test_a_graph_without_edges_and_one_of_a_few_nodes(kit, build, tmp_path):
    for number, count in enumerate((1, 15, 40)):
        data = odd_graph(kit, 40)
        data.nodes["node"] = kit.Nodes(count, data.nodes["node"].table[:count])
        none = np.empty(0, np.int64)
        data.edges = dict.fromkeys(data.edges, (none, none))
        layout, model = build(data), Sage(12, 20, 5)
        assert_close(layout.inference(model.layers, tmp_path / str(number)).numpy(), model.whole(layout))


@pytest.mark.parametrize("name", ["cora", "dblp-citation"])
def test_real_graphs(shared_data, tmp_path, name):
    layout = layout_of(shared_data / name, tmp_path)
    model = Sage(layout.artifact.type_layout(layout.node_types[0]).dim, 16, 4)
    layout.inference(model.layers, tmp_path / "e", edges=3000)
    embeddings, expected = tiering.open(tmp_path / "e"), model.whole(layout)
    assert_close(embeddings.numpy(), expected)
    old = np.random.default_rng(0).integers(0, len(expected), 50)
    assert_close(embeddings.gather_numpy(old, original=True), expected[layout.old_to_new()[old]])


@pytest.mark.parametrize("model", ["SAGEConv", "GATConv", "GraphSAGE", "GAT"])
def test_pyg(kit, build, tmp_path, model):
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(3)
    layout = build(odd_graph(kit))
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    if model in ("GraphSAGE", "GAT"):
        net = getattr(nn, model)(12, 16, num_layers=2, out_channels=4, dropout=0.5, norm="batch").eval()
        found = layout.pyg_inference(net, tmp_path / "e", edges=500)
        expected = net(x, edges)
    else:
        convs = [getattr(nn, model)(12, 16).eval(), getattr(nn, model)(16, 4).eval()]

        def layer(conv):
            return lambda block, x: conv((x, x[: block.num_dst]), block.edge_index, size=(len(x), block.num_dst))

        found = layout.inference([layer(conv) for conv in convs], tmp_path / "e", edges=500)
        expected = convs[1](convs[0](x, edges), edges)
    assert_close(found.numpy(), expected.detach())


def test_several_types_of_which_one_has_no_features(kit, build, tmp_path):
    """Venues get rows from nowhere, papers and authors from each other; authors are bfloat16."""
    layout = build(kit.hetero_graph())
    model = RelationalSage(layout.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
    embeddings = layout.inference([model.layer(0), model.layer(1)], tmp_path / "e", edges=300)
    expected = model.whole(layout)
    assert embeddings.node_types == sorted(expected) == ["author", "paper"]
    for t, rows in expected.items():
        assert_close(embeddings.numpy(t), rows)
    with pytest.raises(MissingError, match="give the node type; types: author, paper"):
        embeddings[[0]]


def test_memory_and_threads_do_not_change_a_bit(kit, build, tmp_path, monkeypatch):
    """All rows in memory by one thread, and through a buffer by two."""
    layout, model = build(odd_graph(kit, 30_000, 1024)), Sage(1024, 32, 8)
    loaders, threads = [], torch.get_num_threads()
    monkeypatch.setattr(run, "Loader", lambda *a: loaders.append(loader.Loader(*a)) or loaders[-1])
    digests, ahead = set(), []
    try:
        for number, preload in enumerate((True, False)):
            torch.set_num_threads(number + 1)
            settle()
            if not preload:
                monkeypatch.setattr(loader, "decide_memory", lambda *a: replace(decide_memory(*a), preload=False))
            options = {"memory": spare((500 if preload else 300) << 20).limit, "edges": 600}
            digests.add(digest(layout.inference(model.layers, tmp_path / str(number), **options)))
            ahead.append([made.lookahead is not None for made in loaders])
            loaders.clear()
    finally:
        torch.set_num_threads(threads)
    assert len(digests) == 1 and not any(ahead[0]) and any(ahead[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("dim", [1, 7])
def test_tables_of_fewer_bits(kit, build, tmp_path, dtype, dim):
    """Each layer is rounded once, as it is written; rows of odd widths are padded."""
    layout, model = build(odd_graph(kit)), Sage(12, 9, dim)
    embeddings = layout.inference(model.layers, tmp_path / "e", dtype=dtype)
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    kind = getattr(torch, dtype)
    with torch.inference_mode():
        for number in range(2):
            x = model.step(number, x, edges, len(x)).to(kind).float()
    rows = torch.from_numpy(embeddings.numpy().copy().view(np.int16)).view(kind).float()
    torch.testing.assert_close(rows, x, rtol=2 * torch.finfo(kind).eps, atol=1e-3)
    assert embeddings.entry().row_bytes == -(-2 * dim // 4) * 4 and rows.shape == (900, dim)


def test_what_is_done_as_rows_are_written_and_layers_without_neighbors(kit, build, tmp_path):
    layout, model = build(odd_graph(kit)), Sage(12, 20, 5)
    first, second = model.layers
    narrow, widen = torch.full((20, 3), 0.1), torch.full((3, 20), 0.2)
    layers = [
        Layer(lambda block, x: x * 2, neighbors=False),
        first,
        Layer(lambda block, x: second(block, x @ widen), before=lambda rows: rows @ narrow),
        Layer(lambda block, x: x + len(block.edges), neighbors=False),
    ]
    found = layout.inference(layers, tmp_path / "e", edges=700)
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    with torch.inference_mode():
        hidden = model.step(0, x * 2, edges, len(x))
        assert_close(found.numpy(), model.step(1, hidden @ narrow @ widen, edges, len(x)))


def test_a_part_of_the_neighbors(kit, build, tmp_path):
    """A mean of drawn neighbors is of theirs: between the least and the largest; the same at each run."""
    layout = build(odd_graph(kit))
    degrees = []

    def count(block, x):
        degrees.extend(torch.bincount(block.edge_index[1], minlength=block.num_dst).tolist())
        return mean(x, block.edge_index, block.num_dst)

    found = [layout.inference([Layer(count, fanouts=3)], tmp_path / str(k)).numpy().copy() for k in range(2)]
    whole = np.bincount(all_edges(layout)["node", "to", "node"][1], minlength=900)
    assert degrees[-900:] == np.minimum(whole, 3).tolist()
    np.testing.assert_array_equal(*found)
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    few = whole <= 3
    assert_close(found[0][few], mean(x, edges, 900)[few])


def test_adjacency_is_the_mean_too(kit, build, tmp_path):
    layout = build(odd_graph(kit))
    function = lambda block, x: torch.sparse.mm(block.adjacency(), x, "mean")  # noqa: E731
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    assert_close(layout.inference([function], tmp_path / "e", edges=300).numpy(), mean(x, edges, 900))


def test_coded_tables(tiny_dataset, tmp_path):
    """Rows that int8 stores arrive decoded."""
    layout, model = layout_of(tiny_dataset, tmp_path, dtype="int8"), Sage(6, 8, 3)
    assert layout.artifact.type_layout(layout.node_types[0]).codec == "int8"
    assert_close(layout.inference(model.layers, tmp_path / "e").numpy(), model.whole(layout))
