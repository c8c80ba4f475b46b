"""Jobs on Ray: the same bytes as on threads, whatever is killed or frozen meanwhile."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import MAPS, PARTS, held, hold, run_job
from ray_programs import MARK, Driver, kill_node, marked

from tiering.cluster.executors.local import LocalExecutor
from tiering.cluster.executors.nodes import KEEPALIVE
from tiering.version import __version__

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'tiering[ray]'"
    ),
]
ALL = MAPS + PARTS + 1
RUN = "from tiering.cli.main import run; run()"


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """A cluster of two nodes of one processor, and who leads jobs there."""
    with Driver(nodes=2) as begun:
        yield begun


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the job on threads."""
    local = LocalExecutor(2)
    digest = run_job(tmp_path_factory.mktemp("plain"), local)
    local.close()
    return digest


def test_same_bytes_as_on_threads(driver: Driver, plain: str, tmp_path: Path) -> None:
    found = driver.ask("run", store=tmp_path).answer()
    assert (found["digest"], found["run"], found["retried"], found["copies"]) == (plain, ALL, 0, 0)
    assert not list(tmp_path.glob("check-*"))


@pytest.mark.parametrize("task", ["cut-3", "order-1", "add-0"])
def test_a_worker_is_killed(driver: Driver, plain: str, tmp_path: Path, task: str) -> None:
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", task))
    pid = held(tmp_path / "held", task)
    os.kill(pid, signal.SIGKILL)
    found = driver.answer()
    assert (found["digest"], found["run"], found["retried"]) == (plain, ALL, 1)
    stage, _, index = task.partition("-")
    assert f"task {index} of {stage} on process {pid} of " in found["errors"][0]
    assert found["printed"] == ""


def test_a_worker_is_killed_and_nothing_is_tried_again(driver: Driver, tmp_path: Path) -> None:
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-3"), retry={"attempts": 1})
    os.kill(held(tmp_path / "held", "cut-3"), signal.SIGKILL)
    found = driver.answer()
    assert found["error"] == "LostWorkerError"
    assert "its process was killed or crashed" in found["text"]


def test_a_worker_is_frozen(driver: Driver, plain: str, tmp_path: Path) -> None:
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-3"), retry={"straggler_floor": 1.0})
    pid = held(tmp_path / "held", "cut-3")
    os.kill(pid, signal.SIGSTOP)
    found = driver.answer()
    assert (found["digest"], found["run"], found["copies"], found["retried"]) == (plain, ALL, 1, 0)


def test_the_driver_is_killed(driver: Driver, plain: str, tmp_path: Path) -> None:
    with Driver(like=driver) as first:
        first.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-5"))
        held(tmp_path / "held", "cut-5")
        first.kill()
    found = driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-5")).answer()
    assert found["digest"] == plain
    assert found["skipped"] > 0
    assert found["skipped"] + found["run"] == ALL


def test_mistakes_of_a_program_are_not_tried_again(driver: Driver, tmp_path: Path) -> None:
    params = {"folder": str(tmp_path), "times": 100, "kind": "bug"}
    found = driver.ask("stage", store=tmp_path / "store", function="fail", params=params).answer()
    assert found["error"] == "InternalError"
    assert "in fail\n" in found["text"]
    assert found["text"].endswith("ZeroDivisionError: a mistake in the program")
    assert {path.name for path in tmp_path.glob("failed-*")} <= {"failed-0.0", "failed-1.0"}


def test_errors_of_tasks_come_as_they_are(driver: Driver, tmp_path: Path) -> None:
    params = {"folder": str(tmp_path), "times": 100, "kind": "input"}
    found = driver.ask("stage", store=tmp_path / "store", function="fail", params=params).answer()
    assert found["error"] == "InputError"
    (tmp_path / "other").mkdir()
    params = {"folder": str(tmp_path / "other"), "times": 1}
    found = driver.ask("stage", store=tmp_path / "again", function="fail", params=params).answer()
    assert (found["run"], found["retried"]) == (2, 2)


def test_a_task_that_fits_nowhere_is_told_of_once(driver: Driver, tmp_path: Path) -> None:
    found = driver.ask("wide", store=tmp_path).answer()
    assert found["found"] == [[], []]
    assert found["said"].count("no task has begun") == 1
    assert (
        "one of wide asks for 9 processors and 3 GiB; the cluster has 2 machines for tasks, the largest of 1 processors"
        in (found["said"])
    )


def test_a_node_without_keepalive_is_refused(driver: Driver, tmp_path: Path) -> None:
    found = driver.ask(
        "with_node", store=tmp_path, environment={KEEPALIVE[0]: "300000", KEEPALIVE[1]: "120000"}
    ).answer()
    assert found["error"] == "CapabilityError"
    for words in (f"{KEEPALIVE[0]} is 300000", f"{KEEPALIVE[1]} is 120000", "before `ray start`", os.uname().nodename):
        assert words in found["text"]


def test_a_node_of_another_version_is_refused(driver: Driver, tmp_path: Path) -> None:
    other = "import sys, types\nsys.modules['tiering.version'] = types.SimpleNamespace(__version__='0.0.7')\n"
    (tmp_path / "sitecustomize.py").write_text(other)
    found = driver.ask("with_node", store=tmp_path / "store", environment={"PYTHONPATH": str(tmp_path)}).answer()
    assert found["error"] == "CapabilityError"
    assert f"every machine needs tiering {__version__}" in found["text"]
    assert "(0.0.7)" in found["text"]


def test_a_node_is_killed(driver: Driver, plain: str, tmp_path: Path) -> None:
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-4"))
    kill_node(held(tmp_path / "held", "cut-4"))
    found = driver.answer()
    assert (found["digest"], found["run"]) == (plain, ALL)
    assert found["retried"] > 0
    assert any("Ray there, is gone" in error for error in found["errors"]), found["errors"]


def test_a_command_on_a_cluster_of_its_own(tiny_dataset: Path, tmp_path: Path) -> None:
    """The same artifact as without it, and standard output as commands promise it."""
    command = [sys.executable, "-c", RUN, "import", str(tiny_dataset), "--json", "--out"]
    more = ["--executor", "ray", "--workers", "1", "--shards", "2"]
    mark = str(uuid.uuid4())
    there = {**os.environ, MARK: mark}
    found = [
        subprocess.run([*command, str(tmp_path / out), *options], capture_output=True, text=True, env=there)
        for out, options in (("plain", []), ("by ray", more))
    ]
    assert [each.returncode for each in found] == [0, 0], found[1].stderr
    assert found[1].stderr == ""
    said = [json.loads(each.stdout.replace("by ray", "plain")) for each in found]
    assert said[0] == said[1]
    graph, other = tmp_path / "plain", tmp_path / "by ray"
    arrays = [path.relative_to(graph) for path in graph.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(arrays) > 3
    assert all((graph / name).read_bytes() == (other / name).read_bytes() for name in arrays)
    assert not list(tmp_path.glob(".*tasks"))
    assert not marked(mark)
