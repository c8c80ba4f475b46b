"""A process that leads jobs on a Ray cluster, told what to do by lines (`Driver`): Ray stays out of pytest's process,
which forks, and tests may kill it.
"""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cluster_jobs
import real_steps

from tiering.run import ray as ray_module
from tiering.run.job import ClusterOptions, Counters, Job, RetryOptions
from tiering.run.ray import KEEPALIVE
from tiering.run.step import Step
from tiering.run.store import Store

MARK = "TIERING_TEST_MARK"
"""In the environment of all that a driver starts, directly or not."""


def environment(folder: Path, mark: str) -> dict[str, str]:
    """Of all processes of a cluster."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "HOME": str(folder), "RAY_TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parent), MARK: mark,
        # A node that is gone is noticed in seconds, as tests want it, and not in a quarter of a minute.
        "RAY_health_check_period_ms": "500", "RAY_health_check_initial_delay_ms": "500",
    }  # fmt: skip


@dataclass
class Host:
    """A network namespace with Ray in it, as a machine of its own, of one processor."""

    name: str
    address: str
    head: str
    """Address of the cluster."""

    @property
    def inside(self) -> list[str]:
        """What begins a command that runs there."""
        return ["ip", "netns", "exec", self.name]

    def start(self, mark: str, folder: Path) -> subprocess.Popen[bytes]:
        """Start Ray there, with shared memory of its own."""
        here = self.head.startswith(self.address)
        what = ["--head", "--port", self.head.partition(":")[2]] if here else ["--address", self.head]
        shell = 'mount -t tmpfs none /dev/shm && exec "$@"'
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block", *what]
        options = [
            "--node-ip-address", self.address, "--num-cpus", "1", "--object-store-memory", str(80 << 20),
        ]  # fmt: skip
        options += ["--include-dashboard", "false", "--disable-usage-stats"] if here else []
        more = {"RAY_AUTH_MODE": "disabled", **dict.fromkeys(KEEPALIVE, "3000")}
        return subprocess.Popen(
            [*self.inside, "unshare", "-m", "sh", "-c", shell, "sh", *ray, *options],
            env={**environment(folder, mark), **more},
            stdout=subprocess.DEVNULL,
        )


class Driver:
    """The process, seen from a test; a context manager.

    Parameters
    ----------
    host
        Join the cluster there.
    like
        Join the cluster of another driver.
    nodes
        Begin so many nodes of one processor each, beside a head of none; otherwise the executor starts a cluster.
    """

    def __init__(self, *, like: Driver | None = None, nodes: int = 0, host: Host | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = Path(tempfile.mkdtemp(prefix="ray-")) if like is None else like.folder
        self._own = like is None
        self._process = subprocess.Popen(
            [*(() if host is None else host.inside), sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(self.folder, self.mark),
            cwd=self.folder,
        )
        address = None if host is None else host.head
        address = address if like is None else like.started["address"]
        self.started = self.ask("start", address=address, nodes=nodes).answer(120)
        assert "error" not in self.started, self.started

    def ask(self, order: str, **arguments: Any) -> Driver:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, arguments], default=str) + "\n")
        self._process.stdin.flush()
        return self

    def answer(self, seconds: float = 60) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], seconds)[0], "the driver says nothing"
        line = self._process.stdout.readline()
        assert line, "the driver is gone"
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def left(self, seconds: float = 20) -> list[str]:
        """What the driver has started and still runs, when the time is over or nothing is left.

        Agents of Ray whose daemon was killed notice within a minute, and do nothing meanwhile.
        """
        end = time.monotonic() + seconds
        while found := [line for line in marked(self.mark) if "Agent" not in line]:
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        return found

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        left = self.left()
        for line in marked(self.mark):
            os.kill(int(line.split()[0]), signal.SIGKILL)
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, left


def marked(mark: str) -> list[str]:
    """Processes, each by its number and command, whose environment has a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes().rstrip(bytes(1))[:80]!r}")
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_node(worker: int) -> None:
    """Kill the node of a worker: its daemon and all workers there, at once."""
    daemon = parent(worker)
    family = [int(each.name) for each in Path("/proc").glob("[0-9]*") if each.name != str(os.getpid())]
    for pid in [daemon, *(each for each in family if _is_child(each, daemon))]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _is_child(pid: int, of: int) -> bool:
    try:
        return parent(pid) == of
    except OSError:
        return False


# --- in the process ------------------------------------------------------------------------------------------------


