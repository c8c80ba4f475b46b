"""Plans: totals of steps and stages, and whether they fit the disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiering.errors import StorageError
from tiering.execution import forecast as forecast_module
from tiering.execution.costs import KERNELS, kernel_seconds
from tiering.execution.forecast import Forecast
from tiering.execution.plan import StagePlan, Step
from tiering.execution.rates import TABLES, Disk, Rates, measure_rates

STEPS = (
    Step("one", "in memory", memory=100, disk_read=7, disk_written=20, seconds=0.5),
    Step("two", "scatter", memory=300, disk_written=30, disk_scratch=1000, seconds=1.25),
)


def test_totals(tmp_path):
    plan = StagePlan("import", tmp_path / "out", STEPS, {tmp_path / "out": 50, tmp_path / "ssd": 70}, 1000)
    assert (plan.memory, plan.disk_read, plan.disk_written, plan.disk_scratch) == (1300, 7, 50, 1000)
    assert (plan.disk_left, plan.seconds) == (120, 1.75)
    assert plan.needed() == {tmp_path / "out": 1050, tmp_path / "ssd": 70}
    document = json.loads(json.dumps(plan.to_json()))
    assert document["memory"] == 1300 and [step["name"] for step in document["steps"]] == ["one", "two"]
    assert document["left"] == {str(tmp_path / "out"): 50, str(tmp_path / "ssd"): 70}


def test_what_earlier_stages_leave_counts(tmp_path, monkeypatch):
    """The fullest moment: what lies there already, and the scratch of the stage that runs."""
    first = StagePlan("import", tmp_path / "a", STEPS, {tmp_path / "a": 50})
    second = StagePlan("score", tmp_path / "b", (), {tmp_path / "b": 900})
    third = StagePlan("reorder", tmp_path / "c", (Step("r", "", disk_scratch=200),), {tmp_path / "c": 30})
    made = Forecast((first, second, third), Rates())
    for free, fits in ((1180, True), (1179, False)):
        monkeypatch.setattr(forecast_module, "disk_free", lambda path, free=free: free)
        assert (made.shortages() == []) is fits
    with pytest.raises(StorageError, match=r"1.152 KiB needed, 1.151 KiB free; make room"):
        made.require_space()
    assert made.to_json()["fits"] is False and made.memory == 300


def test_rates_are_measured_and_nothing_is_left(tmp_path):
    found = measure_rates(1, None, tmp_path / "not" / "there")
    assert found.threads == 1 and found.one_disk
    assert all(rate > 0 for rate in (found.edge, found.copy, found.touch, *found.gather))
    assert 1e-10 < found.edge < 1e-5 and 1e8 < found.copy < 1e13 and len(found.gather) == len(TABLES)
    for rate in (found.target.read, found.target.write, found.target.put):
        assert 1e5 < rate < 1e12
    assert 0 < found.target.sync < 60
    assert list(tmp_path.iterdir()) == []
    assert measure_rates(1, None, tmp_path / "else") == found  # measured once


def test_access_is_between_the_tables():
    rates = Rates(gather=(4e8, 2e8, 1e8))
    assert rates.access(1) == rates.access(TABLES[0]) == pytest.approx(2.5e-9)
    assert rates.access(TABLES[1]) == pytest.approx(5e-9)
    assert rates.access(1 << 40) == pytest.approx(1e-8)
    assert rates.access(TABLES[0]) < rates.access(1 << 21) < rates.access(TABLES[1])


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_cost_more_where_there_is_more(name):
    rates = Rates(2, 6e-9, 1e10, 2e9, (3e8, 2e8, 1e8), Disk(), Disk())
    assert 0 < kernel_seconds(name, 1000, rates, 1000) <= kernel_seconds(name, 1000, rates, 1 << 30)
    assert kernel_seconds(name, 2000, rates, 1000) == pytest.approx(2 * kernel_seconds(name, 1000, rates, 1000))
    slow = Rates(2, 6e-8, 1e9, 2e8, (3e7, 2e7, 1e7), Disk(), Disk())
    assert kernel_seconds(name, 1000, slow, 1000) == pytest.approx(10 * kernel_seconds(name, 1000, rates, 1000))


def test_output_of_a_stage_that_is_there_needs_nothing(tmp_path):
    plan = StagePlan("import", Path("graph"), (), {}, 5)
    assert (plan.memory, plan.disk_left, plan.needed()) == (5, 0, {})
