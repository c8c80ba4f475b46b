"""SIGKILL in the middle of a stage: nothing opens as valid, and the same command then succeeds."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from toy_datasets import chain, toy_dataset, tree_bytes
from warm_processes import Interpreter

import tiering
from tiering import pipeline
from tiering.errors import MissingError

from ..conftest import write_tiny_dataset

# Runs one stage, but stops inside it, at a point where files are written and others are not.
STOPPED = """
import sys, time
from tiering import pipeline
from tiering.artifacts.writer import ArtifactWriter
import tiering.layout.writer, tiering.reorder.graph

def stop(*arguments, **options):
    print("reached", flush=True)
    time.sleep(60)

{patch}
{run}
"""

STAGES = {
    "import": ("ArtifactWriter.commit = stop", "pipeline.import_graph({tiny!r}, {out!r})"),
    "score": ("ArtifactWriter.commit = stop", "pipeline.score_graph({graph!r}, {out!r}, 'wrpr')"),
    "reorder": ("tiering.reorder.graph.write_nodes = stop", "pipeline.reorder_graph({graph!r}, {scores!r}, {out!r})"),
    "reorder, at the end": (
        "ArtifactWriter.commit = stop",
        "pipeline.reorder_graph({graph!r}, {scores!r}, {out!r}, features=True)",
    ),
    "layout": (
        "tiering.layout.writer.write_ssd = stop",
        "pipeline.layout({reordered!r}, {out!r}, gpu='10%', ssd=[{ssd!r}])",
    ),
    "layout, at the end": (
        "ArtifactWriter.commit = stop",
        "pipeline.layout({reordered!r}, {out!r}, gpu='10%', ssd=[{ssd!r}])",
    ),
}


def kill(stage: str, folder: Path) -> str:
    """Kill a stage where it stops; return its command."""
    chain(toy_dataset(folder / "data", 4, featureless=0, min_nodes=30), folder)
    write_tiny_dataset(folder / "tiny")
    names = {name: str(folder / name) for name in ("tiny", "graph", "scores", "reordered", "out", "ssd")}
    patch, run = (text.format(**names) for text in STAGES[stage])
    script = STOPPED.format(patch=patch, run=run)
    process = Interpreter(script)
    process.wait_for("reached\n")
    process.kill()
    assert process.wait().returncode == -signal.SIGKILL
    return run


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_leaves_nothing_that_opens(tmp_path: Path, stage: str) -> None:
    run = kill(stage, tmp_path)
    with pytest.raises(MissingError):
        tiering.check(tmp_path / "out")
    exec(run, {"pipeline": pipeline})  # noqa: S102 - the same command, in this process
    assert tiering.check(tmp_path / "out", "full") == []
    left = [path for path in [*tmp_path.iterdir(), *(tmp_path / "ssd").glob("*")] if path.name.startswith(".")]
    assert left == []


def test_a_killed_layout_with_other_options_leaves_no_image(tmp_path: Path) -> None:
    kill("layout", tmp_path)
    layout = pipeline.layout(tmp_path / "reordered", tmp_path / "out", gpu="20%", ssd=[tmp_path / "ssd"])
    assert set(tree_bytes(tmp_path / "ssd")) == {
        f"{layout.images[0].parent.name}/{name}" for name in ("layout", "ssd-0-of-1")
    }
