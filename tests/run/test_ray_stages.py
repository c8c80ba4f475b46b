"""Steps of the pipeline on Ray: the same bytes for any cut, and when workers, machines and drivers die in a stage."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import held, hold
from ray_programs import Driver, kill_node
from real_steps import STEPS, assert_same, prepare

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'tiering[ray]'"
    ),
]
HELD = {
    "import": "node__to__node.sort-1", "degree": "type-0.sum-1", "wrpr": "sweep-1-2", "vip": "find-1-1",
    "presample": "sum-1", "reorder": "relation-0.merge-0", "layout": "rows.files-1",
}  # fmt: skip
"""A task of each step that is held while something dies: it has read what earlier tasks have left."""


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """A cluster of two nodes of one processor, and who leads jobs there."""
    with Driver(nodes=2) as begun:
        yield begun


@pytest.fixture(scope="module")
def four() -> Iterator[Driver]:
    """A cluster of four."""
    with Driver(nodes=4) as begun:
        yield begun


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("steps"))


def some(values: list[str], chosen: str) -> list[object]:
    """One in every run, the others with the long tests."""
    return [value if value == chosen else pytest.param(value, marks=pytest.mark.long) for value in values]


def begin(driver: Driver, step: str, prepared: Path, tmp_path: Path, **more: object) -> int:
    """Have a step run; the process that is held in its task."""
    asked = hold(tmp_path / "held", HELD[step])
    driver.ask("step", step=step, folder=prepared, out=tmp_path / "out", hold=asked, **more)
    return held(tmp_path / "held", HELD[step], 0, 60)


@pytest.mark.parametrize("step", some(STEPS, "reorder"))
def test_a_worker_is_killed(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    pid = begin(driver, step, prepared, tmp_path)
    os.kill(pid, signal.SIGKILL)
    found = driver.answer(120)
    assert_same(step, prepared, tmp_path / "out")
    assert (found["retried"], found["recovered"], found["copies"]) == (1, 0, 0)
    assert f"process {pid} of " in found["errors"][0]


@pytest.mark.parametrize("step", some(STEPS, "degree"))
def test_without_another_try_it_fails(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    os.kill(begin(driver, step, prepared, tmp_path, retry={"attempts": 1}), signal.SIGKILL)
    assert driver.answer(120)["error"] == "LostWorkerError"
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_two_of_four_nodes_are_killed(four: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    """The node of the task that is held; then that of its second attempt."""
    asked = hold(tmp_path / "held", HELD[step], times=2)
    four.ask("step", step=step, folder=prepared, out=tmp_path / "out", hold=asked)
    for number in range(2):
        kill_node(held(tmp_path / "held", HELD[step], number, 60))
    found = four.answer(120)
    four.ask("add_nodes", count=2).answer(60)
    assert_same(step, prepared, tmp_path / "out")
    assert found["retried"] >= 2
    assert found["recovered"] == 0
    assert any("Ray there, is gone" in error for error in found["errors"]), found["errors"]


@pytest.mark.parametrize("step", some(STEPS, "import"))
def test_a_node_is_killed(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    kill_node(begin(driver, step, prepared, tmp_path))
    found = driver.answer(120)
    driver.ask("add_nodes", count=1).answer(60)
    assert_same(step, prepared, tmp_path / "out")
    assert (found["retried"] > 0, found["recovered"]) == (True, 0)
    assert any("Ray there, is gone" in error for error in found["errors"]), found["errors"]


@pytest.mark.parametrize("step", some(STEPS, "layout"))
def test_a_worker_is_frozen(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    pid = begin(driver, step, prepared, tmp_path, retry={"straggler_floor": 2.0})
    os.kill(pid, signal.SIGSTOP)
    found = driver.answer(120)
    assert_same(step, prepared, tmp_path / "out")
    assert found["copies"] >= 1
    assert found["recovered"] == 0


@pytest.mark.parametrize("step", some(STEPS, "wrpr"))
def test_the_driver_is_killed(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    with Driver(like=driver) as first:
        begin(first, step, prepared, tmp_path)
        first.kill()
    found = driver.ask("step", step=step, folder=prepared, out=tmp_path / "out").answer(120)
    assert_same(step, prepared, tmp_path / "out")
    assert found["skipped"] > 0
    assert found["retried"] == 0


@pytest.mark.parametrize("step", some(STEPS, "presample"))
def test_any_cut(driver: Driver, prepared: Path, tmp_path: Path, step: str) -> None:
    """By a number of parts that is not that of the machines."""
    driver.ask("step", step=step, folder=prepared, out=tmp_path / "out", shards=5).answer(120)
    assert_same(step, prepared, tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_grid(prepared: Path, tmp_path: Path, workers: int) -> None:
    """Every step for each number of parts, on so many workers."""
    with Driver(nodes=workers) as cluster:
        for shards in (1, 3, 8, 16):
            for step in STEPS:
                out = tmp_path / f"{step}-{shards}"
                cluster.ask("step", step=step, folder=prepared, out=out, shards=shards).answer(300)
                assert_same(step, prepared, out)
                shutil.rmtree(out)
