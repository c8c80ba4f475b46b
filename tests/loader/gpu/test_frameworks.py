"""Batches for PyG and DGL on a GPU: every attribute as the host makes it, whoever samples."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

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


def test_positions_of_native_batches(gpu, kit, build):
    layout = build(kit.hetero_graph())
    options = {"fanouts": [4, 3], "edge_positions": True, **OPTIONS}
    for found, expected in zip(layout.loader(device="cuda", **options), layout.loader(**options), strict=True):
        for hop, (ours, theirs) in enumerate(zip(found.positions, expected.positions, strict=True)):
            assert_equal(ours, theirs)
            for relation, positions in theirs.items():
                _, indices = layout.csc(relation)
                src = expected.nodes[relation[0]][expected.hops[hop][relation][0]]
                assert torch.equal(torch.from_numpy(indices[positions.numpy()].astype("int64")), src)


def test_rows_read_ahead(gpu, kit, build):
    layout = build(kit.small_graph(images=2))
    options = {"num_neighbors": [4, 3], "window": 2, **OPTIONS}
    for found, expected in zip(
        layout.pyg_loader(**options, device="cuda"), layout.pyg_loader(**options, memory="tiers"), strict=True
    ):
        assert_equal(found.to_dict(), expected.to_dict())
