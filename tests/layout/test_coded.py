"""Layouts whose rows a codec stores: the same bytes however made, the losses that numpy finds, clear refusals."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from coded_layouts import EDGES, as_float32, coded_toy, decoded_rows, stored_rows, table_entry
from damage import flip
from plain_reader import read_rows
from recorded_keys import recording
from toy_datasets import Leaves, chain, tree_bytes

import tiering
from tiering import ClusterOptions
from tiering.artifacts import checksum
from tiering.errors import FormatError, StorageError
from tiering.formats.encoded_rows import EncodedTable
from tiering.layout import writer
from tiering.reorder import table_reader
from tiering.reorder.arrays import PieceSizes
from tiering.run import move

DTYPES = ["int8", "author=float16", f"{EDGES}=float8_e4m3", "venue=bfloat16"]
WAYS = {"gather": None, "in order": None, "2 passes": 17_000, "pieces": 9_000, "3 tasks": 3, "7 tasks": 7}


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Files of many blocks, so that windows are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "BLOCK_BYTES", 4096)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coded")
    toy = coded_toy(folder / "data", holes=True)
    graph, scores, reordered = chain(toy, folder, edge_ids=True)
    ranked = tiering.reorder_graph(graph, scores, folder / "ranked", features=True)
    return toy, reordered, ranked


def lay_out(reordered, folder, way="gather", monkeypatch=None, **options):
    """A layout made in a way: all of its bytes, and those of its stripe files."""
    options = {"gpu": "11%", "peer": "2x7%", "cpu": "20%", "dtype": DTYPES, "force": True, **options}
    if "tasks" in way:
        options["cluster"] = ClusterOptions(shards=WAYS[way])
    elif WAYS[way]:
        monkeypatch.setattr(table_reader, "SIZES", PieceSizes(chunk=2000, free=0))
        monkeypatch.setattr(writer, "parse_memory", lambda _: Leaves(WAYS[way], "test"))
        monkeypatch.setattr(Leaves, "without", lambda self, _: self)
    disks = [folder / name for name in ("a", "b")]
    return tiering.write_layout(reordered, out=folder / "layout", ssd=disks, **options), tree_bytes(folder)


@pytest.fixture(scope="module")
def expected(made, tmp_path_factory):
    return lay_out(made[1], tmp_path_factory.mktemp("expected") / "of")


@pytest.mark.parametrize("way", WAYS)
def test_the_same_layout_however_it_is_made(made, tmp_path_factory, monkeypatch, way, expected):
    """Every byte, those of the manifest with its losses too; in rank order only the graph in it differs."""
    folder, used, plan_moves = expected[0].path.parent, [], move.plan_moves

    def watched(*arguments):
        used.append(plan_moves(*arguments))
        return used[-1]

    monkeypatch.setattr(move, "plan_moves", watched)
    _, found = lay_out(made[1 + (way == "in order")], folder, way, monkeypatch)
    assert content(found) == content(expected[1])
    assert way == "in order" or found == expected[1]
    assert "tasks" in way or way in {cost.how for plan in used for cost in plan.costs}
    lay_out(made[1], folder)


def content(tree):
    """The tables in the manifest, and what the tiers hold, without the graph and the token of the stripe files."""
    body = json.loads(tree["layout/manifest.json"])["body"]
    parts = ("layout/tiers", "layout/codecs", "layout/pages", "a/", "b/")
    return body, [tree[name] for name in sorted(tree) if name.startswith(parts)]


def sources(made, layout):
    """The rows of each table by rank, in the dtype of the source."""
    toy, reordered, _ = made
    rows = {name: table[np.asarray(reordered.new_to_old(name))] for name, table in toy.tables.items()}
    return {**rows, EDGES: np.asarray(reordered.edge_data(EDGES)["feat"])}


def test_rows_are_those_of_the_reference(made, expected):
    layout = expected[0].path
    assert json.loads((layout / "manifest.json").read_text())["requires"] == ["units", "edge_tables", "codec"]
    assert tiering.check(layout, "full") == []
    for name, rows in sources(made, layout).items():
        assert np.array_equal(read_rows(layout, name), stored_rows(layout, name, rows)), name


def test_losses_are_those_that_numpy_finds(made, expected):
    layout = expected[0].path
    for name, rows in sources(made, layout).items():
        entry, _ = table_entry(layout, name)
        floats = as_float32(rows, entry["dtype"])
        source = np.ma.masked_invalid(floats).astype(np.float64)
        error = decoded_rows(layout, name, rows).astype(np.float64) - source
        assert error.mask.sum() == (4 if name == "author" else 0)
        deviation = source.std(0)
        unit = np.where(deviation > 0, deviation, np.abs(source.max(0)))
        rms, loss = np.sqrt((error**2).mean(0)) / unit, entry["codec"]["loss"]
        assert loss["largest"] == pytest.approx((np.abs(error).max(0) / unit).max(), rel=1e-3)
        assert loss["rms"] == pytest.approx(np.sqrt((rms**2).mean()), rel=1e-3)
        assert (loss["worst_column"], loss["columns"]) == (rms.argmax() if rms.any() else -1, len(rms))
        assert loss["worst_rms"] == pytest.approx(rms.max(), rel=1e-3)
        assert loss["exact_columns"] == (error == 0).all(0).sum() >= (2 if "int" in entry["codec"]["name"] else 0)


@pytest.mark.slow
def test_it_goes_on_wherever_it_stopped(made, tmp_path, monkeypatch):
    """In the fit, after it, between rows: the same bytes; what was fitted is not fitted again."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(table_reader, "SIZES", PieceSizes(chunk=5000))
    folder, fitted, fit = tmp_path / "run", [], EncodedTable.fit

    def watched(self, threads):
        fitted.append(self.where)
        return fit(self, threads)

    monkeypatch.setattr(EncodedTable, "fit", watched)
    with recording() as keys:
        _, whole = lay_out(made[1], folder)
    assert len(fitted) == 4
    for stop in range(0, len(keys), 3):
        shutil.rmtree(folder)
        with recording(stop) as first, pytest.raises(StorageError, match="stopped here"):
            lay_out(made[1], folder)
        known = sum(key.startswith("codec ") for key in first)
        fitted.clear()
        assert lay_out(made[1], folder, threads=2)[1] == whole, f"stopped at {keys[stop]}"
        assert len(fitted) == 4 - known


