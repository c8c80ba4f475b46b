"""A run that was killed or stopped goes on, and leaves nothing in the store once its output is there or given up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_steps
from child_process import Child
from cluster_jobs import NAME
from real_steps import assert_same, make, prepare

import tiering
from tiering.artifacts.atomic import ExternalDirectories, OutputDirectory
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import CapabilityError, InputError
from tiering.run import files
from tiering.run import step as tasks
from tiering.run.job import Carrier, ClusterOptions
from tiering.run.step import Call, attempt
from tiering.run.store import Store

LOCAL = ClusterOptions(shards=3, workers=2)
STEPS = ["import", "wrpr", "reorder", "layout"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("interrupted"))


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A dataset of several relations."""
    folder = tmp_path_factory.mktemp("typed")
    return tiering.generate_dataset(folder / "data", nodes=800, edges=5000, dim=4, hetero=True)


def killed(work: Callable[[], object], owner: Any, name: str, when: Callable[..., bool]) -> None:
    """Do `work` in a child that kills itself where the function `name` of `owner` is called and `when` says so."""
    plain = getattr(owner, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if when(*arguments, **more):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **more)

    def run() -> None:
        setattr(owner, name, call)
        work()

    child = Child(run)
    with pytest.raises(AssertionError, match=f"ended with {-signal.SIGKILL}"):
        child.result()


def nth(number: int) -> Callable[..., bool]:
    """Whether it is the call of that number."""
    count = iter(range(1, 10_000))
    return lambda *_, **more: next(count) == number and not more.get("given")


def whole(writer: ArtifactWriter, *_: object, **__: object) -> bool:
    """Whether it is an artifact that is in no other."""
    return writer._output is not None


def always(*_: object, **__: object) -> bool:
    return True


MOMENTS = {
    "a task": (tasks, "run_attempt", nth(5)),
    "before publication": (ArtifactWriter, "commit", whole),
    "after publication": (OutputDirectory, "_end", always),
    "while the store is removed": (ExternalDirectories, "_remove", always),
}


