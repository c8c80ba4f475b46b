"""Adapted batches are the same wherever rows come from, in whatever order stages run, and end as native ones do."""

from __future__ import annotations

import threading
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from tiering.errors import InputError, MissingError
from tiering.loader.batches.pipeline import StageError
from tiering.sampling import Negatives

pytest.importorskip("torch_geometric")

from pyg_batches import same

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 32, "seed": 7}


@pytest.mark.parametrize("options", [{"window": 1}, {"window": 3}, {"memory": "auto"}, {"workers": 4, "prefetch": 5}])
def test_rows_read_ahead_in_memory_or_batch_by_batch(kit, build, options):
    layout = build(kit.small_graph(images=3, edge_ids=True))
    expected = list(layout.pyg_loader(**OPTIONS, memory="tiers").epoch(2))
    found = list(layout.pyg_loader(**OPTIONS, **options).epoch(2))
    assert len(found) == len(expected) and all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_a_transform_that_fails_is_told_in_the_loop(kit, build):
    def refuse(data):
        raise InputError(f"no {data.num_nodes} nodes")

    loader = build(kit.small_graph()).pyg_loader(**OPTIONS, transform=refuse)
    with pytest.raises(StageError, match="epoch 0, batch 0") as told:
        next(iter(loader))
    assert isinstance(told.value.__cause__, InputError)
    assert not [t for t in threading.enumerate() if t.name.startswith("tiering")]


@pytest.mark.parametrize("method", ["pyg_loader", "dgl_loader"])
def test_samplers_of_our_own(kit, build, method):
    if method == "dgl_loader":
        pytest.importorskip("dgl")
    layout = build(kit.small_graph())
    make = getattr(layout, method)
    hops = {"num_neighbors" if method == "pyg_loader" else "fanouts": [20, 20]}
    batch = next(iter(make(sampler="ladies", batch_size=16, **hops)))
    weight = batch.edge_weight if method == "pyg_loader" else batch[2][0].edata["weight"]
    native = next(iter(layout.loader(sampler="ladies", batch_size=16, fanouts=[20, 20], frontier="new")))
    if method == "pyg_loader":
        assert torch.equal(weight, torch.cat([hop["node", "to", "node"] for hop in native.weights]))
    assert weight.numel() and (weight > 0).all()
    with pytest.raises(InputError, match="replace, sampler: each chooses how neighbors are sampled; omit one of them"):
        make(sampler="ladies", replace=True, **hops)
    with pytest.raises(TypeError, match="unexpected keyword argument 'frontier'"):
        make(frontier="all", **hops)


PYG_WORDS = {
    "num_workers": 2, "persistent_workers": True, "pin_memory": True, "prefetch_factor": 2, "directed": True,
    "disjoint": False, "subgraph_type": "directional", "is_sorted": True, "filter_per_worker": True, "time_attr": None,
    "input_time": None, "edge_label_time": None, "worker_init_fn": None, "generator": None, "batch_sampler": None,
    "transform_sampler_output": None, "custom_cls": None,
}  # fmt: skip


