"""Frameworks read exports: PyG and DGL by the code of docs/exports.md, GraphBolt as its code does, in numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tiering

ORDERS = pytest.mark.parametrize("original", [False, True])


@pytest.fixture
def run_page(repository, monkeypatch):
    """Return a function that runs blocks of docs/exports.md in the directory of an export; it returns their names."""
    page = (repository / "docs" / "exports.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = dict(zip(("read", "csc", "pyg", "dgl"), blocks, strict=True))

    def run(made, *wanted):
        monkeypatch.chdir(made.path.parent)
        names = {}
        text = "".join(code[name] for name in wanted).replace('Path("exported")', f"Path({made.path.name!r})")
        exec(compile(text, "docs/exports.md", "exec"), names)  # noqa: S102 - our own page
        return names

    return run


def torch_rows(prepared, name, original):
    """Return the feature rows of an export as torch has them."""
    import torch

    rows = np.ascontiguousarray(prepared.rows(name, original))
    if prepared.toy.dataset.nodes[name].features.dtype == "bfloat16":
        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(rows)


def same_tensor(found, expected):
    import torch

    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert torch.equal(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


@ORDERS
def test_pyg_makes_a_graph_of_it(prepared, export, run_page, original):
    pytest.importorskip("torch_geometric")
    import torch
    from torch_geometric.sampler.utils import to_csc

    data = run_page(export(prepared.layout, original), "read", "pyg")["data"]
    single = len(prepared.toy.dataset.nodes) == 1
    assert data.validate()
    for name, given in prepared.toy.dataset.nodes.items():
        store = data if single else data[name]
        assert store.num_nodes == given.num_nodes and ("x" in store) == (name in prepared.toy.tables)
        if "x" in store:
            same_tensor(store.x, torch_rows(prepared, name, original))
        if given.labels is not None:
            np.testing.assert_array_equal(store.y, given.labels[prepared.ids(name, original)])
        for split, members in given.splits.items():
            np.testing.assert_array_equal(prepared.ids(name, original)[store[f"{split}_idx"]], members)
    for number, given in enumerate(prepared.toy.dataset.edges):
        store = data if single else data[given.relation]
        src, dst, values = prepared.edges(number, original)
        assert torch.equal(store.edge_index, torch.from_numpy(np.stack([src, dst])))
        for key, array in values.items():
            np.testing.assert_array_equal(store[f"edge_{key}"], array)
        if src.size:  # What NeighborLoader does with is_sorted=True: the sources are not copied.
            _, row, order = to_csc(data._store if single else store, is_sorted=True)
            assert order is None and row.data_ptr() == store.edge_index[0].data_ptr()


@ORDERS
def test_dgl_makes_a_graph_of_it(prepared, export, run_page, original):
    dgl = pytest.importorskip("dgl")
    import torch

    graph = run_page(export(prepared.layout, original), "read", "csc", "dgl")["graph"]
    for name, given in prepared.toy.dataset.nodes.items():
        frame = graph.nodes[name].data
        assert graph.num_nodes(name) == given.num_nodes
        assert ("feat" in frame) == (name in prepared.toy.tables)
        if "feat" in frame:
            same_tensor(frame["feat"], torch_rows(prepared, name, original))
        if given.labels is not None:
            np.testing.assert_array_equal(frame["label"], given.labels[prepared.ids(name, original)])
    for number, given in enumerate(prepared.toy.dataset.edges):
        src, dst, values = prepared.edges(number, original)
        found = graph.edges(form="uv", order="eid", etype=given.relation)
        np.testing.assert_array_equal(found[0], src)
        np.testing.assert_array_equal(found[1], dst)
        for key, array in values.items():
            np.testing.assert_array_equal(graph.edges[given.relation].data[key], array)
    single = len(graph.ntypes) == 1
    seeds = torch.arange(5) if single else {"paper": torch.arange(5)}
    inputs, _, blocks = dgl.dataloading.NeighborSampler([3, 3]).sample(graph, seeds)
    assert len(blocks) == 2 and (inputs if single else inputs["paper"]).numel() >= 5


@ORDERS
def test_graphbolt_reads_its_dataset(prepared, export, tmp_path, original):
    """The reader of GraphBolt's datasets, which is tested by its own files, imports what was exported."""
    made = export(prepared.layout, original)
    metadata = pytest.importorskip("yaml").safe_load((made.path / "metadata.yaml").read_text())
    source, graph = (
        prepared.graph if original else prepared.reordered,
        tiering.import_graph(made.path, out=tmp_path / "g"),
    )
    single = len(source.node_types) == 1
    attributes = metadata["graph"].get("feature_data", [])
    assert [entry["name"] for entry in attributes] == (["weight"] if single else [])
    for found, name in zip(graph.node_types, source.node_types, strict=True):
        assert graph.num_nodes(found) == source.num_nodes(name) and (single or found == name)
        table = graph.feature_table(found)
        assert (table is None) == (name not in prepared.toy.tables)
        if table is not None:
            assert table.open().tobytes() == prepared.rows(name, original).tobytes()
        labels = source.labels(name)
        assert ("train" in graph.splits(found)) == (labels is not None)  # authors have no labels
        for split in graph.splits(found):
            ids = graph.split(split, found)
            np.testing.assert_array_equal(ids, source.split(split, name))
            np.testing.assert_array_equal(graph.labels(found)[ids], labels[ids])
    for found, relation in zip(graph.relations, source.relations, strict=True):
        for mine, given in zip(graph.csc(found), source.csc(relation), strict=True):
            np.testing.assert_array_equal(mine, given)
        if "weight" in source.edge_data(relation):
            np.testing.assert_array_equal(graph.edge_data(found)["weight"], source.edge_data(relation)["weight"])