def left(folder: Path) -> list[str]:
    """What is in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("number", [9, 20, *(pytest.param(each, marks=pytest.mark.slow) for each in (3, 33, 50))])
def test_an_import_of_several_relations_goes_on(typed, tmp_path, number):
    """Relations that are there are not made again: those that are left have the names that they had."""
    expected = tiering.import_graph(typed, tmp_path / "expected").digest
    work = lambda: tiering.import_graph(typed, tmp_path / "out", cluster=LOCAL)  # noqa: E731
    killed(work, tasks, "run_attempt", nth(number))
    with Carrier(LOCAL) as cluster:
        assert tiering.import_graph(typed, tmp_path / "out", cluster=cluster).digest == expected
    assert left(tmp_path) == ["expected", "out"]


def test_names_of_relations_may_be_long(tmp_path):
    """As long as the graph itself allows: names of files end at 255 bytes."""
    name = "r" * 100
    (tmp_path / "data").mkdir()
    source = tmp_path / "data" / f"{'a' * 70}__{name}__{'b' * 70}"
    source.mkdir()
    np.save(source / "edge_index.npy", np.random.default_rng(1).integers(0, 50, (2, 300)))
    options = {"num_nodes": {"a" * 70: 50, "b" * 70: 50}}
    graphs = [
        tiering.import_graph(tmp_path / "data", tmp_path / out, cluster=cluster, **options)
        for out, cluster in (("plain", None), ("tasks", LOCAL))
    ]
    assert graphs[0].digest == graphs[1].digest


CASES = [(step, moment) for step in STEPS for moment in MOMENTS]


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        case if case[0] == "import" or case[1] == "before publication" else pytest.param(*case, marks=pytest.mark.slow)
        for case in CASES
    ],
)
def test_nothing_is_left_by_a_driver_that_was_killed(prepared, tmp_path, step, moment):
    store = tmp_path / "new" / "store"
    options = ClusterOptions(shards=3, workers=2, store=str(store))

    def work(cluster: Carrier | ClusterOptions = options) -> None:
        make(step, prepared, tmp_path / "out", cluster)  # type: ignore[arg-type]

    killed(work, *MOMENTS[moment])
    if (tmp_path / "out").exists():
        OutputDirectory.recover(tmp_path / "out")  # as every command does that is given it as output
    else:
        assert any(path.is_file() for path in store.rglob("*"))
        with real_steps.Watched(options=options) as cluster:
            work(cluster)
        assert cluster.seen.skipped > 0 if moment == "a task" else cluster.seen.run == 0
    assert_same(step, prepared, tmp_path / "out")
    assert left(tmp_path) == ["out"]


OTHERS: dict[str, Any] = {
    "other shards": {"cluster": ClusterOptions(shards=4, workers=2)},
    "another store": {"cluster": ClusterOptions(shards=3, workers=2, store="STORE/other")},
    "no tasks": {},
    "other options": {"cluster": LOCAL, "edge_ids": False},
}


@pytest.mark.parametrize("how", OTHERS)
def test_nothing_is_left_by_a_run_of_other_options(prepared, tmp_path, how):
    data, out = prepared / "data", tmp_path / "out"
    store = ClusterOptions(shards=3, workers=2, store=str(tmp_path / "store"))
    killed(lambda: tiering.import_graph(data, out, edge_ids=True, cluster=store), tasks, "run_attempt", nth(8))
    assert any(path.is_file() for path in (tmp_path / "store").rglob("*"))
    more = {"edge_ids": True, **OTHERS[how]}
    if how == "another store":
        more["cluster"] = ClusterOptions(shards=3, workers=2, store=str(tmp_path / "other"))
    tiering.import_graph(data, out, **more)
    assert left(tmp_path) == ["out"]


def test_a_store_that_was_there_stays_with_what_others_have_in_it(prepared, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "notes").write_text("of somebody else")
    store = ClusterOptions(shards=3, workers=2, store=str(tmp_path / "store"))
    killed(lambda: tiering.import_graph(prepared / "data", tmp_path / "out", cluster=store), *MOMENTS["a task"])
    tiering.import_graph(prepared / "data", tmp_path / "out", cluster=store)
    assert left(tmp_path / "store") == ["notes"]


def test_a_run_that_lacks_a_cluster_keeps_what_is_done(prepared, tmp_path, monkeypatch):
    """The machines of a cluster are no fault of the input."""
    data, out = prepared / "data", tmp_path / "out"
    killed(lambda: tiering.import_graph(data, out, edge_ids=True, cluster=LOCAL), *MOMENTS["a task"])

    def lost(*_: object, **__: object) -> None:
        raise CapabilityError("the cluster is gone")

    with monkeypatch.context() as patched, pytest.raises(CapabilityError, match="the cluster is gone"):
        patched.setattr(Carrier, "_started", lost)
        tiering.import_graph(data, out, edge_ids=True, cluster=LOCAL)
    with real_steps.Watched(options=LOCAL) as cluster:
        tiering.import_graph(data, out, edge_ids=True, cluster=cluster)
    assert cluster.seen.skipped > 0
    assert_same("import", prepared, out)


# --- attempts that were killed -------------------------------------------------------------------------------------


def write(context: tasks.TaskContext) -> None:
    """Write a file, and leave a part; the first attempt is killed in the midst of both."""
    folder = context.params["files"][0]["folder"]
    context.write(value=np.arange(1000))
    with files.output_window(context) as file:
        file.append(np.arange(50_000))
        if not Path(folder, "again").exists():
            Path(folder, "again").touch()
            os._exit(9)
        file.append(np.arange(50_000))


@pytest.fixture
def attempted(tmp_path):
    """Make an attempt at a task that writes a file, in this process."""
    (tmp_path / "out").mkdir()
    file = files.TaskFile("x/values", str(tmp_path / "out"), "int64", [100_000], [400_000, 800_000])
    stage = files.files_step("write", f"{__name__}:write", [file], {}, (), 0)
    store = Store(str(tmp_path / "store"))
    yield lambda alone=True: attempt(Call(store.url, NAME, stage, 0, "", alone=alone))


def sizes(tmp_path: Path) -> list[int]:
    """Bytes of the files that attempts have written."""
    return [path.stat().st_size for path in (tmp_path / "out" / files.ATTEMPTS).iterdir()]


@pytest.mark.parametrize("alone", [True, False])
def test_the_next_attempt_removes_what_a_killed_one_has_left(attempted, tmp_path, alone, monkeypatch):
    """Unless it may be running yet; both write to one file, the same bytes."""
    monkeypatch.setattr(tasks, "resolve", lambda _: write)
    with pytest.raises(AssertionError, match="ended with 9"):
        Child(attempted).result()
    assert sizes(tmp_path) == [800_000]
    assert attempted(alone).record is not None
    assert sizes(tmp_path) == [800_000]
    assert len(list((tmp_path / "store").rglob("*.shuffle"))) == (1 if alone else 2)


def test_attempts_at_one_window_commit_one_record(attempted, tmp_path, monkeypatch):
    """An attempt that was thought dead commits, and so does the next one, which finds the file there or gone."""
    monkeypatch.setattr(tasks, "resolve", lambda _: write)
    (tmp_path / "out" / "again").touch()
    first = attempted().record
    assert attempted().record == first
    (tmp_path / "out" / first["file"]["at"]).unlink()
    assert attempted().record == first
    assert np.fromfile(tmp_path / "out" / first["file"]["at"], np.int64).tolist() == [*range(50_000)] * 2


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_files_of_tasks_are_compared_when_a_run_goes_on(prepared, tmp_path, damage):
    """Those that wait for their names when the driver is killed."""
    out = tmp_path / "out"
    work = lambda cluster=LOCAL: make("import", prepared, out, cluster)  # noqa: E731
    killed(work, files, "place_files", always)
    file = next(file for file in (tmp_path / ".out.partial" / files.ATTEMPTS).iterdir() if "files-000001" in file.name)
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.unlink() if damage == "gone" else file.write_bytes(data)
    with real_steps.Watched(options=LOCAL) as cluster:
        work(cluster)
    assert cluster.seen.run == 1
    assert_same("import", prepared, out)


def test_what_still_runs_when_a_task_fails_leaves_nothing(tmp_path, monkeypatch):
    """The other tasks write when the first has failed; the error waits for them, and the store goes after them."""
    (tmp_path / "data").mkdir()
    edges = np.random.default_rng(1).integers(0, 50, (2, 300))
    edges[0, 0] = 50
    np.save(tmp_path / "data" / "edge_index.npy", edges)
    run_attempt = tasks.run_attempt

    def late(call: Call, *arrays: Any) -> Any:
        if call.index > 0:
            time.sleep(0.3)
        return run_attempt(call, *arrays)

    monkeypatch.setattr(tasks, "run_attempt", late)
    store = ClusterOptions(shards=3, workers=3, store=str(tmp_path / "store"))
    with pytest.raises(InputError, match="edge 0: source id 50 is outside"):
        tiering.import_graph(tmp_path / "data", tmp_path / "out", num_nodes=50, cluster=store)
    assert left(tmp_path) == ["data"]
