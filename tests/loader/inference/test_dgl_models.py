"""Convolutions of DGL over many blocks against one forward; those that blocks cannot serve are refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from inferred import RELATION, all_edges, all_rows, edge_data, odd_graph, with_edge_data

from tiering import memory
from tiering.errors import InputError
from tiering.loader.inference.frameworks import dgl_layers
from tiering.loader.inference.identity import identify_layers

dgl = pytest.importorskip("dgl")
nn = dgl.nn.pytorch


def mlp(rows, columns):
    return torch.nn.Sequential(torch.nn.Linear(rows, columns), torch.nn.ReLU())


EQUAL = {
    "GraphConv": lambda: [
        *(nn.GraphConv(12, 5, norm=norm) for norm in ("both", "left", "right", "none")),
        nn.GraphConv(12, 14, norm="both", bias=False),
    ],
    "SAGEConv": lambda: [nn.SAGEConv(12, 5, aggregator) for aggregator in ("mean", "gcn", "pool", "lstm")],
    "GATConv": lambda: [nn.GATConv(12, 5, 2), nn.GATConv(12, 5, 2, residual=True)],
    "GATv2Conv": lambda: [nn.GATv2Conv(12, 5, 2)],
    "GINConv": lambda: [nn.GINConv(mlp(12, 5), aggregator) for aggregator in ("sum", "max", "mean")],
    "EdgeConv": lambda: [nn.EdgeConv(12, 5)],
    "AGNNConv": lambda: [nn.AGNNConv()],
    "EdgeGATConv": lambda: [nn.EdgeGATConv(12, 3, 5, 2)],
    "NNConv": lambda: [nn.NNConv(12, 5, torch.nn.Linear(3, 60))],
}


@pytest.fixture(autouse=True)
def keep_garbage(monkeypatch):
    """Collecting what torch has loaded takes most of the time of so small a run."""
    monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(scope="module")
def opened(kit, tmp_path_factory):
    """A layout of 300 nodes with edge data, each of which has a self loop: DGL refuses nodes without in-edges."""
    data = odd_graph(kit, 300)
    loops = np.arange(300)
    data.edges = {RELATION: tuple(np.concatenate([ends, loops]) for ends in data.edges[RELATION])}
    with kit.write_layout(tmp_path_factory.mktemp("dgl") / "layout", with_edge_data(data)) as layout:
        yield layout


@pytest.mark.parametrize("name", EQUAL)
def test_convolutions(opened, tmp_path, name):
    (x,), (edges,) = all_rows(opened).values(), all_edges(opened).values()
    graph = dgl.graph((edges[0], edges[1]), num_nodes=300)
    torch.manual_seed(1)
    for number, conv in enumerate(EQUAL[name]()):
        conv.eval()
        for weighted in (True, False):
            given, before = {}, vars(conv).copy()
            if weighted and name in ("GraphConv", "SAGEConv", "GATConv", "GINConv"):
                given["edge_weight"] = edge_data(opened, "weight")
            elif name in ("EdgeGATConv", "NNConv"):
                given["edge_feat" if name == "EdgeGATConv" else "efeat"] = edge_data(opened, "feat")
            if name == "SAGEConv" and number == 3:
                given = {}  # DGL's lstm takes no weights
            if not weighted and given:
                continue
            with torch.no_grad():
                expected = conv(graph, x, **given).flatten(1).numpy()
            data = bool(given)
            found = opened.dgl_inference([conv], tmp_path / f"{number}{weighted}", edges=600, edge_data=data).numpy()
            assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max(), (name, number, weighted)
            assert vars(conv) == before


def test_a_hub_alone_in_its_block(opened, tmp_path):
    """Destinations that are added have in-edges, as DGL demands."""
    conv = nn.GraphConv(12, 5).eval()
    found = [opened.dgl_inference([conv], tmp_path / str(edges), edges=edges).numpy() for edges in (60, 50_000)]
    np.testing.assert_allclose(*found, 1e-5, 1e-6)


def test_several_types(kit, build, tmp_path):
    """Of which one has no features; relations that share a name would get their own weights."""
    data = kit.hetero_graph()
    data.nodes["author"].table, data.nodes["author"].dtype = (
        np.random.default_rng(0).random((120, 5), np.float32),
        "float32",
    )
    layout = build(data)
    relations = layout.artifact.graph.relations
    widths, counts = {"paper": 6, "author": 5}, {t: layout.num_nodes(t) for t in layout.node_types}
    convs = {r[1]: nn.SAGEConv((widths[r[0]], widths[r[2]]), 4, "mean") for r in relations if r[0] in widths}
    conv = nn.HeteroGraphConv({**convs, "publishes": nn.SAGEConv((1, 6), 4, "mean")}).eval()
    x = {t: rows.float() for t, rows in all_rows(layout).items()}
    edges = {r: (pairs[0], pairs[1]) for r, pairs in all_edges(layout).items()}
    graph, data = dgl.heterograph(edges, counts), layout.artifact.graph.edge_data
    given = {r[1]: {"edge_weight": torch.from_numpy(np.array(data(r)["weight"]))} for r in relations}
    with torch.no_grad():
        expected = conv(graph, (x, x), mod_kwargs=given)
    found = layout.dgl_inference([conv], tmp_path / "e", edges=200, edge_data=True)
    for t, rows in expected.items():
        np.testing.assert_allclose(found.numpy(t), rows.numpy(), 1e-3, 1e-4)
    bad = nn.HeteroGraphConv({name: nn.GraphConv(4, 4) for name in convs})
    with pytest.raises(InputError, match=r"convolution 0: mods\.\w+ \(GraphConv\) takes out-degrees .*norm='right'"):
        layout.dgl_inference([bad.eval()], tmp_path / "bad")


def test_what_is_refused(kit, build, opened, tmp_path):
    for conv, words in {
        nn.TAGConv(12, 5): "several steps",
        nn.SGConv(12, 5, cached=True): "set cached=False",
        nn.ChebConv(12, 5, 2): "several steps",
        nn.APPNPConv(3, 0.5): "several steps",
    }.items():
        with pytest.raises(InputError, match=rf"^convolution 0: the module \(\w+\) .*{words}"):
            opened.dgl_inference([conv.eval()], tmp_path / "e")
    own = nn.GraphConv(12, 5).eval()
    with pytest.raises(InputError, match=r"^layer 0: own \(GraphConv\) takes out-degrees from the block"):
        opened.inference([lambda block, x: own(block, x)], tmp_path / "e")
    with pytest.raises(InputError, match="EdgeGATConv needs edge_feat, but the layout has no edge data 'feat'"):
        build(odd_graph(kit, 300)).dgl_inference([nn.EdgeGATConv(12, 3, 5, 2).eval()], tmp_path / "e")


def test_convolutions_of_dgl_can_be_compared(kit, build):
    graph = build(odd_graph(kit)).artifact.graph
    for name, options in (("GraphConv", ()), ("SAGEConv", ("mean",)), ("GATConv", (2,)), ("GATv2Conv", (2,))):
        layers = dgl_layers([getattr(nn, name)(4, 4, *options).eval()] * 2, graph, torch.tanh)
        assert [one.unknown for one in identify_layers(layers)] == [[], []]
    first, second = (identify_layers(dgl_layers([nn.SAGEConv(4, 4, kind).eval()], graph)) for kind in ("mean", "gcn"))
    assert first[0].code != second[0].code
