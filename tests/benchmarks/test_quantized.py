"""Parts of the benchmark of codecs: the model against PyG's, the statistics by hand, and all parts, tiny."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks.harness import Sizes
from benchmarks.quantized.padding import ROW_BYTES, StripeFile, pad_to_pages
from benchmarks.quantized.report import BEGIN, GRAPHS, PAGE, PARTS, TABLES
from benchmarks.quantized.sizes import published
from tiering.artifacts.storage import aligned_bytes
from tiering.errors import InternalError
from tiering.formats.layout import SsdRows

TINY = ["--features", "1MiB", "--repeats", "1", "--seeds", "2", "--nodes", "1000", "--seconds", "0.05"]


@pytest.fixture(scope="module")
def accuracy():
    pytest.importorskip("torch")
    return pytest.importorskip("benchmarks.quantized.accuracy")


@pytest.fixture
def graphs(tmp_path):
    """A random graph of 800 nodes and 4 classes for each that there is a part of; that of tolokers has 2 classes."""
    random = np.random.default_rng(0)
    for name in GRAPHS:
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "node_feat.npy", random.standard_normal((800, 5), np.float32))
        np.save(tmp_path / name / "edge_index.npy", random.integers(0, 800, (2, 2400)))
        np.save(tmp_path / name / "node_label.npy", np.arange(800) % (2 if name == "tolokers" else 4))
    return tmp_path


def test_the_model_is_that_of_pygs_sage(accuracy, graphs):
    """Logits of some nodes from those and their neighbors only, and gradients, with the weights of two `SAGEConv`."""
    pyg, torch = pytest.importorskip("torch_geometric.nn"), pytest.importorskip("torch")
    rows, graph = accuracy.load_graph(graphs / "cora", both_ways=False)
    edges, targets = torch.from_numpy(np.load(graphs / "cora" / "edge_index.npy")), np.array([3, 30, 200])
    first, second = pyg.SAGEConv(5, 8), pyg.SAGEConv(8, 4)
    model = accuracy.Sage(5, 8, 4, dropout=0.0)
    pairs = [(model.from_mean, first.lin_l), (model.from_self, first.lin_r)]
    pairs += [(model.to_mean, second.lin_l), (model.to_self, second.lin_r)]
    for own, theirs in pairs:
        own.load_state_dict(theirs.state_dict())
    x = torch.from_numpy(rows)
    expected = second(first(x, edges).relu(), edges)[targets]
    found = model(x, torch.from_numpy(graph.mean @ rows), graph.mean[targets], targets)
    torch.testing.assert_close(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    for own, theirs in pairs:
        torch.testing.assert_close(own.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("name", GRAPHS)
def test_splits_are_drawn_for_each_seed_and_share_no_node(accuracy, name):
    labels = np.random.default_rng(3).integers(0, 4, 2000 if name == "cora" else 300)
    labels[:4] = range(4)
    drawn = [accuracy.SETTINGS[name].draw(labels, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    first, valid, test = drawn[0]
    assert np.unique(np.concatenate(drawn[0])).size == first.size + valid.size + test.size
    assert all((a == b).all() for a, b in zip(*drawn[:2], strict=True)) and set(first) != set(drawn[2][0])
    if name == "tolokers":
        assert (first.size, valid.size, test.size) == (150, 75, 75)
        return
    assert (np.bincount(labels[first]) == 20).all()
    if name == "cora":
        assert (valid.size, test.size) == (500, 1000)
    else:
        assert (np.bincount(labels[valid]) == 30).all() and test.size == 300 - 200


def test_statistics_by_hand(accuracy):
    assert accuracy.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert accuracy.holm([0.9, 0.8]) == [1.0, 1.0]
    differences = np.array([1.0, 2.0, 3.0, 4.0])  # t = 2.5 / (1.29099 / 2) = 3.87298
    assert accuracy.p_value(differences) == pytest.approx(0.0304662, rel=1e-4)
    assert accuracy.interval(differences) == pytest.approx(3.18245 * 1.29099 / 2, rel=1e-4)
    assert accuracy.p_value(np.zeros(4)) == 1.0
    logits, labels = np.array([[0, 0.1], [0, 0.4], [0, 0.35], [0, 0.8]], np.float32), np.array([0, 0, 1, 1])
    assert accuracy.score(logits, labels, auc=True) == 0.75
    assert accuracy.score(logits, labels, auc=False) == 0.5


def test_a_codec_that_destroys_the_features_differs(accuracy, graphs, monkeypatch):
    """Labels that can be read off a feature: a table of zeros in place of int8's lies beyond the interval."""
    rows = np.load(graphs / "dblp-citation" / "node_feat.npy")
    rows[:, 0] = np.load(graphs / "dblp-citation" / "node_label.npy") * 3
    np.save(graphs / "dblp-citation" / "node_feat.npy", rows)
    decode = accuracy.CODECS["int8"].decode
    monkeypatch.setattr(accuracy.CODECS["int8"], "decode", lambda self, stored: 0 * decode(self, stored))
    table = accuracy.measure("dblp-citation", graphs, 3)
    found = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert found["int8"]["differs"] == "yes" and found["int8"]["difference"] < -0.2
    assert found["bfloat16"]["differs"] == "no" and found["float32"]["exact columns"] == "5 of 5"
    assert found["float16"]["rms"] < found["int8"]["rms"] < 0.01 and found["int8"]["row bytes"] == 8


