"""Batches for PyG and DGL on a GPU: every attribute as the host makes it, whoever samples."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch_geometric.typing
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

import tiering
from tiering import pipeline

OPTIONS = {"batch_size": 32, "seed": 7}


def assert_equal(found, expected, where: str = "batch") -> None:
    """The same values in the same structure."""
    assert type(found) is type(expected), where
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_equal(found[key], expected[key], f"{where}, {key}")
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and found.shape == expected.shape, where
        bits = [t.reshape(-1).view(torch.uint8) for t in (found, expected) if t.numel()]  # NaN is NaN
        assert all(torch.equal(bits[0], other) for other in bits[1:]), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("sample_on", ["gpu", "cpu"])
@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
def test_pyg(gpu, kit, build, make, sample_on):
    layout = build(getattr(kit, make)(edge_ids=True))
    there = layout.pyg_loader(num_neighbors=[4, 3], device="cuda", sample_on=sample_on, **OPTIONS)
    here = layout.pyg_loader(num_neighbors=[4, 3], **OPTIONS)
    for found, expected in zip(there, here, strict=True):
        assert isinstance(found, Data) == (make == "small_graph")
        assert_equal(found.to_dict(), expected.to_dict())


@pytest.mark.parametrize("negatives", [None, "binary", "triplet"])
def test_pyg_links(gpu, kit, build, negatives):
    layout = build(kit.hetero_graph())
    options = {"num_neighbors": [3, 2], "edge_label_index": ("paper", "written_by", "author"), **OPTIONS}
    there, here = (
        layout.pyg_link_loader(**options, neg_sampling=negatives, device=device) for device in ("cuda", "cpu")
    )
    for found, expected in zip(there, here, strict=True):
        assert_equal(found.to_dict(), expected.to_dict())


@pytest.mark.parametrize("make", ["small_graph", "hetero_graph"])
def test_dgl(gpu, kit, build, make):
    pytest.importorskip("dgl")
    layout = build(getattr(kit, make)(edge_ids=True))
    there, here = (layout.dgl_loader(fanouts=[3, 4], device=device, **OPTIONS) for device in ("cuda", "cpu"))
    for found, expected in zip(there, here, strict=True):
        assert_equal(found[0], expected[0])
        assert_equal(found[1], expected[1])
        for ours, theirs in zip(found[2], expected[2], strict=True):
            assert ours.num_src_nodes() == theirs.num_src_nodes() and ours.num_dst_nodes() == theirs.num_dst_nodes()
            for relation in theirs.canonical_etypes:
                assert_equal(torch.stack(ours.edges(etype=relation)), torch.stack(theirs.edges(etype=relation)))
                edges = theirs.edges[relation].data
                assert_equal({k: ours.edges[relation].data[k] for k in edges}, {k: edges[k] for k in edges})
            for view in ("srcnodes", "dstnodes"):
                for t in theirs.srctypes:
                    frame = getattr(theirs, view)[t].data
                    assert_equal({k: getattr(ours, view)[t].data[k] for k in frame}, {k: frame[k] for k in frame})


def edge_layout(folder, num_edges=400):
    """A graph with rows of bfloat16 along its edges, some of them in every tier."""
    random = np.random.default_rng(2)
    (folder / "source").mkdir()
    np.save(folder / "source/edge_index.npy", (90 * random.random((2, num_edges)) ** 2).astype(np.int64))
    np.save(folder / "source/node_feat.npy", random.standard_normal((90, 4), dtype=np.float32))
    np.save(folder / "source/train_idx.npy", random.permutation(90)[:64])
    np.save(folder / "source/edge_feat.npy", random.integers(0, 1 << 16, (num_edges, 300)).astype(np.uint16))
    graph = pipeline.import_graph(folder / "source", folder / "graph", edge_ids=True)
    scores = pipeline.score_graph(graph, folder / "scores", "degree")
    reordered = pipeline.reorder_graph(graph, scores, folder / "reordered")
    tiers = {"gpu": "20%", "peer": "1x10%", "cpu": "20%", "ssd": [folder / "ssd"]}
    pipeline.layout(reordered, folder / "layout", **tiers)
    return tiering.open(folder / "layout"), np.load(folder / "source/edge_feat.npy")


@pytest.mark.parametrize("sample_on", ["gpu", "cpu"])
def test_features_of_edges(gpu, tmp_path, sample_on):
    layout, rows = edge_layout(tmp_path)
    with layout:
        table = layout.edge_features(device="cuda")
        assert min(table.placement()[tier]["rows"] for tier in ("gpu", "peer", "cpu", "ssd")) > 0
        ids = layout.graph.edge_data()["edge_ids"]
        positions = np.random.default_rng(0).permutation(len(ids))
        found = table.gather(torch.from_numpy(positions))
        np.testing.assert_array_equal(found.view(torch.uint16).numpy(), rows[ids[positions]])
        for batch in layout.pyg_loader(num_neighbors=[4, 3], device="cuda", sample_on=sample_on, **OPTIONS):
            np.testing.assert_array_equal(batch.edge_attr.view(torch.uint16).numpy(), rows[batch.e_id.numpy()])
        asked = {"fanouts": [4, 3], "edge_features": True, **OPTIONS}
        there = layout.loader(device="cuda", sample_on=sample_on, **asked)
        for ours, theirs in zip(there, layout.loader(**asked), strict=True):
            for hops in zip(ours.edge_features, theirs.edge_features, strict=True):
                assert_equal(*hops)


def kept_by_the_loader(loader):
    """Per batch, where the memory of tensors begins that torch's allocator is told of when the consumer gets it."""
    device = loader._batches.device
    before = 0
    for batch in loader:
        yield batch, {tensor.data_ptr() for tensor in device._alive[before:]}
        before = len(device._alive)


