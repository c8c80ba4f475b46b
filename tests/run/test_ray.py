"""Jobs on Ray: the same bytes as on threads, whatever is killed or frozen meanwhile."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from cluster_jobs import MAPS, PARTS, held, hold, run_job
from ray_programs import MARK, Driver, kill_node, marked
from real_steps import STEPS, assert_same, prepare

from tiering.run.job import Counters
from tiering.run.step import LocalExecutor
from tiering.version import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'tiering[ray]'"
    ),
]
ALL = MAPS + PARTS + 1
RUN = "from tiering.cli.main import run; run()"


@pytest.fixture(scope="module")
def driver():
    """A cluster of two nodes of one processor, and who leads jobs there."""
    with Driver(nodes=2) as begun:
        yield begun


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The digest of the job on threads."""
    local = LocalExecutor(2)
    digest = run_job(tmp_path_factory.mktemp("plain"), local)
    local.close()
    return digest


def test_same_bytes_as_on_threads(driver, plain, tmp_path):
    found = driver.ask("run", store=tmp_path).answer()
    assert (found["digest"], found["run"], found["retried"], found["copies"]) == (plain, ALL, 0, 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("steps"))


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step in ("import", "presample") else pytest.mark.long) for step in STEPS]
)
@pytest.mark.parametrize("shards", [5, pytest.param(16, marks=pytest.mark.long)])
def test_steps_of_the_pipeline(driver, prepared, tmp_path, step, shards):
    driver.ask("step", step=step, folder=prepared, out=tmp_path / "out", shards=shards).answer(300)
    assert_same(step, prepared, tmp_path / "out")


@pytest.mark.parametrize("task", ["cut-3", "order-1", "add-0"])
def test_a_worker_is_killed(driver, plain, tmp_path, task):
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", task))
    pid = held(tmp_path / "held", task)
    os.kill(pid, signal.SIGKILL)
    found = driver.answer()
    assert (found["digest"], found["run"], found["retried"]) == (plain, ALL, 1)
    stage, _, index = task.partition("-")
    assert f"task {index} of {stage} on process {pid} of " in found["errors"][0]
    assert found["printed"] == ""


def test_a_worker_is_killed_and_nothing_is_tried_again(driver, tmp_path):
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-3"), retry={"attempts": 1})
    os.kill(held(tmp_path / "held", "cut-3"), signal.SIGKILL)
    found = driver.answer()
    assert found["error"] == "LostWorkerError"
    assert "its process was killed or crashed" in found["text"]


def test_a_worker_is_frozen(driver, plain, tmp_path):
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-3"), retry={"straggler_floor": 1.0})
    pid = held(tmp_path / "held", "cut-3")
    os.kill(pid, signal.SIGSTOP)
    found = driver.answer()
    assert (found["digest"], found["run"]) == (plain, ALL)
    assert found["copies"] >= 1  # more where the machine is busy
    assert found["retried"] <= 1  # where the machine is busy, Ray may give the frozen worker up


def test_the_driver_is_killed(driver, plain, tmp_path):
    with Driver(like=driver) as first:
        first.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-5"))
        held(tmp_path / "held", "cut-5")
        first.kill()
    found = driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-5")).answer()
    assert found["digest"] == plain
    assert found["skipped"] > 0
    assert found["skipped"] + found["run"] == ALL


def test_mistakes_of_a_program_are_not_tried_again(driver, tmp_path):
    params = {"folder": str(tmp_path), "times": 100, "kind": "bug"}
    found = driver.ask("stage", store=tmp_path / "store", function="fail", params=params).answer()
    assert found["error"] == "InternalError"
    assert "in fail\n" in found["text"]
    assert found["text"].endswith("ZeroDivisionError: a mistake in the program")
    assert {path.name for path in tmp_path.glob("failed-*")} <= {"failed-0.0", "failed-1.0"}


def test_errors_of_tasks_come_as_they_are(driver, tmp_path):
    params = {"folder": str(tmp_path), "times": 100, "kind": "input"}
    found = driver.ask("stage", store=tmp_path / "store", function="fail", params=params).answer()
    assert found["error"] == "InputError"
    (tmp_path / "other").mkdir()
    params = {"folder": str(tmp_path / "other"), "times": 1}
    found = driver.ask("stage", store=tmp_path / "again", function="fail", params=params).answer()
    assert (found["run"], found["retried"]) == (2, 2)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"memory": 3 << 40}, "1 processors and 3 TiB for a task; found, of 2: "),
        ({"threads": 9}, "9 processors and"),
        ({"resources": {"elsewhere": 0.5}}, "for a task, elsewhere=0.5; found"),
        ({"resources": {"place": "rack-7"}}, "for a task, place=rack-7; found"),
    ],
)
def test_a_task_that_fits_nowhere_ends_the_job(driver, tmp_path, asked, words):
    """With an error that names the stage, what its tasks need, and the machines."""
    found = driver.ask("stage", store=tmp_path, function="nothing", **asked).answer()
    assert found["error"] == "CapabilityError"
    assert found["text"].startswith("step stage: expected a machine with ")
    assert found["text"].count(f"{os.uname().nodename} (1 processors, ") == 2
    for each in (words, "use smaller tasks (`task_memory`), or add such a machine", "finished tasks are kept"):
        assert each in found["text"]


