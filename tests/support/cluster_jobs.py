"""A small job of three stages for tests of executors: values cut by their last digits, sorted, and added up.

Tasks can be held, so that a test finds them in the middle of their work: see `held`.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiering.errors import InputError, StorageError
from tiering.run.job import Counters, Job, RetryOptions
from tiering.run.pieces import TaskRecord
from tiering.run.step import LocalExecutor, Step, TaskContext
from tiering.run.store import Store

MAPS, PARTS, ROWS = 6, 3, 2000
NAME = "job"


def values(index: int) -> np.ndarray:
    """What a map task begins with."""
    return np.random.default_rng(index).integers(0, 1 << 40, ROWS)


def cut(context: TaskContext) -> dict[str, Any]:
    """Map: values and their squares, in parts by the remainder."""
    _pause(context)
    mine = values(context.index)
    for part in range(PARTS):
        chosen = mine[mine % PARTS == part]
        context.write(value=chosen, square=(chosen % 1000).astype(np.float32) ** 2)
    return {"rows": mine.size}


def order(context: TaskContext) -> None:
    """Reduce: one part of all maps, sorted."""
    _pause(context)
    parts = [context.read("cut", task, context.index)["value"] for task in range(MAPS)]
    context.write(value=np.sort(np.concatenate(parts)))


def add(context: TaskContext) -> dict[str, Any]:
    """The sum of all, which goes through each reducer's part."""
    _pause(context)
    sums = [int(context.read("order", task)["value"].sum()) for task in range(PARTS)]
    context.write(sum=np.array(sums))
    return {"sum": sum(sums)}


def expected() -> list[list[int]]:
    """What reducers must have, by plain sorting of everything."""
    everything = sorted(int(value) for index in range(MAPS) for value in values(index))
    return [[value for value in everything if value % PARTS == part] for part in range(PARTS)]


def stages(hold: Mapping[str, Any] | None = None) -> list[Step]:
    """The three stages; `hold`: what `_pause` is told."""
    return [
        Step("cut", "cluster_jobs:cut", MAPS, {"hold": hold}),
        Step("order", "cluster_jobs:order", PARTS, {"hold": hold}, ("cut",)),
        Step("add", "cluster_jobs:add", 1, {"hold": hold}, ("order",)),
    ]


def hold(folder: Path, *tasks: str, seconds: float = 60.0, copied: bool = False) -> dict[str, Any]:
    """Holds the first attempt at some tasks (``cut-3``) for a while; it leaves its process in `folder`.

    A file ``cut-3.go`` there lets it go on; it leaves ``cut-3.gone``. `copied`: the second attempt makes that file.
    """
    folder.mkdir(exist_ok=True)
    return {"folder": str(folder), "tasks": tasks, "seconds": seconds, "copied": copied}


def _pause(context: TaskContext) -> None:
    asked = context.params.get("hold")
    name = f"{context.step}-{context.index}"
    if not asked or name not in asked["tasks"]:
        return
    folder = Path(asked["folder"])
    own = folder / f".{name}-{os.getpid()}-{threading.get_ident()}"
    own.write_text(str(os.getpid()))
    try:
        os.link(own, folder / f"{name}.held")
    except FileExistsError:
        if asked["copied"]:
            (folder / f"{name}.go").touch()
    else:
        end = time.monotonic() + asked["seconds"]
        while time.monotonic() < end and not (folder / f"{name}.go").exists():
            time.sleep(0.02)
        (folder / f"{name}.gone").touch()
    own.unlink()


def held(folder: Path, name: str) -> int:
    """The process that is held in a task, as soon as there is one."""
    file, end = folder / f"{name}.held", time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < end, f"{file} does not come"
        time.sleep(0.02)
    return int(file.read_text())


def run_job(
    store: Store | Path,
    executor: LocalExecutor,
    asked: Mapping[str, Any] | None = None,
    *,
    retry: RetryOptions | None = None,
    counters: Counters | None = None,
) -> str:
    """Run the three stages; the digest of all that is left."""
    store = Store(str(store)) if isinstance(store, Path) else store
    job = Job(store, NAME, executor, retry=retry, counters=counters)
    return digest(job, [job.run(stage) for stage in stages(asked)])


def digest(job: Job, done: list[list[TaskRecord]]) -> str:
    """SHA-256 over the columns of all parts, in their order."""
    state = hashlib.sha256()
    for manifest in (manifest for manifests in done for manifest in manifests):
        for part in range(manifest["shuffle"]["partitions"]):
            for name, column in job.read(manifest["step"], manifest["index"], part).items():
                state.update(f"{name} {column.dtype.str} {column.shape}".encode() + column.tobytes())
    return state.hexdigest()


# --- tasks that go wrong -------------------------------------------------------------------------------------------


def share(context: TaskContext) -> dict[str, int]:
    """Return the address of an object that tasks share."""
    return {"made": id(context.share(_make, context.params["of"]))}


def _make(of: str) -> list[str]:
    return [of]


def fail(context: TaskContext) -> None:
    """Fails so many times, counted by files, then works; with an error of the storage, or of the input."""
    folder, times = Path(context.params["folder"]), context.params["times"]
    for number in range(times):
        try:
            (folder / f"failed-{context.index}.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        if context.params.get("kind") == "input":
            raise InputError(f"task {context.index}: expected another input")
        if context.params.get("kind") == "bug":
            raise ZeroDivisionError("a mistake in the program")
        raise StorageError(5, f"task {context.index}: the disk says no")
    context.write(value=np.array([context.index]))


def differ(context: TaskContext) -> None:
    """Other bytes in every run."""
    context.write(value=np.frombuffer(os.urandom(8), np.int64))


def nothing(context: TaskContext) -> None:
    """Only what a task costs by itself."""
    context.write(value=np.array([context.index]))
