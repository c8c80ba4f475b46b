"""Exports hold what the source holds: read by numpy, by PyG and DGL with docs/exports.md, as GraphBolt reads them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from exported import prepare, single
from jsonschema import Draft202012Validator
from toy_datasets import toy_dataset, tree_bytes

import tiering
from tiering.exports import arrays
from tiering.reorder.adjacency import RelabelSizes
from tiering.reorder.arrays import PieceSizes
from tiering.run.job import Carrier
from tiering.run.options import ClusterOptions


def read(made, file):
    """An array of an export, by what ``export.json`` says of it alone."""
    path = made.path / file["path"]
    array = np.load(path, mmap_mode="r")
    assert path.stat().st_size == (4096 if array.size else 128) + array.nbytes  # rows of a page lie in one page
    assert array.dtype == file["stored"] and list(array.shape) == file["shape"]
    return array


def same(prepared, made, original):
    """Compare every array of an export with the source."""
    document = json.loads((made.path / "export.json").read_text())
    assert document["order"] == ("original" if original else "rank")
    for number, edges in enumerate(document["relations"]):
        src, dst, data = prepared.edges(number, original)
        np.testing.assert_array_equal(read(made, edges["edge_index"]), [src, dst])
        assert set(edges["data"]) == {"edge_ids", *data}
        for name, values in data.items():
            np.testing.assert_array_equal(read(made, edges["data"][name]), values)
    assert list(document["node_types"]) == sorted(prepared.toy.dataset.nodes)
    for name, nodes in document["node_types"].items():
        ids, given = prepared.ids(name, original), prepared.toy.dataset.nodes[name]
        if original:
            assert nodes["new_to_old"] is None
        else:
            np.testing.assert_array_equal(read(made, nodes["new_to_old"]), ids)
        assert (nodes["label"] is None) == (given.labels is None)
        if given.labels is not None:
            np.testing.assert_array_equal(read(made, nodes["label"]), given.labels[ids])
        for split, members in given.splits.items():
            np.testing.assert_array_equal(ids[read(made, nodes["splits"][split])], members)
            if given.labels is not None:
                np.testing.assert_array_equal(read(made, nodes["seed_labels"][split]), given.labels[members])
        for extra, values in given.extra.items():
            np.testing.assert_array_equal(read(made, nodes["data"][extra]), values[ids])
        assert (nodes["feat"] is None) == (name not in prepared.toy.tables)
        if nodes["feat"] is not None:
            rows = read(made, nodes["feat"])
            assert nodes["feat"]["dtype"] == given.features.dtype
            assert rows.tobytes() == prepared.rows(name, original).tobytes()


@pytest.mark.parametrize("original", [False, True])
def test_a_layout_holds_what_its_source_holds(prepared, export, original):
    same(prepared, export(prepared.layout, original), original)


@pytest.mark.parametrize("original", [False, True])
def test_graphs_export_as_their_layout_does(prepared, export, tmp_path, original):
    expected = export(prepared.layout, original).path
    made = tiering.export_layout(prepared.reordered, tmp_path / "graph" / expected.name, original_order=original)
    found, expected = tree_bytes(made.path), tree_bytes(expected)
    del found["export.json"], expected["export.json"]  # which name their source
    assert found == expected
    if original:
        made = tiering.export_layout(prepared.graph.path, tmp_path / "imported")
        same(prepared, made, True)


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_any_dataset(tmp_path, seed):
    """Types with other dtypes and widths, pages that rows do not fit, relations without edges."""
    toy = toy_dataset(tmp_path / "data", seed)
    page = ["512", "1KiB", "4KiB"][seed % 3]
    prepared = prepare(toy, tmp_path, page, peers=1 + seed % 4)
    for original in (False, True):
        made = tiering.export_layout(prepared.layout, tmp_path / f"{original}", original_order=original)
        same(prepared, made, original)


def test_a_layout_is_exported_where_its_source_is_gone(tmp_path, homogeneous):
    prepared = prepare(single(tmp_path / "data"), tmp_path)
    (name,) = prepared.toy.tables
    prepared.toy.dataset.nodes[name].features.path.unlink()
    made = tiering.export_layout(tmp_path / "layout", tmp_path / "out", original_order=True)
    same(prepared, made, True)


def test_the_document_is_what_its_schema_says(prepared, export, repository):
    schema = json.loads((repository / "data_specs" / "schemas" / "export.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    made = export(prepared.layout)
    text = (made.path / "export.json").read_text()
    Draft202012Validator(schema).validate(json.loads(text))
    assert {*tree_bytes(made.path)} - {"export.json", "metadata.yaml"} == {*re.findall(r'"path": "(.+)"', text)}


def test_files_are_the_same_for_any_memory_and_threads(prepared, export, tmp_path, monkeypatch):
    expected = export(prepared.layout, True).path
    monkeypatch.setattr(arrays, "PIECE_BYTES", 64)
    monkeypatch.setattr(arrays, "_COLUMNS", 3)
    monkeypatch.setattr(arrays.ExportPlan, "_sizes", lambda *_: PieceSizes(chunk=50))
    out = tmp_path / "again" / expected.name
    made = tiering.export_layout(prepared.layout, out, original_order=True, threads=3)
    assert tree_bytes(made.path) == tree_bytes(expected)


def test_lists_that_would_be_read_often_are_cut_first(prepared, export, tmp_path, monkeypatch):
    """By tasks of this process, which leave nothing behind."""
    expected, ways = tree_bytes(export(prepared.layout, original=True).path), list[str]()
    for module, name in ((arrays, "write_relation"), (arrays, "write_by_tasks")):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, w=whole, n=name, **o: ways.append(n) or w(*a, **o))
    monkeypatch.setattr(RelabelSizes, "passes", lambda sizes, _: 4 if sizes.num_edges else 0)
    monkeypatch.setattr(arrays, "own_carrier", lambda *_: Carrier(ClusterOptions(shards=3, workers=1)))
    made = export(prepared.layout, original=True, force=True)
    assert "write_by_tasks" in ways
    assert tree_bytes(made.path) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["exported-True"]


@pytest.mark.slow
def test_memory_stays_within_the_budget(tmp_path, peak_memory, settled_memory):
    from tiering.memory import own_memory

    tiering.generate_dataset(tmp_path / "data", nodes=200_000, edges=400_000, dim=512, classes=3)
    graph = tiering.import_graph(tmp_path / "data", out=tmp_path / "graph")
    scores = tiering.score_graph(graph, out=tmp_path / "scores", method="degree")
    reordered = tiering.reorder_graph(graph, scores, out=tmp_path / "reordered")
    layout = tiering.write_layout(reordered, out=tmp_path / "layout", gpu="10%", cpu="30%", ssd=[tmp_path / "ssd"])
    rows = {}
    for original, room in ((False, 160), (True, 640)):
        held = own_memory()
        limit = held + (room << 20)
        with peak_memory() as peak:
            made = tiering.export_layout(layout, tmp_path / f"{original}", original_order=original, memory=limit)
        assert peak.bytes <= limit + (20 << 20), (peak.bytes >> 20, limit >> 20)
        rows[original] = np.load(made.path / "nodes/paper/feat.npy", mmap_mode="r")
    source = np.load(tmp_path / "data/processed/paper/node_feat.npy", mmap_mode="r")
    np.testing.assert_array_equal(rows[True], source)
    np.testing.assert_array_equal(rows[False][::97], source[np.asarray(layout.new_to_old())[::97]])


ORDERS = pytest.mark.parametrize("original", [False, True])


@pytest.fixture
def run_page(repository, monkeypatch):
    """Return a function that runs blocks of docs/exports.md in the directory of an export; it returns their names."""
    page = (repository / "docs" / "exports.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    code = dict(zip(("read", "decoded", "csc", "pyg", "dgl", "scipy"), blocks, strict=True))

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
