"""A full check by tasks says what one process says: of sound artifacts, damaged blocks, and files that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from damage import flip
from toy_datasets import chain, toy_dataset

import tiering
from tiering.artifacts import checksum
from tiering.artifacts.checksum import Verifier
from tiering.errors import MissingError, StorageError
from tiering.run.job import ClusterOptions


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    toy = toy_dataset(tmp_path / "data", 9, max_nodes=120, min_nodes=100, featureless=0, dims=(17, 140, 600))
    disks = [tmp_path / "a", tmp_path / "b"]
    return tiering.write_layout(chain(toy, tmp_path)[2], tmp_path / "layout", gpu="20%", cpu="20%", ssd=disks)


def shares(monkeypatch):
    """The blocks that are read together, of each file."""
    asked, damaged = [], Verifier.damaged

    def watched(self, blocks, *options):
        blocks = list(blocks)
        asked.append((self.path.name, blocks))
        return damaged(self, blocks, *options)

    monkeypatch.setattr(Verifier, "damaged", watched)
    return asked


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_tasks_say_what_one_process_says(layout, tiering_cli, tmp_path, monkeypatch, parts):
    asked, options = shares(monkeypatch), ClusterOptions(shards=parts, workers=2)
    path, image = layout.path, layout.artifact.images[1]
    assert tiering.check(path, "full", cluster=options) == []
    blocks = [block for name, blocks in asked if name == image.name for block in blocks]
    assert sorted(blocks) == list(range(checksum.num_blocks(image.stat().st_size))), "each block once"
    flip(image, 5000)
    flip(image, image.stat().st_size - 1)
    flip(path / "tiers" / "author" / "gpu", 3)
    (path / "graph" / "order" / "nodes" / "author" / "score").unlink()
    expected = tiering.check(path, "full")
    assert len(expected) >= 3
    assert tiering.check(path, "full", cluster=options) == expected
    command = ["check", path, "--full", "--json"]
    said = [tiering_cli(*command, *more).json for more in ([], ["--executor", "local", "--shards", str(parts)])]
    assert said[0] == said[1]
    assert {one.name for one in tmp_path.iterdir()} == {"data", "graph", "scores", "reordered", "layout", "a", "b"}


@pytest.mark.parametrize("damage", ["manifest", "gone", "unreadable"])
def test_what_tasks_cannot_read_is_said_as_without_them(layout, tmp_path, monkeypatch, damage):
    if damage == "unreadable":
        digests = checksum.block_digests

        def failing(path, *options):
            if Path(path).resolve().name == "cpu":
                raise StorageError(5, "no more")
            return digests(path, *options)

        monkeypatch.setattr(checksum, "block_digests", failing)
    elif damage == "gone":
        (layout.path / "manifest.json").unlink()
    else:
        (layout.path / "manifest.json").write_text("{")
    before = sorted(path.name for path in tmp_path.iterdir())

    def said(**how):
        try:
            return tiering.check(layout.path, "full", **how)
        except MissingError as error:
            return str(error)

    assert said() and said(cluster=ClusterOptions(shards=3, workers=2)) == said()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_tasks_compare_all_blocks(layout, tiering_cli):
    tasks = ["--executor", "local", "--shards", "2"]
    tiering_cli("check", layout.path, *tasks).refused("--full")
    tiering_cli("check", layout.path, "--full", "--sample", "1%", *tasks).refused("--sample")