BAD = [
    ((7, 3, np.nan), "int8", "row 7, column 3 is nan, which int8 cannot store; store the table as float32, float16 or"),
    ((39, 5, 2.0**126), "float8_e4m3", "row 39, column 5 is 8.50706e+37"),
    ((1, 1, 3.4e38), "bfloat16", "column 1 has 3.4e+38, which bfloat16 rounds to infinity; store the table as float32"),
    ((2, 4, 1e300), "float32", "row 2, column 4 is 1e+300, but codecs store numbers up to 3.4e38; store the"),
    ((2, 4, 2**24 + 1), "int8", "row 2, column 4 is 16777217, but codecs store whole numbers up to 2^24; store the ta"),
    ((2, 4, 1), "int9", "dtype: expected auto, float32, float16, bfloat16, float8_e4m3, int8, or TYPE= and one of"),
    ((2, 4, 1), "paper=int8", "has no features of 'paper'; tables with features: node"),
    ((2, 4, 1), "node=", "dtype: expected auto"),
]


@pytest.fixture
def prepare(tiering_cli, tiny_dataset, tmp_path):
    """Return a function that makes a reordered graph of a table."""

    def run(rows):
        np.save(tiny_dataset / "node_feat.npy", rows)
        for command in (
            ("import", tiny_dataset, "--out", tmp_path / "graph"),
            ("score", tmp_path / "graph", "--method", "degree", "--out", tmp_path / "scores"),
            ("reorder", tmp_path / "graph", "--scores", tmp_path / "scores", "--out", tmp_path / "reordered"),
        ):
            tiering_cli(*command).ok()
        return tmp_path / "reordered"

    return run


