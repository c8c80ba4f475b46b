"""`--dry-run`: says what a command would take, writes nothing, refuses what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

TOTALS = ("seconds", "memory", "disk_read", "disk_written", "disk_scratch", "disk_left")


@pytest.fixture
def commands(chain, tiny_dataset, tmp_path):
    """Each command with the inputs it needs, made beforehand."""
    graph, scores, reordered = chain / "graph", chain / "scores", chain / "reordered"
    chain = tmp_path / "chain.toml"
    chain.write_text('[dataset]\npath = "tiny"\n[score]\nmethod = "degree"\n[output]\ndir = "chain"\n')
    return {
        "import": ("import", tiny_dataset, "--out", tmp_path / "out", "--edge-ids"),
        "score": ("score", graph, "--out", tmp_path / "out", "--fanouts", "3,3"),
        "reorder": ("reorder", graph, "--scores", scores, "--out", tmp_path / "out", "--features"),
        "layout": ("layout", reordered, "--out", tmp_path / "out", "--gpu", "10%", "--ssd", tmp_path / "ssd"),
        "export": ("export", reordered, "--out", tmp_path / "out", "--original-order"),
        "run": ("run", chain),
    }


def tree(folder: Path) -> dict[str, int]:
    """Every file and directory with its time of change."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["import", "score", "reorder", "layout", "export", "run"])
def test_says_and_writes_nothing(commands, tiering_cli, tmp_path, name):
    before = tree(tmp_path)
    said = tiering_cli(*commands[name], "--dry-run").ok()
    document = tiering_cli(*commands[name], "--dry-run", "--json").ok().json
    assert tree(tmp_path) == before
    stages = ["import", "score", "reorder", "layout"] if name == "run" else [name]
    assert [stage["stage"] for stage in document["stages"]] == stages
    for stage in stages:
        assert f"{stage} -> " in said.out
    assert said.out.count("time: ") == len(stages) and "10 ns per edge and thread" in said.out
    for word in ("step", "method", "peak memory", "written", "left", "total", "nothing was run"):
        assert word in said.out
    assert document["dry_run"] is True and document["fits"] is True
    for total in TOTALS:
        parts = [stage[total] for stage in document["stages"]]
        expected = max(parts) if total == "memory" else sum(parts)
        assert document[total] == pytest.approx(expected, abs=1e-3)
    assert document["seconds"] > 0 and document["disk_left"] > 0
    assert document["assumed"] == {"disk_bytes_per_second": 1e9, "seconds_per_edge": 1e-8}


@pytest.mark.parametrize("name", ["import", "score", "reorder", "layout", "export", "run"])
def test_a_disk_that_is_too_small(commands, tiering_cli, monkeypatch, name):
    monkeypatch.setattr("tiering.run.plan.disk_free", lambda path: 100)
    result = tiering_cli(*commands[name], "--dry-run")
    assert "total" in result.out  # the plan is printed all the same
    result.refused("needed, 100 B free", "make room")
    document = tiering_cli(*commands[name], "--dry-run", "--json")
    assert document.code == 1 and document.json["fits"] is False


def test_wrong_input_is_refused_as_without(commands, tiering_cli, tmp_path):
    _, graph, *_ = commands["score"]
    _, reordered, *_ = commands["layout"]
    for arguments in (
        ("import", tmp_path / "nothing", "--out", tmp_path / "out"),
        ("import", tmp_path / "tiny", "--out", tmp_path / "out", "--num-nodes", "3"),
        ("score", graph, "--out", tmp_path / "out", "--method", "vip"),
        ("reorder", reordered, *commands["reorder"][2:4], "--out", tmp_path / "out"),
        ("layout", graph, "--out", tmp_path / "out"),
        ("layout", reordered, "--out", tmp_path / "out", "--gpu", "1TiB"),
    ):
        with_it = tiering_cli(*arguments, "--dry-run")
        assert with_it.refused() == tiering_cli(*arguments).refused()
