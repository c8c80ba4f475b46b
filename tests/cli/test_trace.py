"""`tiering trace`: epochs without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from tiering import native
from tiering.cli.main import main
from tiering.errors import MissingError
from tiering.formats.layout import Layout


@pytest.fixture(scope="module")
def layout(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("trace")
    for line in (
        "generate @/dataset --nodes 2000 --edges 10000 --dim 16",
        "import @/dataset --out @/graph",
        "score @/graph --out @/scores --method degree",
        "reorder @/graph --scores @/scores --out @/reordered",
        "layout @/reordered --out @/layout --cpu 20% --ssd @/ssd",
    ):
        make(*line.replace("@", str(folder)).split()).ok()
    return folder / "layout"


def test_an_epoch_is_replayed(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["trace", str(layout), "--fanouts", "3,2", "--batch-size", "50", "--epochs", "2", "--json"]) == 0
    promoted = json.loads(capsys.readouterr().out)["epochs"]
    assert main(["trace", str(layout), "--fanouts", "3,2", "--batch-size", "50", "--memory", "tiers", "--json"]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["epochs"]
    assert [epoch["epoch"] for epoch in promoted] == [0, 1]
    assert promoted[0]["batches"] == alone["batches"] == 4
    assert promoted[0]["bytes"] == alone["bytes"]
    assert promoted[0]["reads"] == 0 < alone["reads"]
    assert sum(promoted[0]["rows"].values()) == sum(alone["rows"].values())


def test_training_nodes_of_its_own(layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fraction is the one that a score draws with the same seed; a file holds ids of the source."""
    opened = tiering.open(layout)
    drawn = np.sort(np.random.default_rng(0).choice(2000, 100, replace=False))
    np.save(tmp_path / "ids.npy", drawn)
    found = []
    for train in ("5%", str(tmp_path / "ids.npy"), "paper=5%"):
        capsys.readouterr()
        assert main(["trace", str(layout), "--train", train, "--batch-size", "30", "--fanouts", "2", "--json"]) == 0
        found += json.loads(capsys.readouterr().out)["epochs"]
    loader = opened.loader(seeds=opened.old_to_new()[drawn], fanouts=[2], batch_size=30)
    rows = sum(batch.nodes["paper"].shape[0] for batch in loader)
    assert [sum(epoch["rows"].values()) for epoch in found] == [rows] * 3 and found[0]["batches"] == 4
    assert main(["trace", str(layout), "--train", "val", "--batch-size", "50", "--json"]) == 0
    val = json.loads(capsys.readouterr().out)["epochs"][0]
    assert val["batches"] == -(-opened.split("val").size // 50)


def test_a_layout_without_a_split_says_what_to_do(tiering_cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "edge_index.npy", np.random.default_rng(0).integers(0, 50, (2, 300)))
    np.save(data / "node_feat.npy", np.ones((50, 4), np.float32))
    for line in (
        "import @/data --out @/graph",
        "score @/graph --out @/scores --method degree",
        "reorder @/graph --scores @/scores --out @/reordered",
        "layout @/reordered --out @/layout --cpu auto",
    ):
        tiering_cli(*line.replace("@", str(tmp_path)).split()).ok()
    tiering_cli("trace", tmp_path / "layout").refused("has no split 'train'", "--train of `tiering trace`")
    with pytest.raises(MissingError, match=r"has no split 'train'; .*seeds=IDS of loaders"):
        tiering.open(tmp_path / "layout").loader("train", fanouts=[2])
    tiering_cli("trace", tmp_path / "layout", "--train", "10%").ok()


def test_what_is_printed(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["trace", str(layout), "--batches", "2", "--batch-size", "50", "--memory", "tiers"]) == 0
    out = capsys.readouterr().out
    assert "epoch 0: " in out
    assert "2 batches" in out
    assert "bound by: " in out


def test_choices_are_printed_once(layout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "disk.json").write_text('{"reads_per_second": 700000, "bytes_per_second": 6.5e9, "latency": 324e-6}')
    asked = ["--ssd-model", str(tmp_path / "disk.json"), "--batch-size", "50", "--memory", "tiers"]
    for epochs in ("1", "3"):
        capsys.readouterr()
        assert main(["trace", str(layout), *asked, "--epochs", epochs]) == 0
        out = capsys.readouterr().out
        assert out.count("reads in flight for each stripe file") == 1 and out.count("bound by: ") == int(epochs)
        assert out.count("work seconds") == 1


def test_reads_in_flight_are_those_of_the_disk(layout: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """By its model 227 keep a Samsung 980 Pro busy; the file of the layout is read with so many."""
    opened = []
    plain = native.SsdReader
    monkeypatch.setattr(native, "SsdReader", lambda *given: (opened.append(given[3]), plain(*given))[1])
    (tmp_path / "disk.json").write_text('{"reads_per_second": 700000, "bytes_per_second": 6.5e9, "latency": 324e-6}')
    model = ["--ssd-model", str(tmp_path / "disk.json"), "--batch-size", "50", "--memory", "tiers"]
    for more, depth, share in (([], 227, 1.0), (["--depth", "128"], 128, 0.564)):
        opened.clear()
        capsys.readouterr()
        assert main(["trace", str(layout), *model, *more, "--json"]) == 0
        (epoch,) = json.loads(capsys.readouterr().out)["epochs"]
        assert epoch["queue_depth"]["depth"] == depth and opened == [depth]
        assert epoch["queue_depth"]["peak_share"] == pytest.approx(share, abs=1e-3)
    assert main(["trace", str(layout), *model, "--depth", "128"]) == 0
    assert "128 reads in flight for each stripe file (asked for): 56% of the disks' peak" in capsys.readouterr().out


def test_rows_in_the_page_cache_are_named(layout: Path, capsys: Any) -> None:
    for image in Layout.open(layout).images:
        image.read_bytes()
    assert main(["trace", str(layout), "--memory", "tiers"]) == 0
    assert "ssd, read" not in capsys.readouterr().out
    assert main(["trace", str(layout), "--memory", "tiers", "--direct", "on"]) == 0
    assert "ssd, read" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "words"), [
    (["--window", "few"], "window: expected a whole number of at least 1, or auto, found 'few'"),
    (["--window", "0"], "window: expected a whole number of at least 1, or auto, found 0"),
    (["--memory", "much"], "memory"),
    (["--engine", "aio"], "engine: expected one of auto, io_uring, threads, found 'aio'"),
    (["--split", "no"], "split"),
    (["--depth", "many"], "depth: expected a whole number of at least 1, or auto, found 'many'"),
    (["--depth", "0"], "depth: expected a whole number of at least 1, or auto, found 0"),
    (["--ssd-model", "missing.json"], "missing.json"),
    (["--ssd-model", "missing.json", "--memory", "tiers"], "missing.json"),
])  # fmt: skip
def test_bad_options(layout: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert main(["trace", str(layout), *options]) != 0
    assert words in capsys.readouterr().err
