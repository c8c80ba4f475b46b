"""Exports that cannot be, or are stopped: one clear line, nothing that looks complete, and a run that goes on."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from damage import flip
from exported import prepare, single
from toy_datasets import tree_bytes

import tiering
from tiering.errors import FormatError, StorageError
from tiering.exports import arrays


@pytest.fixture(scope="module")
def layout(homogeneous):
    return homogeneous.layout.path


def test_what_is_there_is_kept_without_force(tiering_cli, layout, tmp_path):
    out = tmp_path / "out"
    made = tiering_cli("export", layout, "--out", out, "--json").ok().json
    assert made["order"] == "rank" and made["bytes"] > 0
    (out / "load.py").write_text("")  # of an export by an earlier version
    tiering_cli("export", layout, "--out", out).refused(str(out), "already exists", "--force")
    assert (out / "load.py").exists()
    assert "ranks" in tiering_cli("export", layout, "--out", out, "--force").ok().out
    assert not (out / "load.py").exists()


def test_wrong_words_and_inputs(tiering_cli, layout, homogeneous, tmp_path):
    out = ("--out", tmp_path / "out")
    tiering_cli("export", tmp_path / "none", *out).refused(str(tmp_path / "none"))
    scores = homogeneous.graph.path.parent / "scores"
    tiering_cli("export", scores, *out).refused("expected a layout, a graph or embeddings", "found scores")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small(tiering_cli, layout, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.artifacts.storage.disk_free", lambda path: 100)
    tiering_cli("export", layout, "--out", tmp_path / "out").refused("no space left", "make room")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("call", [0, 4, 7])
def test_a_stopped_export_looks_like_none_and_goes_on(layout, tmp_path, monkeypatch, original, call, capfd):
    expected = tiering.export_layout(layout, tmp_path / "whole" / "out", original_order=original)
    calls, append = [], arrays.FileWriter.append

    def stopped(self, *values):
        calls.append(self.path.name)
        if len(calls) > call:
            raise KeyboardInterrupt
        append(self, *values)

    out = tmp_path / "stopped" / "out"
    with monkeypatch.context() as patch:
        patch.setattr(arrays.FileWriter, "append", stopped)
        with pytest.raises(KeyboardInterrupt):
            tiering.export_layout(layout, out, original_order=original)
    assert len(calls) == call + 1 and not out.exists()
    written = []
    monkeypatch.setattr(
        arrays.FileWriter, "append", lambda self, *v: (written.append(self.path.name), append(self, *v))
    )
    made = tiering.export_layout(layout, out, original_order=original)
    assert tree_bytes(made.path) == tree_bytes(expected.path)
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    if call:
        assert "resuming an earlier run" in capfd.readouterr().err and calls[0] not in written


def test_other_options_do_not_go_on_with_what_was_left(layout, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(arrays.TableReader, "read", stopped)
        tiering.export_layout(layout, tmp_path / "out")
    made = tiering.export_layout(layout, tmp_path / "out", original_order=True)
    assert made.document["order"] == "original" and made.document["node_types"]["author"]["new_to_old"] is None


@pytest.fixture
def damaged(tmp_path):
    """A layout of its own, to be damaged."""
    return prepare(single(tmp_path / "data"), tmp_path).layout.artifact


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("which", ["image", "tier", "adjacency", "order"])
def test_damage_is_refused_before_anything_has_a_name(damaged, tmp_path, which, original):
    path = {
        "image": damaged.images[0],
        "tier": damaged.path / "tiers" / "author" / "cpu",
        "adjacency": damaged.path / "graph" / "relations" / "author__cites__author" / "indices",
        "order": damaged.path / "graph" / "order" / "nodes" / "author" / "new_to_old",
    }[which]
    flip(path, 0)
    with pytest.raises(FormatError, match="checksum"):
        tiering.export_layout(damaged.path, tmp_path / "out", original_order=original)
    assert not (tmp_path / "out").exists()


def test_unverified_damage_in_adjacency_is_no_id(damaged, tmp_path):
    path = damaged.path / "graph" / "relations" / "author__cites__author" / "indices"
    ids = np.fromfile(path, np.int32)
    for wrong in (damaged.graph.num_nodes("author"), 1 << 20):
        ids[7] = wrong
        ids.tofile(path)
        for original in (False, True):
            with pytest.raises(FormatError, match=str(wrong)):
                tiering.export_layout(damaged.path, tmp_path / "out", original_order=original, verify=False)


def test_an_image_that_is_gone(damaged, tmp_path):
    shutil.rmtree(damaged.images[0].parent)
    with pytest.raises((FormatError, StorageError), match="does not exist"):
        tiering.export_layout(damaged.path, tmp_path / "out")
