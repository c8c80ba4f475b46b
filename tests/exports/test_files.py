"""Files of exports without a framework: numpy reads them, and they hold what the source holds."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from exported import prepare, single
from jsonschema import Draft202012Validator
from toy_datasets import toy_dataset, tree_bytes

import tiering
from tiering.exports.tier_rows import TierRows


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


def test_tiers_are_read_from_any_rank_on_in_pieces_of_any_size(prepared):
    for name in prepared.layout.feature_types:
        expected = prepared.rows(name, False)
        expected = np.ascontiguousarray(expected).view(np.uint8).reshape(expected.shape[0], -1)
        table = TierRows(prepared.layout.artifact, name)
        for step in (1, 3, 7, 1000):
            for begin in range(0, table.rows, 5):
                at = begin
                for first, rows in table.pieces(step, begin):
                    assert first == at and rows.shape[0] == min(step, table.rows - first)
                    np.testing.assert_array_equal(rows, expected[first : first + rows.shape[0]])
                    at += rows.shape[0]
                assert at == table.rows


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
    from tiering.exports import arrays
    from tiering.reorder.arrays import Sizes

    expected = export(prepared.layout, True).path
    monkeypatch.setattr(arrays, "PIECE_BYTES", 64)
    monkeypatch.setattr(arrays, "_COLUMNS", 3)
    monkeypatch.setattr(arrays.ExportPlan, "_sizes", lambda *_: Sizes(chunk=50))
    out = tmp_path / "again" / expected.name
    made = tiering.export_layout(prepared.layout, out, original_order=True, threads=3)
    assert tree_bytes(made.path) == tree_bytes(expected)


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
