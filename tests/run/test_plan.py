"""Plans: totals of steps and stages, and whether they fit the disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiering.errors import StorageError
from tiering.run import plan as plan_module
from tiering.run.plan import DISK_RATE, EDGE_SECONDS, Estimate, StageEstimate, StepEstimate

STEPS = (
    StepEstimate("one", "in memory", memory=100, disk_read=7, disk_written=20),
    StepEstimate("two", "scatter", memory=300, disk_written=30, disk_scratch=1000),
)


def test_totals(tmp_path):
    plan = StageEstimate("import", tmp_path / "out", STEPS, {tmp_path / "out": 50, tmp_path / "ssd": 70}, 1000)
    assert (plan.memory, plan.disk_read, plan.disk_written, plan.disk_scratch) == (1300, 7, 50, 1000)
    assert plan.disk_left == 120
    assert plan.needed() == {tmp_path / "out": 1050, tmp_path / "ssd": 70}
    document = json.loads(json.dumps(plan.to_json()))
    assert document["memory"] == 1300 and [step["name"] for step in document["steps"]] == ["one", "two"]
    assert document["left"] == {str(tmp_path / "out"): 50, str(tmp_path / "ssd"): 70}


def test_what_earlier_stages_leave_counts(tmp_path, monkeypatch):
    """The fullest moment: what lies there already, and the scratch of the stage that runs."""
    first = StageEstimate("import", tmp_path / "a", STEPS, {tmp_path / "a": 50})
    second = StageEstimate("score", tmp_path / "b", (), {tmp_path / "b": 900})
    third = StageEstimate("reorder", tmp_path / "c", (StepEstimate("r", "", disk_scratch=200),), {tmp_path / "c": 30})
    made = Estimate((first, second, third))
    for free, fits in ((1180, True), (1179, False)):
        monkeypatch.setattr(plan_module, "disk_free", lambda path, free=free: free)
        assert (made.shortages() == []) is fits
    with pytest.raises(StorageError, match=r"1.152 KiB needed, 1.151 KiB free; make room"):
        made.require_space()
    assert made.to_json()["fits"] is False and made.memory == 300


def test_time_is_bytes_moved_and_edges_by_thread():
    """Scratch is written and read; rows and nodes are counted by their bytes."""
    edges = StepEstimate(
        "e", "", disk_read=1 << 30, disk_written=1 << 29, disk_scratch=1 << 28, amount=10**9, unit="edge"
    )
    rows = StepEstimate("r", "", disk_read=1 << 29, amount=10**9, unit="row")
    for threads in (1, 8):
        plan = StageEstimate("import", Path("graph"), (edges, rows), threads=threads)
        assert plan.seconds == pytest.approx((5 << 29) / DISK_RATE + 10**9 * EDGE_SECONDS / threads)
    assert Estimate((plan, plan)).seconds == 2 * plan.seconds


def test_output_of_a_stage_that_is_there_needs_nothing(tmp_path):
    plan = StageEstimate("import", Path("graph"), (), {}, 5)
    assert (plan.memory, plan.disk_left, plan.needed()) == (5, 0, {})
