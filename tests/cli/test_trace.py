"""`tiering trace`: epochs without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiering.cli.main import main


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    ssd = tmp_path / "ssd"
    ssd.mkdir()
    steps = [
        ["generate", f"{tmp_path}/dataset", "--nodes", "2000", "--edges", "10000", "--dim", "16"],
        ["import", f"{tmp_path}/dataset", "--out", f"{tmp_path}/graph"],
        ["score", f"{tmp_path}/graph", "--out", f"{tmp_path}/scores", "--method", "degree"],
        ["reorder", f"{tmp_path}/graph", "--scores", f"{tmp_path}/scores", "--out", f"{tmp_path}/reordered"],
        ["layout", f"{tmp_path}/reordered", "--out", f"{tmp_path}/layout", "--cpu", "20%", "--ssd", str(ssd)],
    ]
    for step in steps:
        assert main(step) == 0
    return tmp_path / "layout"


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


def test_what_is_printed(layout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["trace", str(layout), "--batches", "2", "--batch-size", "50", "--memory", "tiers"]) == 0
    out = capsys.readouterr().out
    assert "epoch 0: " in out
    assert "2 batches" in out
    assert "bound by: " in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--window", "few"], "window: expected auto or a whole number of at least 1, found 'few'"),
        (["--window", "0"], "window: expected auto or a whole number of at least 1, found 0"),
        (["--memory", "much"], "memory"),
        (["--engine", "aio"], "engine: expected one of auto, io_uring, threads, found 'aio'"),
        (["--split", "no"], "split"),
    ],
)
def test_bad_options(layout: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert main(["trace", str(layout), *options]) != 0
    assert words in capsys.readouterr().err
