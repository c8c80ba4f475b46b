"""Frameworks read their exports: DGL and PyG themselves; GraphBolt and WholeGraph as their code does, in numpy."""

from __future__ import annotations

import json
import re
import runpy

import numpy as np
import pytest

import tiering

ORDERS = pytest.mark.parametrize("original", [False, True])


def torch_rows(prepared, name, original):
    """Feature rows of an export as torch has them."""
    import torch

    rows = np.ascontiguousarray(prepared.rows(name, original))
    if prepared.toy.dataset.nodes[name].features.dtype == "bfloat16":
        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(rows)


def same_tensor(found, expected):
    import torch

    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert torch.equal(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def members(prepared, name, split, original):
    """Whether each node of an export is in a split."""
    return np.isin(prepared.ids(name, original), prepared.toy.dataset.nodes[name].splits[split])


@ORDERS
def test_pyg_makes_a_graph_of_it(prepared, export, original):
    pytest.importorskip("torch_geometric")
    import torch
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.sampler.utils import to_csc

    made = export(prepared.layout, "pyg", original)
    data = runpy.run_path(str(made.path / "load.py"))["load"]()
    single = len(prepared.toy.dataset.nodes) == 1
    assert isinstance(data, Data if single else HeteroData)
    assert data.validate()
    for name, given in prepared.toy.dataset.nodes.items():
        store = data if single else data[name]
        assert store.num_nodes == given.num_nodes and ("x" in store) == (name in prepared.toy.tables)
        if "x" in store:
            same_tensor(store.x, torch_rows(prepared, name, original))
        if given.labels is not None:
            np.testing.assert_array_equal(store.y, given.labels[prepared.ids(name, original)])
        for split in given.splits:
            np.testing.assert_array_equal(store[f"{split}_mask"], members(prepared, name, split, original))
    for number, given in enumerate(prepared.toy.dataset.edges):
        store = data if single else data[given.relation]
        src, dst, values = prepared.edges(number, original)
        assert torch.equal(store.edge_index, torch.from_numpy(np.stack([src, dst])))
        for key, array in values.items():
            np.testing.assert_array_equal(store[f"edge_{key}"], array)
        # What NeighborLoader does with is_sorted=True: the sources are not copied.
        edges = data._store if single else store
        colptr, row, order = to_csc(edges, is_sorted=True) if src.size else (None, store.edge_index[0], None)
        assert order is None and row.data_ptr() == store.edge_index[0].data_ptr()
        if colptr is not None:
            count = prepared.toy.dataset.nodes[given.relation[2]].num_nodes
            np.testing.assert_array_equal(colptr, np.searchsorted(dst, np.arange(count + 1)))


@ORDERS
def test_dgl_makes_a_graph_of_it(prepared, export, original):
    dgl = pytest.importorskip("dgl")
    import torch

    made = export(prepared.layout, "dgl", original)
    graph = runpy.run_path(str(made.path / "load.py"))["load"]()
    single = len(prepared.toy.dataset.nodes) == 1
    for name, given in prepared.toy.dataset.nodes.items():
        frame = graph.ndata if single else graph.nodes[name].data
        assert graph.num_nodes(None if single else name) == given.num_nodes
        assert ("feat" in frame) == (name in prepared.toy.tables)
        if "feat" in frame:
            same_tensor(frame["feat"], torch_rows(prepared, name, original))
        if given.labels is not None:
            np.testing.assert_array_equal(frame["label"], given.labels[prepared.ids(name, original)])
        for split in given.splits:
            np.testing.assert_array_equal(frame[f"{split}_mask"], members(prepared, name, split, original))
    for number, given in enumerate(prepared.toy.dataset.edges):
        etype = graph.canonical_etypes[0] if single else given.relation
        src, dst, values = prepared.edges(number, original)
        found = graph.edges(form="uv", order="eid", etype=etype)
        np.testing.assert_array_equal(found[0], src)
        np.testing.assert_array_equal(found[1], dst)
        for key, array in values.items():
            np.testing.assert_array_equal(graph.edges[etype].data[key], array)
    seeds = torch.arange(5) if single else {"paper": torch.arange(5)}
    inputs, _, blocks = dgl.dataloading.NeighborSampler([3, 3]).sample(graph, seeds)
    assert len(blocks) == 2 and (inputs if single else inputs["paper"]).numel() >= 5


class PlainDataset:
    """An export as GraphBolt's preprocessing reads it: metadata by YAML, edges, features and sets by numpy."""

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
        """Seeds and labels by type of a set of the task."""
        (task,) = self.meta["tasks"]
        assert task["name"] == "node_classification"
        return {
            entry.get("type"): {array["name"]: self.array(array) for array in entry["data"]} for entry in task[name]
        }


@ORDERS
def test_graphbolt_reads_its_dataset(prepared, export, original):
    import torch

    made = export(prepared.layout, "graphbolt", original)
    dataset = PlainDataset(made.path)
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


def test_wholegraph_loads_files_by_their_size(prepared, export):
    """As `create_embedding_from_filelist` does: rows are the file's bytes by those of a row."""
    torch = pytest.importorskip("torch")
    made = export(prepared.layout, "wholegraph")
    for name, rows in prepared.toy.tables.items():
        entry = made.document["node_types"][name]["feat"]
        dtype, width = getattr(torch, entry["dtype"]), entry["shape"][1]
        file = made.path / entry["path"]
        item = torch.empty(0, dtype=dtype).element_size()
        assert file.stat().st_size == rows.shape[0] * width * item
        found = torch.from_file(str(file), size=rows.shape[0] * width, dtype=dtype).reshape(-1, width)
        same_tensor(found, torch_rows(prepared, name, False))


def test_the_printed_lines_are_python_and_those_for_what_is_here_run(prepared, export, capfd):
    pytest.importorskip("torch_geometric")
    pytest.importorskip("dgl")
    names = {}
    for to in ("raw", "pyg", "dgl", "wholegraph", "graphbolt"):
        made = export(prepared.layout, to)
        compile("\n".join(made.lines), to, "exec")
        assert any(str(made.path) in line for line in made.lines)
        if to in ("raw", "dgl", "pyg"):  # a neighbour loader of PyG's wants a library that may not be here
            runnable = [line for line in made.lines if "NeighborLoader(" not in line]
            exec("\n".join(runnable), names)  # noqa: S102 - our own lines
    assert names["indptr"][-1] == names["indices"].shape[0]
    assert names["features"].shape[0] > 0
    assert names["data"].num_nodes == names["graph"].num_nodes()


def test_bfloat16_of_one_type(tmp_path):
    from exported import prepare, single

    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    prepared = prepare(single(tmp_path / "data", "bfloat16"), tmp_path)
    (name,) = prepared.toy.tables
    made = tiering.export_layout(prepared.layout, to="pyg", out=tmp_path / "pyg")
    data = runpy.run_path(str(made.path / "load.py"))["load"]()
    assert data.x.dtype == torch.bfloat16
    same_tensor(data.x, torch_rows(prepared, name, False))
