"""A machine whose cable is cut while it works: network namespaces stand for machines."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_jobs import MAPS, PARTS, held, hold, run_job
from ray_programs import Driver, Host, marked

from tiering.run.job import Counters
from tiering.run.step import LocalExecutor
from tiering.run.store import Store

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2, for namespaces"),
]
ALL = MAPS + PARTS + 1


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Two machines with a cable between them: the head, and one that is cut off by ``eth`` of the first."""
    mark = uuid.uuid4().hex
    made = [Host(f"tiering{mark[:6]}{n}", f"10.99.0.{n + 1}", "10.99.0.1:6399") for n in range(2)]
    started: list[subprocess.Popen[bytes]] = []
    folders = [Path(tempfile.mkdtemp(prefix="ray-")) for _ in made]  # a short name, for sockets
    try:
        for host in made:
            ip("netns", "add", host.name)
            ip("-n", host.name, "link", "set", "lo", "up")
        ip("-n", made[0].name, "link", "add", "eth", "type", "veth", "peer", "name", "eth", "netns", made[1].name)
        for host in made:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth")
            ip("-n", host.name, "link", "set", "eth", "up")
        for host, folder in zip(made, folders, strict=True):
            started.append(host.start(mark, folder))
            time.sleep(8)  # until the head listens, and the other has joined
        yield made
    finally:
        for line in marked(mark):
            os.kill(int(line.split()[0]), signal.SIGKILL)
        for process in started:
            process.wait()
        for host in made:
            ip("netns", "del", host.name)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def test_a_machine_is_cut_off_and_writes_on(hosts: list[Host], tmp_path: Path) -> None:
    local = LocalExecutor(2)
    plain = run_job(tmp_path / "plain", local)
    local.close()
    folder, store = tmp_path / "held", Store(str(tmp_path / "store"))
    with Driver(host=hosts[0]) as driver:
        driver.ask("run", store=store.url, hold=hold(folder, "cut-0", "cut-1", seconds=200))
        pids = {task: held(folder, task) for task in ("cut-0", "cut-1")}
        (there,) = [task for task, pid in pids.items() if is_on(pid, hosts[1])]
        (here,) = set(pids) - {there}
        ip("-n", hosts[0].name, "link", "set", "eth", "down")
        (folder / f"{here}.go").touch()
        found = driver.answer(100)
        assert (found["digest"], found["run"]) == (plain, ALL)
        assert found["retried"] > 0, found
        assert is_on(pids[there], hosts[1])
        (folder / f"{there}.go").touch()  # what was cut off goes on, and finds that its task is done
        wait_for(folder / f"{there}.gone")
    assert len(list((tmp_path / "store").rglob("*.shuffle"))) == ALL
    local = LocalExecutor(2)
    counters = Counters()
    assert run_job(store, local, hold(folder, "cut-0", "cut-1", seconds=200), counters=counters) == plain
    assert counters.skipped == ALL
    local.close()


def wait_for(file: Path) -> None:
    end = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < end, f"{file} does not come"
        time.sleep(0.1)
    time.sleep(2)  # to write, and to claim


def is_on(pid: int, host: Host) -> bool:
    there = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True)
    return str(pid) in there.stdout.split()
