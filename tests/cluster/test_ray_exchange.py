"""What tasks hand on in the memory of Ray's machines: the same bytes, whatever of it is lost meanwhile."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import MAPS, PARTS, held, hold, run_job
from ray_programs import Driver, kill_node

from tiering.cluster.executors.local import LocalExecutor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'tiering[ray]'"
    ),
]
ALL = MAPS + PARTS + 1
ROWS = 200_000
"""Parts of 800 KB: Ray keeps what is below 100 KB in the process that leads, which no other machine takes along."""
THROUGH = {"exchange": "ray", "rows": ROWS}


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """A cluster of two nodes of one processor, and who leads jobs there."""
    with Driver(nodes=2) as begun:
        yield begun


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the job on threads."""
    local = LocalExecutor(2)
    digest = run_job(tmp_path_factory.mktemp("plain"), local, rows=ROWS)
    local.close()
    return digest


def test_same_bytes_as_on_threads(driver: Driver, plain: str, tmp_path: Path) -> None:
    found = driver.ask("run", store=tmp_path, **THROUGH).answer()
    assert (found["digest"], found["run"], found["retried"], found["recovered"]) == (plain, ALL, 0, 0)
    assert len(list(tmp_path.rglob("*.json"))) == ALL + 3
    assert not list(tmp_path.rglob("*.segment"))


def test_what_is_kept_is_let_go(driver: Driver, tmp_path: Path) -> None:
    found = driver.ask("freed", store=tmp_path).answer()
    assert found["given"] == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    assert found["before"] >= MAPS * PARTS + PARTS + 1 + 2
    assert found["after"] == 0


@pytest.mark.parametrize("task", ["cut-3", "order-1"])
def test_a_worker_is_killed(driver: Driver, plain: str, tmp_path: Path, task: str) -> None:
    """What workers have made is Ray's: none of it is made again."""
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", task), **THROUGH)
    os.kill(held(tmp_path / "held", task), signal.SIGKILL)
    found = driver.answer()
    assert (found["digest"], found["run"], found["retried"], found["recovered"]) == (plain, ALL, 1, 0)


def test_a_worker_is_frozen(driver: Driver, plain: str, tmp_path: Path) -> None:
    """The parts that the copy hands on are those that count."""
    asked = hold(tmp_path / "held", "cut-3")
    driver.ask("run", store=tmp_path / "store", hold=asked, retry={"straggler_floor": 1.0}, **THROUGH)
    os.kill(held(tmp_path / "held", "cut-3"), signal.SIGSTOP)
    found = driver.answer()
    assert (found["digest"], found["run"], found["copies"], found["recovered"]) == (plain, ALL, 1, 0)


def test_the_driver_is_killed(driver: Driver, plain: str, tmp_path: Path) -> None:
    """Its objects go with it: manifests of tasks whose parts are gone do not count as done."""
    asked = hold(tmp_path / "held", "order-1")
    with Driver(like=driver) as first:
        first.ask("run", store=tmp_path / "store", hold=asked, **THROUGH)
        held(tmp_path / "held", "order-1")
        first.kill()
    assert len(list((tmp_path / "store" / "job" / "cut").glob("*.json"))) == MAPS
    found = driver.ask("run", store=tmp_path / "store", hold=asked, **THROUGH).answer()
    assert (found["digest"], found["run"], found["skipped"], found["recovered"]) == (plain, ALL, 0, 0)


def test_steps_of_the_pipeline(driver: Driver, tmp_path: Path) -> None:
    """A real import, wrpr and reorder: the artifacts are those of one process."""
    import tiering
    from tiering.datasets.generated.synthetic import generate

    data, own, found = tmp_path / "data", tmp_path / "own", tmp_path / "found"
    generate(data, nodes=600, edges=6000, dim=4)
    tiering.import_graph(data, own / "graph")
    tiering.score_graph(own / "graph", own / "scores", "wrpr", train="10%")
    tiering.reorder_graph(own / "graph", own / "scores", own / "reordered")
    answer = driver.ask("steps", data=data, out=found, store=tmp_path / "store").answer()
    assert answer.get("parts", 0) > 50, answer
    for name in ("graph", "scores", "reordered"):
        assert tiering.open(found / name).digest == tiering.open(own / name).digest
    assert not list((tmp_path / "store").rglob("*"))


def test_a_node_is_killed(driver: Driver, plain: str, tmp_path: Path) -> None:
    """Parts that lay there are made again, all of a stage at once; those of the other node are not."""
    driver.ask("run", store=tmp_path / "store", hold=hold(tmp_path / "held", "order-1"), **THROUGH)
    kill_node(held(tmp_path / "held", "order-1"))
    found = driver.answer()
    assert found["digest"] == plain
    assert 0 < found["recovered"] < ALL
    assert found["run"] == ALL + found["recovered"]
    assert any("of cut has to be run again: Ray has lost part" in error for error in found["errors"]), found["errors"]
