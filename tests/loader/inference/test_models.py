"""Models of PyG over many blocks against one forward; those that blocks cannot serve are refused by name."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from inferred import all_edges, all_rows, edge_data, odd_graph, with_edge_data

from tiering import memory
from tiering.errors import InputError
from tiering.loader.inference import Layer

nn = pytest.importorskip("torch_geometric.nn")
DEGREES = torch.bincount(torch.tensor([0, 1, 2, 2, 3, 5, 5, 9, 300]))
PNA = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": DEGREES}
EQUAL = {
    "GCN": [
        {}, {"improved": True}, {"add_self_loops": False}, {"bias": False}, {"normalize": False}, {"aggr": "max"},
        {"improved": True, "edge_data": False}, {"edge_data": False}, {"add_self_loops": False, "edge_data": False},
    ],
    "GraphSAGE": [
        {"aggr": "mean"}, {"aggr": ["mean", "max", "min", "sum", "var", "std", "softmax"]},
        {"project": True}, {"normalize": True}, {"root_weight": False},
    ],
    "GAT": [
        {}, {"v2": True}, {"heads": 2}, {"add_self_loops": False}, {"residual": True}, {"edge_dim": 3},
        {"edge_dim": 3, "v2": True, "heads": 2}, {"edge_dim": 3, "fill_value": "max"},
        {"edge_dim": 3, "edge_data": False},
    ],
    "GIN": [{}, {"train_eps": True, "norm": "batch"}],
    "PNA": [PNA, {**PNA, "edge_dim": 3}],
    "EdgeCNN": [{}, {"aggr": "mean", "norm": "batch"}],
}  # fmt: skip
NORMS = {
    "BatchNorm": [{"norm": "batch"}],
    "LayerNorm(mode='node')": [{"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}],
    "InstanceNorm(track_running_stats=True)": [{"norm": "instance_norm", "norm_kwargs": {"track_running_stats": True}}],
    "DiffGroupNorm": [{"norm": "diff_group_norm", "norm_kwargs": {"groups": 3}}],
}
OTHERS = [
    {"act": "elu", "act_first": True, "norm": "batch"}, {"act": None}, {"act": "PReLU"}, {"dropout": 0.5},
    {"jk": "last", "norm": "batch"},
]  # fmt: skip
REFUSED = {
    "GraphNorm": {"norm": "graph_norm"},
    "LayerNorm(mode='graph')": {"norm": "layer_norm"},
    "InstanceNorm": {"norm": "instance_norm"},
    "PairNorm": {"norm": "pair_norm"},
    "MeanSubtractionNorm": {"norm": nn.MeanSubtractionNorm()},
    "GraphSizeNorm": {"norm": nn.GraphSizeNorm()},
    "SAGEConv(aggr='lstm')": {"aggr": "lstm"},
    "SAGEConv(aggr='median')": {"aggr": "median"},
    "BatchNorm(track_running_stats=False)": {"norm": "batch", "norm_kwargs": {"track_running_stats": False}},
}


@pytest.fixture(autouse=True)
def keep_garbage(monkeypatch):
    """Collecting what torch has loaded takes most of the time of so small a run."""
    monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(scope="module")
def opened(kit, tmp_path_factory):
    """A layout of a graph with edge data: 300 nodes, 4 blocks of 600 edges; closed in the end."""
    with kit.write_layout(tmp_path_factory.mktemp("models") / "layout", with_edge_data(odd_graph(kit, 300))) as layout:
        yield layout


def forward(model, layout, data=True):
    """One forward of the whole graph, with the edge data that the model takes."""
    (x,), (edges,) = all_rows(layout).values(), all_edges(layout).values()
    taken = {}
    if data and model.supports_edge_weight:
        taken["edge_weight"] = edge_data(layout, "weight")
    if data and model.supports_edge_attr and model.convs[0].edge_dim:
        taken["edge_attr"] = edge_data(layout, "feat")
    with torch.no_grad():
        return model(x, edges, **taken)


def made(name, options, layers=2):
    """A model whose statistics and parameters are no zeros and ones."""
    torch.manual_seed(3)
    model = getattr(nn, name)(12, 6, layers, 6, **options)
    for value in [*model.parameters(), *model.buffers()]:
        if value.is_floating_point() and value.dim() == 1:
            value.data.uniform_(0.5, 1.5)
    return model.eval()


def assert_equal(layout, out, name, options):
    options = dict(options)
    data = options.pop("edge_data", True)
    model = made(name, options)
    before = [vars(conv).copy() for conv in model.convs]
    found = layout.pyg_inference(model, out, edges=600, edge_data=data).numpy()
    expected = forward(model, layout, data).numpy()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max(), (name, options)
    assert [vars(conv) for conv in model.convs] == before


@pytest.mark.parametrize("name", EQUAL)
def test_convolutions(opened, tmp_path, name):
    for number, options in enumerate(EQUAL[name]):
        assert_equal(opened, tmp_path / str(number), name, options)


@pytest.mark.parametrize("name", [*NORMS, "others"])
def test_norms_and_what_else_a_model_has(opened, tmp_path, name):
    for number, options in enumerate(NORMS.get(name, OTHERS)):
        assert_equal(opened, tmp_path / str(number), ("GCN", "GraphSAGE")[number % 2], options)


@pytest.mark.parametrize("name", REFUSED)
def test_norms_over_all_nodes_are_refused(opened, tmp_path, name):
    path = r"convs\.0\.aggr_module" if "aggr" in REFUSED[name] else r"norms\.0"
    with pytest.raises(InputError, match=rf"^model: {path}.* \(.*\) (normalizes|has no running|needs more)"):
        opened.pyg_inference(made("GraphSAGE", REFUSED[name]), tmp_path / "e")
    assert not list(tmp_path.glob("*e*"))


def test_convolutions_that_a_block_cannot_serve_are_refused(opened, tmp_path):
    """Inside a caller's function, too; a cached one is not touched."""
    cached = made("GCN", {"cached": True})
    functions = {
        "normalize=False and `block.edge_weight`": nn.GCNConv(12, 4),
        "takes degrees of sources": nn.GCN2Conv(12, 0.5),
        "several steps": nn.TAGConv(12, 4),
        "in-edges of a block's nodes": nn.SAGEConv(12, 4, flow="target_to_source"),
        "normalizes over all nodes": torch.nn.Sequential(torch.nn.Linear(12, 4), nn.PairNorm()),
    }
    for words, own in functions.items():
        own.eval()
        with pytest.raises(InputError, match=rf"^layer 0: own.*{re.escape(words)}"):
            opened.inference([lambda block, x: own(x, block.edge_index)], tmp_path / "e")  # noqa: B023
    with pytest.raises(InputError, match=r"^model: convs\.0 \(GCNConv\) keeps the edges .*set cached=False"):
        opened.pyg_inference(cached, tmp_path / "e")
    assert all(conv._cached_edge_index is None and conv.cached for conv in cached.convs)


