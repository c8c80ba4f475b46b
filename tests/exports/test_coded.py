"""Exports of layouts whose rows a codec stored: decoded, or as they are with the codec's parameters."""

from __future__ import annotations

import json

import numpy as np
import pytest
from coded_layouts import coded_toy, decoded_rows, stored_rows
from jsonschema import Draft202012Validator
from reference_codecs import CODES
from toy_datasets import chain, tree_bytes

import tiering
from tiering.errors import InputError
from tiering.exports import arrays
from tiering.reorder.arrays import PieceSizes

DTYPES = [["int8"], ["float8_e4m3"], ["bfloat16", "paper=int8"], ["float16", "author=float32"]]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coded")
    toy = coded_toy(folder / "data")
    return toy, chain(toy, folder)[2], folder


@pytest.fixture(params=DTYPES, ids=" ".join)
def layout(request, made):
    toy, reordered, folder = made
    out = folder / "-".join(request.param)
    disks = [out.with_suffix(f".ssd{k}") for k in range(2)]
    options = {"gpu": "11%", "peer": "2x7%", "cpu": "20%", "ssd": disks, "dtype": request.param}
    return toy, tiering.write_layout(reordered, out=out, force=True, **options)


def exported(made, name):
    """The entry of a type's rows in an export, and its arrays."""
    feat = json.loads((made.path / "export.json").read_text())["node_types"][name]["feat"]
    entries = {"rows": feat, **{key: feat[key] for key in ("scale", "offset") if key in feat}}
    arrays = {key: np.load(made.path / entry["path"]) for key, entry in entries.items()}
    assert all(array.dtype == entries[key]["stored"] for key, array in arrays.items())
    return feat, arrays


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("original", [False, True])
def test_rows_are_decoded_by_default_and_as_they_are_when_asked(layout, tmp_path, monkeypatch, original, small):
    """Rows decoded are those of the reference, as the source's dtype; stored rows are its codes without padding."""
    toy, made = layout
    if small:
        monkeypatch.setattr(arrays, "PIECE_BYTES", 64)
        monkeypatch.setattr(arrays.ExportPlan, "_sizes", lambda *_: PieceSizes(chunk=700, free=0))
    plain = tiering.export_layout(made, tmp_path / "plain", original_order=original)
    stored = tiering.export_layout(made, tmp_path / "stored", original_order=original, stored=True)
    for name, table in toy.tables.items():
        source = table if original else table[np.asarray(made.new_to_old(name))]
        entry = made.artifact.type_layout(name)
        feat, found = exported(plain, name)
        delivered = "float32" if entry.dtype == "int32" else entry.dtype
        assert feat["dtype"] == feat["stored"] == delivered and "codec" not in feat
        raw, codes = exported(stored, name)
        if entry.codec:
            np.testing.assert_array_equal(found["rows"], decoded_rows(made.path, name, source).astype(delivered))
            width = entry.dim * np.dtype(CODES[entry.codec]).itemsize
            assert codes["rows"].view(np.uint8).tobytes() == stored_rows(made.path, name, source)[:, :width].tobytes()
            assert raw["codec"] == entry.codec
        else:  # the dtype of the source was asked for
            assert found["rows"].tobytes() == codes["rows"].tobytes() == source.tobytes() and "codec" not in raw
        kinds = {"int8": ["scale", "offset"], "float8_e4m3": ["scale"]}.get(entry.codec, [])
        assert [key for key in codes if key != "rows"] == kinds


def test_the_pages_own_words_decode_what_is_stored(layout, tmp_path, monkeypatch, repository):
    """The snippet of docs/exports.md gives the numbers of the decoded export, bit for bit."""
    _, made = layout
    monkeypatch.chdir(tmp_path)
    tiering.export_layout(made, "plain")
    tiering.export_layout(made, "stored", stored=True)
    page = (repository / "docs" / "exports.md").read_text()
    blocks = {block.split("\n")[0]: block.partition("```")[0] for block in page.split("```python\n")[1:]}
    (decode,) = (block for block in blocks.values() if block.startswith("def decoded"))
    names = {}
    text = blocks["import json"].replace('"exported"', '"stored"') + decode
    exec(compile(text, "docs/exports.md", "exec"), names)  # noqa: S102 - our own page
    for name, nodes in names["export"]["node_types"].items():
        _, found = exported(tiering.export_layout(made, "plain", force=True), name)
        rows = found["rows"].astype(np.float32)
        decoded = names["decoded"](nodes["feat"], slice(3, 40)).numpy()
        assert decoded.astype(found["rows"].dtype).tobytes() == found["rows"][3:40].tobytes() and rows.any()


def test_the_document_is_what_its_schema_says(layout, tmp_path, repository):
    schema = json.loads((repository / "data_specs" / "schemas" / "export.schema.json").read_text())
    made = tiering.export_layout(layout[1], tmp_path / "out", stored=True)
    Draft202012Validator(schema).validate(json.loads((made.path / "export.json").read_text()))


@pytest.mark.parametrize("stored", [False, True])
def test_it_goes_on_where_it_stopped(layout, tmp_path, monkeypatch, stored):
    expected = tree_bytes(tiering.export_layout(layout[1], tmp_path / "expected" / "out", stored=stored).path)
    append, calls = arrays.FileWriter.append, []

    def stopped(self, *values):
        calls.append(self.path.name)
        if calls.count("feat.npy") == 2:
            raise KeyboardInterrupt
        append(self, *values)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(arrays, "PIECE_BYTES", 500)
        patch.setattr(arrays.FileWriter, "append", stopped)
        tiering.export_layout(layout[1], tmp_path / "out", stored=stored)
    assert tree_bytes(tiering.export_layout(layout[1], tmp_path / "out", stored=stored).path) == expected


def test_a_graph_has_no_stored_rows(tiering_cli, made, tmp_path):
    with pytest.raises(InputError, match=r"stored: .*reordered is a graph"):
        tiering.export_layout(made[1], tmp_path / "out", stored=True)
    tiering_cli("export", made[1].path, "--stored", "--out", tmp_path / "out").refused("give a layout")
