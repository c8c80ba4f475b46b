"""Embeddings as a stream of Arrow and as parquet: each row by the id or the name that its node has in the source."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import torch
from named_layouts import KINDS, named_layout, source_ids
from toy_datasets import tree_bytes

import tiering
from tiering.errors import CapabilityError, InputError
from tiering.formats import embeddings as format_module


def own_rows(block, x):
    return x[: block.num_dst]


def features_by_source_id(layout, kind: str) -> dict[object, np.ndarray]:
    """The rows that `own_rows` infers."""
    ids = source_ids(kind, layout.num_nodes)
    rows = layout.features(layout.node_types[0], device="cpu").gather_numpy(layout.old_to_new())
    return dict(zip(ids, rows, strict=True))


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_by_the_ids_of_the_source(tmp_path, monkeypatch, kind, some):
    layout = named_layout(tmp_path, kind)
    expected = features_by_source_id(layout, kind)
    nodes = np.arange(0, 60, 7) if some else None
    made = layout.inference([own_rows], tmp_path / "e", nodes=nodes)
    expected = {i: row for k, (i, row) in enumerate(expected.items()) if not some or k % 7 == 0}
    tables = []
    for nbytes in (1, 20 * 7, 1 << 20):  # rows one by one, by sevens, all in one batch
        monkeypatch.setattr(format_module, "BATCH_BYTES", nbytes)
        stream = made.to_arrow()
        assert isinstance(stream, pa.RecordBatchReader)
        batches = list(stream)
        assert len(batches) == -(-len(expected) // max(1, nbytes // 20))
        tables.append(pa.Table.from_batches(batches))
        assert tables[-1].combine_chunks() == tables[0].combine_chunks()
    assert tables[0].schema.field("vector").type == pa.list_(pa.float32(), 5)
    assert tables[0].schema.field("id").type == (pa.string() if kind == "names" else pa.int64())
    assert tables[0]["id"].to_pylist() != list(expected)  # by rank
    found = dict(zip(tables[0]["id"].to_pylist(), tables[0]["vector"].to_numpy(), strict=True))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[i], expected[i]) for i in found)
    assert not made.problems("full")


def test_parquet_by_the_command(tmp_path, monkeypatch, tiering_cli):
    layout = named_layout(tmp_path, "names")
    embeddings = layout.inference([own_rows], tmp_path / "e")
    monkeypatch.setattr(format_module, "BATCH_BYTES", 20 * 25)
    made = tiering_cli("export", tmp_path / "e", "--format", "parquet", "--out", tmp_path / "p", "--json").ok().json
    entry = made["node_types"]["node"]["feat"]
    assert entry == {"path": "nodes/node/feat.parquet", "dtype": "float32", "stored": "parquet", "shape": [60, 5]}
    file = pa_parquet.ParquetFile(tmp_path / "p" / entry["path"])
    assert [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)] == [25, 25, 10]
    assert file.read().combine_chunks() == embeddings.to_arrow().read_all().combine_chunks()
    again = tiering.export_layout(embeddings, tmp_path / "q", format="parquet")
    assert tree_bytes(again.path) == tree_bytes(tmp_path / "p")
    npy = tiering.export_layout(embeddings, tmp_path / "npy", original_order=True).path / "nodes/node/feat.npy"
    np.testing.assert_array_equal(np.load(npy), embeddings.gather_numpy(np.arange(60), original=True))
    for options, words in (
        (("--format", "csv"), "format: expected npy or parquet, found 'csv'"),
        (("--format", "parquet", "--original-order"), "omit it"),
    ):
        tiering_cli("export", tmp_path / "e", *options, "--out", tmp_path / "r").refused(words)
    refused = tiering_cli("export", layout.path, "--format", "parquet", "--out", tmp_path / "r")
    refused.refused("only embeddings are exported in other formats")


def test_a_stopped_parquet_export_resumes(tmp_path, monkeypatch):
    embeddings = named_layout(tmp_path, "names").inference([own_rows], tmp_path / "e")
    whole = tree_bytes(tiering.export_layout(embeddings, tmp_path / "whole" / "p", format="parquet").path)
    with monkeypatch.context() as patch:
        patch.setattr(
            pa_parquet.ParquetWriter, "write_batch", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            tiering.export_layout(embeddings, tmp_path / "p", format="parquet")
    assert not (tmp_path / "p").exists()
    assert tree_bytes(tiering.export_layout(embeddings, tmp_path / "p", format="parquet").path) == whole


def test_damaged_rows_are_not_exported(tmp_path, tiering_cli):
    named_layout(tmp_path, "names").inference([own_rows], tmp_path / "e")
    data = bytearray((tmp_path / "e" / "rows").read_bytes())
    data[77] ^= 1
    (tmp_path / "e" / "rows").write_bytes(data)
    command = ("export", tmp_path / "e", "--format", "parquet", "--out", tmp_path / "p")
    tiering_cli(*command).refused("rows")
    assert not (tmp_path / "p").exists()
    tiering_cli(*command, "--no-verify").ok()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_numbers_of_an_odd_width(tmp_path, dtype):
    """Rows of 5 numbers have padding behind them; Arrow has no bfloat16."""
    made = named_layout(tmp_path, "positions").inference([own_rows], tmp_path / "e", dtype=dtype)
    table = made.to_arrow().read_all()
    kind = pa.float32() if dtype == "bfloat16" else pa.float16()
    assert table.schema.field("vector").type == pa.list_(kind, 5)
    vectors = torch.from_numpy(np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float32))
    assert torch.equal(vectors, made[:].float()) and made[:].dtype == getattr(torch, dtype)


def test_rows_are_indexed_as_features_are(tmp_path):
    layout = named_layout(tmp_path, "positions")
    layout.inference([own_rows], tmp_path / "e")
    made, rows = tiering.open(tmp_path / "e"), layout.features(device="cpu")
    assert made.shape == tuple(rows.shape) == (60, 5) and len(made) == len(rows) == 60
    mask = torch.arange(60) % 3 == 0
    for index in (slice(5, 40, 3), slice(None), 7, -1, [3, 3, -2], mask, mask.numpy(), (slice(0, 9), 2), ...):
        assert isinstance(made[index], torch.Tensor) and torch.equal(made[index], rows[index]), index
    assert torch.equal(made.gather([4, 1]), rows.gather(torch.tensor([4, 1])))
    np.testing.assert_array_equal(made.gather_numpy(np.array([4, 1])), rows.gather_numpy(np.array([4, 1])))
    some = layout.inference([own_rows], tmp_path / "some", nodes=[5, 9])
    ranks = layout.old_to_new()[[9, 5]]
    assert torch.equal(some[ranks], rows[ranks]) and some.shape == (60, 5) and some.numpy().shape == (2, 5)
    with pytest.raises(InputError, match="has no row; inference ran for 2 nodes"):
        some[:]


def test_without_torch_rows_are_arrays(tmp_path, monkeypatch):
    layout = named_layout(tmp_path, "positions")
    made = layout.inference([own_rows], tmp_path / "e")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert made.gather_numpy(np.arange(3)).shape == (3, 5)
    with pytest.raises(CapabilityError, match="torch"):
        made.gather(np.arange(3))


def test_a_dry_run_prints_its_table(tmp_path):
    estimate = named_layout(tmp_path, "positions").inference([own_rows], tmp_path / "e", dry_run=True)
    assert "layer 0" in str(estimate) and "peak memory" in str(estimate) and "─" in str(estimate)


@pytest.mark.parametrize("ids", ["positions", "numbers"])
@pytest.mark.parametrize("nodes", [None, [5, 9]])
def test_a_dry_run_counts_the_ids_that_are_written(tmp_path, ids, nodes):
    layout = named_layout(tmp_path, ids)
    estimate = layout.inference([own_rows], tmp_path / "e", dry_run=True, nodes=nodes)
    made = layout.inference([own_rows], tmp_path / "e", nodes=nodes)
    files = {name: entry.bytes for name, entry in made.manifest.files.items() if name != "checksums"}
    assert any("ids/" in name for name in files) == (ids == "numbers")
    assert estimate.plans[0].left[made.path] == sum(files.values())


def test_the_document_fits_its_schema(tmp_path, request):
    made = named_layout(tmp_path, "names").inference([own_rows], tmp_path / "e")
    document = tiering.export_layout(made, tmp_path / "p", format="parquet").path / "export.json"
    schema = request.config.rootpath / "data_specs/schemas/export.schema.json"
    jsonschema.validate(json.loads(document.read_text()), json.loads(schema.read_text()))