def dense(matrix):
    """Tensors that a sparse matrix is made of."""
    names = {torch.sparse_coo: "_indices _values", torch.sparse_csr: "crow_indices col_indices values"}
    return [getattr(matrix, name)() for name in names.get(matrix.layout, "ccol_indices row_indices values").split()]


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout_of", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_transform_may_make_sparse_tensors_and_tensors_in_other_memory(gpu, kit, build, layout_of):
    def transform(data):
        shape = (len(data.n_id), len(data.n_id))
        matrix = torch.sparse_coo_tensor(data.edge_index, torch.ones(data.edge_index.shape[1]), shape)
        data.adj = matrix if layout_of == torch.sparse_coo else matrix.to_sparse(layout=layout_of)
        data.elsewhere = torch.empty(3, device="meta")  # as host memory is to a GPU
        data.index = EdgeIndex(data.edge_index.clone(), sparse_size=shape)
        data.pieces = [data.x * 2, (data.y + 1, {"name": "a batch", "ids": data.n_id.clone()})]
        return data

    loader = build(kit.small_graph()).pyg_loader(num_neighbors=[4, 3], device="cuda", transform=transform, **OPTIONS)
    for data, kept in kept_by_the_loader(loader):
        first, (second, third) = data.pieces
        made = [*dense(data.adj), data.index.as_tensor(), first, second, third["ids"], data.x, data.edge_index]
        assert {tensor.data_ptr() for tensor in made} <= kept


def test_a_transform_may_return_something_else(gpu, kit, build, monkeypatch):
    class SparseTensor:
        """As torch-sparse's."""

        def __init__(self, rows):
            self.storage = SimpleNamespace(_row=rows, _value=None)

    monkeypatch.setattr(torch_geometric.typing, "SparseTensor", SparseTensor)
    layout = build(kit.small_graph())
    options = {"num_neighbors": [4, 3], "device": "cuda", **OPTIONS}
    found = layout.pyg_loader(transform=lambda data: ("pair", [data, SparseTensor(data.n_id * 3)]), **options)
    for (_, (data, matrix)), kept in kept_by_the_loader(found):
        assert {data.x.data_ptr(), matrix.storage._row.data_ptr()} <= kept
    assert set(layout.pyg_loader(transform=lambda _: None, **options)) == {None}


def test_a_transform_of_blocks_may_return_something_else(gpu, kit, build):
    dgl = pytest.importorskip("dgl")
    layout = build(kit.small_graph())

    def transform(made):
        _, outputs, blocks = made
        return {"blocks": blocks, "first": outputs[:1].clone(), "elsewhere": torch.empty(3, device="meta")}

    loader = layout.dgl_loader(fanouts=[3, 4], device="cuda", transform=transform, **OPTIONS)
    for made, kept in kept_by_the_loader(loader):
        ends = [tensor for block in made["blocks"] for tensor in (*block.edges(), block.srcdata[dgl.NID])]
        assert {tensor.data_ptr() for tensor in [*ends, made["first"]]} <= kept