def test_keywords_of_pyg_that_change_nothing(kit, build):
    from torch_geometric.sampler.base import SubgraphType

    layout = build(kit.small_graph())
    expected = list(layout.pyg_loader(**OPTIONS))
    loader = layout.pyg_loader(**OPTIONS, **PYG_WORDS)
    assert loader.options.pipeline.workers == 2
    assert all(same(a, b) for a, b in zip(loader, expected, strict=True))
    assert len(layout.pyg_loader(**OPTIONS, subgraph_type=SubgraphType.directional, num_workers=0)) == len(expected)
    negatives = {"neg_sampling": {"mode": "binary", "amount": 2.0}}, {"neg_sampling_ratio": 2.0}
    both = [layout.pyg_link_loader(**OPTIONS, **words) for words in negatives]
    assert all(same(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize(("method", "word", "reason"), [
    ("pyg_loader", {"generator": torch.Generator()}, r"expected None, found .*: use `seed` for the order"),
    (
        "pyg_link_loader",
        {"input_time": torch.zeros(3)},
        r"expected None, found .*: give the times of links as edge_label_time",
    ),
    ("dgl_loader", {"exclude": "self"}, r"expected None, found 'self': import the dataset without the edges"),
    ("dgl_loader", {"gpu_cache": {"node": {"feat": 9}}}, r"expected None or \{\}, found .*gpu tier is the cache"),
])  # fmt: skip
def test_keywords_that_would_change_something(kit, build, method, word, reason):
    if method == "dgl_loader":
        pytest.importorskip("dgl")
    (name,) = word
    with pytest.raises(InputError, match=rf"^{method}\({name}=\.\.\.\): .*{reason}"):
        getattr(build(kit.small_graph()), method)(**word)


def test_keywords_that_nobody_knows_are_refused_by_the_function_called(kit, build):
    layout = build(kit.small_graph())
    for method in ("pyg_loader", "pyg_link_loader", "loader", "link_loader"):
        with pytest.raises(TypeError, match=rf"^{method}\(\) got an unexpected keyword argument 'batchsize'"):
            getattr(layout, method)(batchsize=3)
    with pytest.raises(InputError, match="pyg_loader: num_workers and workers mean the same; omit one of them"):
        layout.pyg_loader(num_workers=2, workers=3)


def test_keywords_of_dgl(kit, build):
    pytest.importorskip("dgl")
    words = {"num_workers": 3, "use_uva": True, "use_ddp": False, "gpu_cache": {}, "prefetch_node_feats": ["feat"]}
    loader = build(kit.small_graph()).dgl_loader(batch_size=16, **words, exclude=None, output_device=None)
    assert loader.options.pipeline.workers == 3
    assert loader.options.device.index is None


def test_the_pages_name_every_keyword(repository):
    from tiering.loader.adapters import DGL, PYG_LINKS

    for page, table in (("pyg", PYG_LINKS), ("dgl", DGL)):
        text = (repository / "docs" / f"{page}.md").read_text()
        assert [name for name in table if f"`{name}`" not in text] == [], page


def test_no_nodes_named_are_all_nodes_in_the_order_of_the_source(kit, build):
    layout, words = build(kit.small_graph()), {"shuffle": False, "batch_size": 7}
    every = np.arange(layout.num_nodes())
    ranks = np.concatenate([batch.seeds for batch in layout.loader(None, fanouts=[2], **words)])
    np.testing.assert_array_equal(ranks, every)  # of this package's own loader that of the layout
    for first in ({"split": None}, {"input_nodes": None}, {"input_nodes": "node"}):
        batches = list(layout.pyg_loader(**first, num_neighbors=[2], **words))
        np.testing.assert_array_equal(np.concatenate([b.n_id[: b.batch_size] for b in batches]), every)
        np.testing.assert_array_equal(np.concatenate([b.input_id for b in batches]), every)
    if find_spec("dgl") is not None:
        for first in ({"split": None}, {"indices": None}, {"indices": {"node": None}}):
            outputs = [out for _, out, _ in layout.dgl_loader(**first, fanouts=[2], **words)]
            np.testing.assert_array_equal(np.concatenate(outputs), every)
    assert len(layout.pyg_loader().targets) == layout.split("train").size
    with pytest.raises(
        InputError, match=r"split: expected the name of a split, found \[15, 10\]; give neighbors per hop second"
    ):
        layout.pyg_loader([15, 10])
    with pytest.raises(MissingError, match=r"no split 'valid'; splits: .*; did you mean 'val'\?"):
        layout.pyg_loader("valid")


def test_negatives_by_mode_amount_or_mapping(kit, build):
    layout = build(kit.small_graph())
    options = {"batch_size": 16, "fanouts": [2], "seed": 1}
    expected = next(iter(layout.link_loader(negatives=Negatives(), **options)))
    for negatives in ("binary", 1, {"mode": "binary"}):
        found = next(iter(layout.link_loader(negatives=negatives, **options)))
        assert torch.equal(found.links.src, expected.links.src) and torch.equal(found.links.dst, expected.links.dst)
    with pytest.raises(InputError, match="negatives: expected mode binary or triplet, found 'unary'"):
        layout.link_loader(negatives="unary", **options)
    with pytest.raises(InputError, match="negatives: expected a mode, an amount or a mapping of both, found True"):
        layout.link_loader(negatives=True, **options)


def test_words_of_other_libraries(layout):
    """A graph in the place of the split, and the other spelling of neighbors."""
    from torch_geometric.data import Data, HeteroData

    for graph in (Data(), HeteroData()):
        with pytest.raises(InputError, match=r"found a graph \((Hetero)?Data\); the graph is in the layout"):
            layout.pyg_loader(graph, [5])
    spelled = layout.pyg_loader("train", num_neighbours=[3, 2], batch_size=4)
    usual = layout.pyg_loader("train", num_neighbors=[3, 2], batch_size=4)
    assert next(iter(spelled)).n_id.tolist() == next(iter(usual)).n_id.tolist()