def test_a_model_for_edge_features_needs_them(kit, build, tmp_path):
    layout, model = build(odd_graph(kit, 300)), made("GAT", {"edge_dim": 3})
    with pytest.raises(InputError, match=r"convs\.0 \(GATConv\) was made for features of edges \(edge_dim=3\).*none"):
        layout.pyg_inference(model, tmp_path / "e")
    found = layout.pyg_inference(model, tmp_path / "e", edge_data=False, edges=300).numpy()
    np.testing.assert_allclose(found, forward(model, layout, data=False).numpy(), 1e-5, 1e-5)


def test_functions_read_edge_data(opened, tmp_path):
    """Only where they ask for it; blocks that are padded and rows of a part of the nodes have theirs."""
    first, last = nn.SAGEConv(12, 5, aggr="add").eval(), nn.GraphConv(5, 4).eval()
    gate = torch.nn.Linear(3, 1).eval()

    def layer(block, x):
        return last(x, block.edge_index, gate(block.edge_attr).squeeze(1) * block.edge_weight)[: block.num_dst]

    functions = [lambda block, x: first(x, block.edge_index)[: block.num_dst], layer]
    (x,), (edges,) = all_rows(opened).values(), all_edges(opened).values()
    with torch.no_grad():
        weights = gate(edge_data(opened, "feat")).squeeze(1) * edge_data(opened, "weight")
        expected = last(first(x, edges), edges, weights).numpy()
    nodes = np.arange(0, 300, 7)
    for edge_count, asked in ((90, None), (300, nodes)):
        out = tmp_path / f"{edge_count} {asked is None}"
        found = opened.inference(functions, out, edges=edge_count, nodes=asked).numpy()
        rows = slice(None) if asked is None else np.sort(opened.old_to_new()[nodes])
        np.testing.assert_allclose(found, expected[rows], 1e-4, 1e-4)
    bare = Layer(lambda block, x: x[: block.num_dst] * (2 if block.edge_weight is None else 1), edge_data=False)
    assert (opened.inference([bare], tmp_path / "bare").numpy() == 2 * x.numpy()).all()


def test_the_page_says_which_models_are_equal_and_which_are_refused(repository):
    page = (repository / "docs" / "inference.md").read_text()
    rows = re.findall(r"^\| (.*) \| (equal|refused)", page, re.MULTILINE)
    said = {name: verdict for names, verdict in rows for name in re.findall(r"`([^`]+)`", names)}
    expected = {**dict.fromkeys([*EQUAL, *NORMS], "equal"), **dict.fromkeys(REFUSED, "refused")}
    assert {name: said.get(name) for name in expected} == expected
    assert said["GCNConv(cached=True)"] == said["TAGConv"] == "refused"