def test_sizes_by_hand():
    table = published(Sizes())
    lines = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    igb, papers = ([line for line in lines if line["table"].startswith(name)] for name in ("igb-full", "mag240m"))
    assert [line["stored as"] for line in igb] == ["float32", "float16, bfloat16", "float8_e4m3, int8"]
    assert [line["bytes"] for line in igb] == [269_346_174 * row_bytes for row_bytes in (4096, 2048, 1024)]
    assert [round(line["share of rows in memory"], 4) for line in igb] == [0.1246, 0.2492, 0.4983]
    half, quarter = papers  # rows of 1536 B, 2 in a page; of 768 B, padded to 1024, 4 in a page; 85 in 64 KiB
    assert (half["on ssd, padded"], quarter["on ssd, padded"]) == (
        -(-121_751_666 // 2) * 4096,
        -(-121_751_666 // 4) * 4096,
    )
    assert (half["stride"], quarter["stride"], quarter["on ssd"]) == (1536, 768, -(-121_751_666 // 85) * 65536)


@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_rows_that_are_not_those_of_the_file_are_not_timed(tmp_path, row_bytes):
    """Both places of rows are read as they were written; a byte that changed is noticed."""
    place = SsdRows.plan(0, 500, row_bytes, 65536)
    for file in (
        StripeFile(tmp_path / "tight", 500, row_bytes, place, 65536),
        StripeFile(tmp_path / "padded", 500, row_bytes, pad_to_pages(500, row_bytes), 4096),
    ):
        file.write()
        assert file.path.stat().st_size == file.place.num_units * file.unit
        wanted, arena = np.array([0, 3, 84, 85, 499], np.uint32), aligned_bytes(8 * row_bytes)
        found = file.read(wanted, 0, arena)
        assert found.reads >= 3 and found.nbytes >= 5 * row_bytes and found.seconds > 0
        per_unit, stride = file.place.rows_per_unit, file.place.stride
        with file.path.open("r+b") as image:
            image.seek(84 // per_unit * file.unit + 84 % per_unit * stride)
            image.write(b"\xff")
        with pytest.raises(InternalError, match="rows"):
            file.read(wanted, 0, arena)


def test_the_page_has_a_place_for_every_table(repository):
    page = (repository / "docs" / PAGE).read_text()
    assert all(page.count(BEGIN.format(place)) == 1 for place in TABLES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "no part 'nonsense'"),
        (["--seeds", "1"], "seeds: expected at least 2, found 1"),
        (["published", "--docs", "nowhere"], "expected the page nowhere/internals/quantized-rows.md"),
        (["cora", "--data", "nowhere"], "nowhere/cora: no such directory"),
    ],
)
def test_what_cannot_be_run_is_refused(capsys, arguments, said):
    assert program.main(["quantized", *arguments]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_all_parts_run_and_the_page_is_written(repository, graphs):
    pytest.importorskip("torch")
    for folder in ("benchmarks", "internals"):
        (graphs / "docs" / folder).mkdir(parents=True)
    shutil.copy(repository / "docs" / PAGE, graphs / "docs" / PAGE)
    before, figures = (graphs / "docs" / PAGE).read_text(), graphs / "figures.json"
    places = ["--data", graphs, "--dir", graphs, "--docs", graphs / "docs", "--json", figures]
    assert program.main(["quantized", *TINY, *map(str, places)]) == 0
    assert not list(graphs.glob("tiering-bench-*"))
    results = json.loads((graphs / "docs" / "benchmarks" / "quantized.json").read_text())
    assert results == json.loads(figures.read_text()) and list(results) == list(PARTS)
    assert all(part["tables"] and part["machine"]["cores"] for part in results.values())
    tables = [table for part in results.values() for table in part["tables"] if "rows" in table]
    assert all(table["rows"] and all(len(row) == len(table["heads"]) for row in table["rows"]) for table in tables)
    page = (graphs / "docs" / PAGE).read_text()
    assert page != before and "tolokers: ROC AUC" in page and page.count("\n| `int8` | ") == 1
    assert all(f"\n| {row_bytes}: " in page for row_bytes in ROW_BYTES)
    assert program.main(["quantized", "cora", *TINY, *map(str, places)]) == 0
    again = json.loads(figures.read_text())
    assert list(again) == list(results) and again["cora"]["tables"] == results["cora"]["tables"]
