"""The public Python API: one function for each command, from a dataset to a batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tiering
from tiering.errors import InputError


def test_from_a_dataset_to_a_batch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data = tiering.generate_dataset(tmp_path / "data", nodes=500, edges=4000, dim=8)
    graph = tiering.import_graph(data, out=tmp_path / "graph")
    scores = tiering.score_graph(graph, out=tmp_path / "scores", fanouts=[4, 4], batch_size=16)
    found = tiering.evaluate_scores(tmp_path / "graph", [scores], fanouts=[4, 4], batch_size=16, epochs=1)
    assert set(found.hit_rates) == {"hybrid", "oracle"}
    reordered = tiering.reorder_graph(graph, tmp_path / "scores", out=tmp_path / "reordered")
    with tiering.write_layout(
        reordered, out=tmp_path / "layout", gpu="10%", cpu="30%", ssd=[tmp_path / "ssd"]
    ) as layout:
        batch = next(iter(layout.loader("train", fanouts=[4, 4], batch_size=16, seed=0)))
        assert batch.x.shape[1] == 8
    turned = tiering.transpose_graph(tiering.transpose_graph(graph, out=tmp_path / "once"), out=tmp_path / "twice")
    np.testing.assert_array_equal(turned.csc()[0], graph.csc()[0])
    assert all(name in dir(tiering) or getattr(tiering, name) for name in tiering.__all__)


def test_a_chain_gives_its_layout(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tiering.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    (tmp_path / "chain.toml").write_text(
        '[dataset]\npath = "data"\n[layout]\ncpu = "20%"\nssd = ["ssd"]\n[output]\ndir = "out"\n'
    )
    with tiering.run_chain(tmp_path / "chain.toml") as layout:
        assert layout.path == tmp_path / "out" / "layout"


def test_the_import_is_light() -> None:
    code = "import sys, tiering; assert not {'numpy', 'torch', 'tiering.pipeline'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'score'"):
        tiering.score  # noqa: B018


def test_errors_are_those_of_the_commands(tmp_path: Path) -> None:
    tiering.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    graph = tiering.import_graph(tmp_path / "data", out=tmp_path / "graph")
    with pytest.raises(InputError, match="method"):
        tiering.score_graph(graph, out=tmp_path / "scores", method="hotness")
