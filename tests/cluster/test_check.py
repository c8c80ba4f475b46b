"""What a check by tasks finds is what one process finds."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tiering
from tiering.artifacts import checksum

LOCAL = ["--executor", "local", "--workers", "2"]


@pytest.fixture
def layout(tiny_dataset, tmp_path):
    """A layout with two images."""
    graph = tiering.import_graph(tiny_dataset, tmp_path / "graph")
    ordered = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "s", "degree"), tmp_path / "ordered")
    ssd = [tmp_path / "ssd0", tmp_path / "ssd1"]
    tiering.write_layout(ordered, tmp_path / "layout", gpu="10%", cpu="20%", ssd=ssd, page=512)
    return tiering.open(tmp_path / "layout").artifact


def flip(path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 8]))


@pytest.mark.parametrize("shards", [[], ["--shards", "3"]])
def test_the_same_problems(tiering_cli, layout, shards):
    asked = ["check", layout.path, "--full", "--json"]
    more = [*LOCAL, *shards]
    sound = tiering_cli(*asked).ok()
    assert tiering_cli(*asked, *more).ok().json == sound.json
    inside = sorted(path for path in layout.path.rglob("indices"))
    for path in (inside[0], *layout.images):
        flip(path, path.stat().st_size // 2)
    expected, found = tiering_cli(*asked), tiering_cli(*asked, *more)
    assert found.code == expected.code == 1
    assert found.json == expected.json
    assert len(found.json["problems"]) == 3
    assert not list(layout.path.parent.glob(".*tasks"))


def test_files_of_many_blocks(tiering_cli, tmp_path, monkeypatch):
    """Blocks that are damaged, at the ends of runs and within, come in their order."""
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "edge_index.npy", np.random.default_rng(0).integers(0, 50, (2, 40_000_000), np.int32))
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph")
    file = max(graph.path.rglob("indices"))
    assert checksum.num_blocks(file.stat().st_size) == 3
    for block in (0, 2):
        flip(file, block * checksum.BLOCK_BYTES + 99)
    asked = ["check", graph.path, "--full", "--json"]
    assert tiering_cli(*asked, *LOCAL, "--shards", "2").json == tiering_cli(*asked).json


def test_a_file_that_is_gone_or_short(tiering_cli, layout):
    os.truncate(layout.images[0], 4096)
    layout.images[1].unlink()
    asked = ["check", layout.path, "--full", "--json"]
    expected = tiering_cli(*asked)
    assert (expected.code, tiering_cli(*asked, *LOCAL).json) == (1, expected.json)


def test_only_with_all_blocks(tiering_cli, layout):
    tiering_cli("check", layout.path, *LOCAL).refused("--executor", "--full")
    tiering_cli("check", layout.path, "--full", "--sample", "1%", *LOCAL).refused("--executor", "--full")