@pytest.mark.parametrize("wanted", [{"tiering-1": 1}, {"place": "rack-1"}, {"tiering-1": 0.1, "place": "rack-1"}])
def test_machines_are_left_out_that_lack_resources_or_labels(driver, plain, tmp_path, wanted):
    found = driver.ask("with_node", store=tmp_path, environment={}, resources=wanted).answer()
    assert (found.get("text"), found.get("digest")) == (None, plain)


LACKS = {
    "another version": (
        "import sys, types\nsys.modules['tiering.version'] = types.SimpleNamespace(__version__='0.0.7')\n",
        f"expected tiering {build()}, found 0.0.7",
    ),
    "another build": (
        "import tiering.version\ntiering.version.build = lambda: '0.1.0 (build of other sources)'\n",
        f"expected tiering {build()}, found 0.1.0 (build of other sources); install the same build on all machines",
    ),
    "no tiering": (
        "import sys\nsys.modules['tiering'] = None\n",
        f"expected tiering {build()}, found none (ModuleNotFoundError",
    ),
    "no store": (
        "import os\nplain = os.stat\n"
        "def stat(path, *rest, **more):\n"
        "    if '/plans/' in str(path):\n        raise FileNotFoundError(2, 'No such file', str(path))\n"
        "    return plain(path, *rest, **more)\nos.stat = stat\n",
        "is missing in the store",
    ),
    "another output directory": (
        "import os\nplain = os.stat\n"
        "def stat(path, *rest, **more):\n"
        "    if '/.attempts/' in str(path):\n        raise FileNotFoundError(2, 'No such file', str(path))\n"
        "    return plain(path, *rest, **more)\nos.stat = stat\n",
        "expected the output directory ",
    ),
}
"""What a machine that joins later lacks: a module that its interpreters begin with, and the note on it."""


@pytest.mark.parametrize("lack", LACKS)
def test_a_node_that_joins_later_and_cannot_run_tasks_is_left_out(driver, plain, tmp_path, lack):
    (tmp_path / "sitecustomize.py").write_text(LACKS[lack][0])
    asked = hold(tmp_path / "held", "cut-0", "cut-1", "cut-2", "cut-3", "cut-4", "cut-5")
    more = {"environment": {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parent.parent / 'support'}"}, "hold": asked}
    found = driver.ask("joined_later", store=tmp_path / "store", **more).answer()
    assert (found.get("text"), found.get("digest"), found.get("run"), found.get("retried")) == (None, plain, ALL, 0)
    assert LACKS[lack][1] in found["said"]
    assert found["said"].count("; this machine is skipped") == 1


def test_a_head_that_is_lost_ends_the_job(plain, tmp_path):
    """By one line of ours; what is done stays for a cluster that is started later."""
    with Driver(nodes=1) as driver:
        found = driver.ask("lose_head", store=tmp_path / "store", hold=hold(tmp_path / "held", "order-1")).answer()
        assert found["error"] == "LostWorkerError"
        assert re.fullmatch(
            r"the head of the Ray cluster at \S+ has not answered for 3 s; start the cluster again, then run the same "
            "command again: finished tasks are kept",
            found["text"],
        )
        driver.kill()
    local, counters = LocalExecutor(2), Counters()
    assert run_job(tmp_path / "store", local, hold(tmp_path / "held", "order-1"), counters=counters) == plain
    assert counters.skipped >= MAPS
    local.close()


def test_a_cluster_that_is_not_there(tiny_dataset, tmp_path):
    """Told at once, by one line, and nothing is left."""
    address = "127.0.0.1:1"
    command = [sys.executable, "-c", RUN, "import", str(tiny_dataset), "--out", str(tmp_path / "out")]
    more = ["--executor", "ray", "--address", address, "--shards", "2"]
    found = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    assert re.fullmatch(rf"error: a Ray cluster at '{address}' cannot be joined: .*\n", found.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]


def test_a_node_is_killed(driver, plain, tmp_path):
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "cut-4"))
    kill_node(held(tmp_path / "held", "cut-4"))
    found = driver.answer()
    assert (found["digest"], found["run"]) == (plain, ALL)
    assert found["retried"] > 0
    assert any("Ray on it, is gone" in error for error in found["errors"]), found["errors"]


def test_a_command_on_a_cluster_of_its_own(tiny_dataset, tmp_path):
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
    parts = [("count", 2), ("scatter", 2), ("sort", 2), ("files", 2)]
    said = [
        f"node__to__node.{name}: step {n} of 4, {tasks} of {tasks} tasks" for n, (name, tasks) in enumerate(parts, 1)
    ]
    assert [line for line in found[1].stderr.splitlines() if line.startswith("node__to__node.")] == said
    said = [json.loads(each.stdout.replace("by ray", "plain")) for each in found]
    assert said[0] == said[1]
    graph, other = tmp_path / "plain", tmp_path / "by ray"
    arrays = [path.relative_to(graph) for path in graph.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(arrays) > 3
    assert all((graph / name).read_bytes() == (other / name).read_bytes() for name in arrays)
    assert not list(tmp_path.glob(".*tasks"))
    assert not marked(mark)
