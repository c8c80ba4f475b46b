"""Frameworks read exports: PyG and DGL by the code of docs/exports.md, GraphBolt as its code does, in numpy."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

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


class PlainDataset:
    """An export read as GraphBolt's preprocessing does: metadata by YAML, edges, features and sets by numpy."""

    def __init__(self, folder) -> None:
        yaml = pytest.importorskip("yaml")
        self.folder = folder
        self.meta = yaml.safe_load((folder / "metadata.yaml").read_text())
        assert self.meta == json.loads((folder / "metadata.yaml").read_text())
        assert set(self.meta) == {"dataset_name", "graph", "feature_data", "tasks"}
        nodes, edges = self.meta["graph"]["nodes"], self.meta["graph"]["edges"]
        self.homogeneous = len(nodes) == len(edges) == 1 and "type" not in nodes[0] and "type" not in edges[0]
        assert self.homogeneous or all(re.fullmatch("[^:]+:[^:]+:[^:]+", edge["type"]) for edge in edges)
        self.nodes = {node.get("type"): node["num"] for node in nodes}
        self.edges = {edge.get("type"): self.array(edge) for edge in edges}
        for pairs in self.edges.values():
            assert pairs.dtype == np.int64 and pairs.ndim == 2 and pairs.shape[0] == 2

    def array(self, entry):
        assert entry["format"] == "numpy" and isinstance(entry.get("in_memory", True), bool)
        return np.load(self.folder / entry["path"])

    def feature(self, domain, key, name):
        (entry,) = [
            entry
            for entry in self.meta["feature_data"]
            if (entry["domain"], entry.get("type"), entry["name"]) == (domain, key, name)
        ]
        return self.array(entry)

    def sets(self, name):
        """Return seeds and labels by type of a set of the task."""
        (task,) = self.meta["tasks"]
        assert task["name"] == "node_classification"
        return {
            entry.get("type"): {array["name"]: self.array(array) for array in entry["data"]} for entry in task[name]
        }


@ORDERS
def test_graphbolt_reads_its_dataset(prepared, export, original):
    import torch

    dataset = PlainDataset(export(prepared.layout, original).path)
    toy = prepared.toy.dataset
    assert dataset.homogeneous == (len(toy.nodes) == 1)
    for name, given in toy.nodes.items():
        key = None if dataset.homogeneous else name
        assert dataset.nodes[key] == given.num_nodes
        if name in prepared.toy.tables:
            rows = dataset.feature("node", key, "feat")
            tensor = torch.from_numpy(rows)  # any version of torch takes the bits of bfloat16 as int16
            same_tensor(tensor.view(torch_rows(prepared, name, original).dtype), torch_rows(prepared, name, original))
    for number, given in enumerate(toy.edges):
        key = None if dataset.homogeneous else ":".join(given.relation)
        src, dst, values = prepared.edges(number, original)
        np.testing.assert_array_equal(dataset.edges[key], [src, dst])
        for name, array in values.items():
            np.testing.assert_array_equal(dataset.feature("edge", key, name), array)
    for split, called in (("train", "train_set"), ("val", "validation_set")):
        sets = dataset.sets(called)
        assert set(sets) == ({None} if dataset.homogeneous else {"paper"})  # authors have no labels
        for key, arrays in sets.items():
            name = key or next(iter(toy.nodes))
            ids, given = prepared.ids(name, original), toy.nodes[name]
            np.testing.assert_array_equal(ids[arrays["seeds"]], given.splits[split])
            np.testing.assert_array_equal(arrays["labels"], given.labels[given.splits[split]])
    attributes = dataset.meta["graph"].get("feature_data", [])
    assert [entry["name"] for entry in attributes] == (["weight"] if dataset.homogeneous else [])