class _Program:
    """What the process can be told."""

    def start(self, address: str | None, nodes: int) -> dict[str, Any]:
        self.cluster: Any = None
        if nodes:
            ray_module._import_ray()
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            self.cluster = Cluster()
            for number, processors in enumerate((0, *[1] * nodes)):  # none where the driver and the cluster's head are
                own = {"resources": {f"tiering-{number}": 1}, "labels": {"place": f"rack-{number}"}}
                self.cluster.add_node(**{**_NODE, **own, "num_cpus": processors}, wait=False)
            self.cluster.wait_for_nodes()
            address = self.cluster.address
        self.executor = ray_module.RayExecutor(address, workers=2)
        import ray

        return {"address": ray.get_runtime_context().gcs_address}

    def run(
        self,
        store: str,
        hold: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] = {},
        options: Mapping[str, Any] = {},
    ) -> dict[str, Any]:
        """Run the small job; `options`: of the executor."""
        counters = Counters()
        often = RetryOptions(**{"poll": 0.1, **retry})
        executor = ray_module.RayExecutor(
            **options
        )  # which knows nothing of nodes that were there before: Ray itself goes on
        digest = cluster_jobs.run_job(Path(store), executor, hold, retry=often, counters=counters)
        return {"digest": digest, **asdict(counters)}

    def stage(
        self, store: str, function: str, params: Mapping[str, Any] = {}, threads: int = 1, **more: Any
    ) -> dict[str, Any]:
        """Run a stage of two tasks, which may fit nowhere; `more`: their memory, and options of the executor."""
        ray_module.SILENT_SECONDS, counters, memory = 1.0, Counters(), more.pop("memory", 0)
        job = Job(Store(store), "job", ray_module.RayExecutor(**more), threads=threads, counters=counters)
        job.run(Step("stage", f"cluster_jobs:{function}", 2, params, memory=memory))
        return asdict(counters)

    def with_node(self, environment: Mapping[str, str], store: str, **options: Any) -> dict[str, Any]:
        """Run a job while there is one more node, of another environment; `options`: of the executor."""
        node = self.cluster.add_node(**_NODE, env_vars=environment)
        try:
            return self.run(store, options=options)
        finally:
            self.cluster.remove_node(node)

    def joined_later(self, environment: Mapping[str, str], store: str, hold: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job during which one more node comes, of another environment: its tasks are held until a note on it."""
        with ThreadPoolExecutor(1) as pool, redirect_stderr(io.StringIO()) as said:
            running = pool.submit(self.run, store, hold)
            cluster_jobs.held(Path(hold["folder"]), hold["tasks"][0])
            node = self.cluster.add_node(**_NODE, env_vars=environment)
            try:
                end = time.monotonic() + 40
                while "is skipped" not in said.getvalue() and time.monotonic() < end:
                    time.sleep(0.05)
                for task in hold["tasks"]:
                    Path(hold["folder"], f"{task}.go").touch()
                return {**running.result(), "said": said.getvalue()}
            finally:
                self.cluster.remove_node(node)

    def lose_head(self, store: str, hold: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job whose cluster loses its head while a task is held."""
        ray_module.LOST_SECONDS, ray_module.LOOK_SECONDS = 3.0, 0.5
        process = self.cluster.head_node.all_processes["gcs_server"][0].process

        def kill() -> None:
            cluster_jobs.held(Path(hold["folder"]), hold["tasks"][0])
            os.kill(process.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            return self.run(store, hold)
        finally:
            thread.join()

    def step(self, step: str, folder: str, out: str, **options: Any) -> dict[str, Any]:
        """Run a step of the pipeline; `options`: of the session."""
        with real_steps.Watched(options=ClusterOptions("ray", address="auto", **options)) as cluster:
            real_steps.make(step, Path(folder), Path(out), cluster)
        return asdict(cluster.seen)

    def close(self) -> None:
        self.executor.close()
        if self.cluster is not None:
            self.cluster.shutdown()


_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    program = _Program()
    with tempfile.TemporaryFile("w+") as printed:
        os.dup2(printed.fileno(), 1)
        for line in sys.stdin:
            order, arguments = json.loads(line)
            try:
                answer = getattr(program, order)(**arguments)
            except Exception as error:
                answer = {"error": type(error).__name__, "text": str(error)}
            sys.stdout.flush()
            printed.seek(0)
            print(json.dumps({**answer, "printed": printed.read()}), file=answers, flush=True)
        program.close()


if __name__ == "__main__":
    _serve()