@pytest.mark.parametrize("way", ["plain", "tasks"])
@pytest.mark.parametrize(("number", "dtype", "words"), BAD, ids=[f"{row[1]} {row[0][2]}" for row in BAD])
def test_numbers_and_names_that_are_refused(tiering_cli, prepare, tmp_path, number, dtype, words, way):
    row, column, value = number
    rows = np.zeros((40, 6), "int64" if "whole numbers" in words else "float64" if value == 1e300 else "float32")
    rows[row, column] = value
    command = (
        "layout",
        prepare(rows),
        "--dtype",
        dtype,
        "--out",
        tmp_path / "layout",
        "--cpu",
        "0",
        "--ssd",
        tmp_path / "ssd",
    )
    tiering_cli(*command, *(("--executor", "local", "--shards", "3") if way == "tasks" else ())).refused(words)
    assert not [path for path in tmp_path.iterdir() if "layout" in path.name or path.name == "ssd"]


def test_a_table_is_named_once(tiering_cli, prepare, tmp_path):
    command = ("layout", prepare(np.zeros((40, 2), np.float32)), "--out", tmp_path / "layout")
    both = ("--dtype", "node=int8", "--dtype", "node=float16")
    tiering_cli(*command, *both).refused(
        "rows of 'node' cannot be stored as both int8 and float16; give one of the two"
    )
    with pytest.raises(tiering.errors.InputError, match="found 8"):
        tiering.write_layout(tmp_path / "reordered", out=tmp_path / "layout", dtype=8)


@pytest.mark.parametrize("fill", [0.0, 3.7, 1e-41, -0.0, 2.0**126 * (1 - 2.0**-24)], ids="{:.3g}".format)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3"])
def test_columns_of_one_value(tiering_cli, prepare, tmp_path, fill, dtype):
    """Zero, constant, subnormal and the largest: finite when decoded, and what int8 promises of them."""
    rows = np.full((40, 3), fill, np.float32)
    tiering_cli("layout", prepare(rows), "--dtype", dtype, "--out", tmp_path / "layout").ok()
    made = tiering.export_layout(tmp_path / "layout", tmp_path / "out")
    found = np.load(made.path / "nodes/node/feat.npy")
    expected = np.where(np.abs(rows) < 2.0**-126, 0, rows)
    np.testing.assert_allclose(found, expected, rtol=0 if dtype == "int8" else 2.0**-4)


@pytest.mark.parametrize("count", [0, 1])
def test_types_of_no_row_and_of_one(tmp_path, count):
    toy = coded_toy(tmp_path / "data", rows=count)
    layout, _ = lay_out(chain(toy, tmp_path)[2], tmp_path / "made", gpu=None, peer=None, cpu="50%", dtype="int8")
    loss = table_entry(layout.path, "author")[0]["codec"]["loss"]
    assert tiering.check(layout.path, "full") == [] and loss["exact_columns"] == 7 and loss["rms"] == 0


@pytest.mark.parametrize("file", ["codecs/paper", f"codecs/{EDGES.replace(':', '__')}", "tiers/paper/cpu", "ssd"])
def test_a_flipped_bit_is_found(made, tiering_cli, tmp_path, file):
    layout, _ = lay_out(made[1], tmp_path / "made", dtype=["int8", "author=float16"])
    path = layout.artifact.images[1] if file == "ssd" else layout.path / file
    flip(path, 9)
    name = "ssd-1" if file == "ssd" else file
    assert [problem.kind for problem in tiering.check(layout.path, "full")] == ["checksum"]
    assert (said := tiering_cli("check", layout.path, "--full")).code == 1 and "1 problem" in said.out
    if "writes" not in file:  # edges are exported from the graph
        with pytest.raises(FormatError, match=name):
            tiering.export_layout(layout.path, tmp_path / "out")
    if file.startswith("codecs"):
        assert [problem.where for problem in tiering.check(layout.path)] == [name]
        with tiering.open(layout.path) as opened, pytest.raises(FormatError, match=name):
            opened.artifact.codec(file.removeprefix("codecs/").replace("__", ":"))
