"""Machines that see other files than the driver are left out; errors of tasks say where they ran. Ray is a stand-in."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiering.errors import CapabilityError, InputError, MissingError, RefusedError, StorageError
from tiering.run import ray as ray_module
from tiering.run.job import Job, RetryOptions
from tiering.run.ray import RayExecutor, make_attempt
from tiering.run.sight import difference, mark_and_look
from tiering.run.step import Step, TaskContext
from tiering.run.store import Store

HERE = f"on process {os.getpid()} of {socket.gethostname()}"


def read_input(context: TaskContext) -> dict[str, Any]:
    """A task that reads the input, and writes a file into the output directory."""
    content = Path(context.params["source"]).read_text()
    Path(context.params["folder"], f"file-{context.index}").write_text(content)
    return {"content": content}


def fail(context: TaskContext) -> None:
    """A task that finds something wrong with its input."""
    raise {
        "input": InputError("edges.npy: expected ids below 3, found 7; correct it"),
        "storage": StorageError(5, "edges.npy: Input/output error"),
        "refused": RefusedError("expected sorted offsets", "adjacency"),
        "missing": MissingError("edges.npy: no such file"),
    }[context.params["kind"]]


class FakeRay:
    """Machines that are this process; `views` are what makes an attempt, by machine. The first takes all."""

    class exceptions:  # noqa: N801 - as in Ray
        RayError = LocalRayletDiedError = type("RayError", (Exception,), {})

    cloudpickle = pickle

    def __init__(self, views: dict[str, Callable[[], Any]]) -> None:
        self.views, self.waiting = views, list[Any]()

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:1")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1}, "NodeID": name, "Labels": {}} for name in self.views]

    def remote(self, **_: Any) -> Any:
        return lambda _: SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self._start(options)))

    def _start(self, options: dict[str, Any]) -> Callable[[bytes, str], Any]:
        excluded = options["label_selector"].get("ray.io/node-id", "")
        name = next((name for name in self.views if name not in excluded), None)

        def run(data: bytes, _: str) -> Iterator[Any]:
            yield f"process 7 of {name}", name
            yield self.views[name](*pickle.loads(data))

        def begin(data: bytes, build: str) -> Iterator[Any]:
            answers = run(data, build)
            self.waiting += [answers] if name is None else []
            return answers

        return begin

    def wait(self, answers: list[Any], num_returns: int, **_: Any) -> tuple[list[Any], list[Any]]:
        return [answer for answer in answers if answer not in self.waiting][:num_returns], []

    def get(self, value: Any) -> Any:
        return value

    def cancel(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Run a step of three tasks on stand-ins for machines."""
    monkeypatch.setattr(ray_module, "_connect_to", lambda _: None)
    monkeypatch.setattr(ray_module, "SILENT_SECONDS", 0.0)

    def run(params: dict[str, Any], function: str = "read_input", **views: Callable[..., Any]) -> Any:
        monkeypatch.setattr(ray_module, "_import_ray", lambda: FakeRay(views))
        executor = RayExecutor()
        try:
            job = Job(Store(tmp_path / "store"), "job", executor, retry=RetryOptions(poll=0.01, attempts=2))
            return job.run(Step("read", f"{__name__}:{function}", 3, params))
        finally:
            executor.close()

    return run


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    """An input, and the directory of an unfinished artifact."""
    (tmp_path / "edges.txt").write_text("0 1")
    (tmp_path / "out").mkdir()
    return {"source": str(tmp_path / "edges.txt"), "folder": str(tmp_path / "out")}


def without(name: str) -> Callable[..., Any]:
    """A machine on which another file or nothing lies at a path: it has disks of its own."""

    def make(call: Any, seen: dict[str, str]) -> Any:
        return make_attempt(call, {path.replace(f"/{name}", f"/not-{name}"): what for path, what in seen.items()})

    return make


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("edges.txt", "not-edges.txt: expected a file of 3 bytes, as the driver sees it, found nothing"),
        ("out", "not-out of this run, found none or another run's"),
    ],
)
def test_a_machine_without_the_input_or_the_output_is_left_out(
    run_on: Any, params: dict[str, Any], capfd: Any, name: str, words: str
) -> None:
    made = run_on(params, blind=without(name), sighted=make_attempt)
    assert [record["facts"]["content"] for record in made] == ["0 1"] * 3
    said = capfd.readouterr().err
    assert said.startswith("note: process 7 of blind: ")
    assert f"{words}; this machine is skipped\n" in said
    assert said.count("is skipped") == 1
    assert sorted(path.name for path in Path(params["folder"]).glob("file-*")) == ["file-0", "file-1", "file-2"]


def test_no_machine_is_left(run_on: Any, params: dict[str, Any]) -> None:
    with pytest.raises(CapabilityError) as caught:
        run_on(params, first=without("edges.txt"), second=without("out"))
    for words in ("step read: no machine of the cluster can run its tasks. process 7 of first: ", "; process 7 of sec"):
        assert words in str(caught.value)


def test_a_file_that_a_task_misses_leaves_its_machine_out(run_on: Any, params: dict[str, Any], capfd: Any) -> None:
    """Such as a file of an artifact that was copied in part; where all machines miss it, one error says so."""
    with pytest.raises(
        CapabilityError, match=r"process 7 of first: edges\.npy: no such file; process 7 of second: edges"
    ):
        run_on({**params, "kind": "missing"}, "fail", first=make_attempt, second=make_attempt)
    assert capfd.readouterr().err.count("edges.npy: no such file; this machine is skipped") == 2


@pytest.mark.parametrize(
    ("kind", "error"), [("input", InputError), ("storage", StorageError), ("refused", RefusedError)]
)
def test_errors_of_tasks_say_where_they_ran(run_on: Any, params: dict[str, Any], kind: str, error: type) -> None:
    def elsewhere(*sent: Any) -> Any:
        return pickle.loads(pickle.dumps(make_attempt(*sent)))  # as it comes from another machine

    with pytest.raises(error, match=rf" \(task \d of read {HERE}\)$"):
        run_on({**params, "kind": kind}, "fail", only=elsewhere)


def test_other_inputs_at_the_same_path_differ(tmp_path: Path) -> None:
    graph = tmp_path / 'graph "2" é'
    graph.mkdir()
    (graph / "manifest.json").write_text("{}")
    params = {"graph": str(graph), "relation": {"name": "/no/path", "files": [str(graph / "manifest.json")]}}
    seen = mark_and_look(params, "mark")
    assert difference(seen) is None
    assert len(seen) == 2
    (graph / "manifest.json").write_text("[]")
    assert "é: expected an artifact with manifest " in (difference(seen) or "")
