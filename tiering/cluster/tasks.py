"""A stage as a plan and its tasks: pure functions of immutable inputs, each of which commits one manifest.

A task writes its segment under a key of its own attempt, then claims its manifest. Whatever else happens (a worker is
killed, frozen and comes back, a task is run twice) there is one manifest of a task or none, and whoever finds one of
other content than its own has found bad memory or a function that is not pure: the job stops.
"""

from __future__ import annotations

import importlib
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.cluster.manifests import (
    LostError,
    Manifest,
    canonical,
    digest_of,
    manifest_key,
    read_manifest,
    segments_folder,
)
from tiering.cluster.partitions import Partitions
from tiering.cluster.segments import Columns, SegmentWriter
from tiering.cluster.store import Store, open_store
from tiering.errors import InternalError, RefusedError, StorageError, TieringError
from tiering.version import __version__

READERS = 8
"""Parts that a task reads at a time."""


@dataclass(frozen=True)
class Stage:
    """The plan of a stage: what its tasks do, how many there are, never by how many workers."""

    name: str
    """In the job, such as ``import.lists``."""
    function: str
    """``module:name`` of a function of a `TaskContext`, which returns small facts, JSON types, for who plans on."""
    tasks: int
    params: Mapping[str, Any] = field(default_factory=dict)
    """Of all tasks, JSON types."""
    reads: tuple[str, ...] = ()
    """Stages of the job whose segments the tasks read."""
    memory: int = 0
    """Bytes that a task takes at the most, beside what its process holds: by the formula of its function's module."""

    def to_json(self) -> dict[str, Any]:
        document = {key: value for key, value in vars(self).items() if key != "memory"}
        return {**document, "params": dict(self.params), "reads": list(self.reads), "package": __version__}


def plan_digest(stage: Stage) -> str:
    """What manifests name the plan by; it takes as long as the plan is."""
    return digest_of(stage.to_json())


@dataclass
class TaskContext:
    """What a task sees: its number, its parameters, segments of earlier stages, and where its own goes."""

    partitions: Partitions
    stage: str
    index: int
    params: Mapping[str, Any]
    threads: int = 1
    alone: bool = False
    """Whether no other attempt at the task may still run: what earlier ones have left is removed."""
    file: OutputFile | None = None
    """The file of an artifact that the task has written, if it writes one."""
    given: Columns = field(default_factory=dict)
    """Arrays of who leads the job, where this process does."""
    _writer: SegmentWriter | None = None

    def part(self, stage: str, index: int, part: int = 0) -> dict[str, npt.NDArray[Any]]:
        """The columns of a part of a task of an earlier stage, not to be written to; `LostError` if they are gone, or
        not what was written.
        """
        return self.partitions.part(stage, index, part)

    def parts(self, stage: str, places: Iterable[tuple[int, int]]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """Parts, given by task and number, in their order; the next ones are read meanwhile, for stores are far away.

        For tasks that have room for all of them: `READERS` parts are held beside the one that is used.
        """
        with ThreadPoolExecutor(READERS) as pool:
            coming: deque[Future[dict[str, npt.NDArray[Any]]]] = deque()
            for index, part in places:
                coming.append(pool.submit(self.part, stage, index, part))
                if len(coming) > READERS:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def add(self, **columns: npt.NDArray[Any]) -> None:
        """Write the next part of this task's segment."""
        if self._writer is None:
            raise InternalError(f"{self.stage}: parts are written while the task runs")
        self._writer.add(columns)

    def add_all(self, parts: Columns, ends: npt.NDArray[np.int64]) -> None:
        """Write columns as parts that end at `ends`."""
        for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            self.add(**{name: column[begin:end] for name, column in parts.items()})


@dataclass(frozen=True)
class OutputFile:
    """A file of an artifact in the making, as a task has written it: under a name of the attempt, in its folder."""

    folder: str
    name: str
    at: str
    dtype: str
    shape: tuple[int, ...]
    blocks: str
    """Digests of its blocks, in hexadecimal."""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OutputFile:
        return cls(**{**document, "shape": tuple(document["shape"])})


class ConflictError(TieringError, RuntimeError):
    """Two runs of a task made different bytes."""


def give(context: TaskContext) -> None:
    """What who leads the job has given, in parts."""
    for begin, end in pairwise(context.params["bounds"]):
        context.add(**{name: array[begin:end] for name, array in context.given.items()})


def run_attempt(
    store: Store,
    job: str,
    stage: Stage,
    index: int,
    *,
    threads: int = 1,
    plan_digest: str = "",
    given: Columns | None = None,
    alone: bool = False,
) -> Manifest:
    """Run a task once, in this process, and commit it; the manifest that is there afterwards.

    `alone`: see `TaskContext`.
    """
    partitions = Partitions(store, job)
    context = TaskContext(partitions, stage.name, index, stage.params, threads, alone, given=given or {})
    folder = f"{segments_folder(job, stage.name)}/{index:06}"
    if alone:
        store.clear(folder)
    key = f"{folder}/{uuid.uuid4().hex}.segment"
    with partitions.writer(key) as context._writer:
        facts = resolve(stage.function)(context) or {}
        segment = context._writer.finish()
    file = None if context.file is None else context.file.to_json()
    content = {
        "stage": stage.name, "index": index, "plan": plan_digest, "facts": facts,
        "segment": {**segment.to_json(), "key": ""}, "file": None if file is None else {**file, "at": ""},
    }  # fmt: skip
    document = {
        **content, "segment": segment.to_json(), "file": file, "content": digest_of(content),
        "by": {"host": socket.gethostname(), "pid": os.getpid()},
    }  # fmt: skip
    return _commit(store, job, {**document, "digest": digest_of(document)})


def _commit(store: Store, job: str, manifest: Manifest) -> Manifest:
    """Claim the manifest; where another attempt was first, it must have made the same."""
    stage, index = manifest["stage"], manifest["index"]
    key = manifest_key(job, stage, index)
    if store.claim(key, canonical(manifest)) == canonical(manifest):
        return manifest
    store.remove(manifest["segment"]["key"])
    if manifest["file"] is not None:
        open_store(manifest["file"]["folder"]).remove(manifest["file"]["at"])
    first = read_manifest(store, job, stage, index)
    file = None if first is None else first["file"]
    if first is None or (file is not None and open_store(file["folder"]).size(file["at"]) is None):
        raise LostError(stage, index, f"{key} is damaged, or the file that it names is gone")
    if first["content"] != manifest["content"]:
        raise ConflictError(
            f"{store.url}: task {index} of {stage} was run twice and made different bytes ({first['content']} on "
            f"{first['by']['host']}, {manifest['content']} on {manifest['by']['host']}): bad memory or disk of one of "
            "them, or machines with different packages; find out which, then remove the job's folder and run it again"
        )
    return first


def resolve(function: str) -> Callable[[TaskContext], Mapping[str, Any] | None]:
    """The function of a stage by its name."""
    module, _, name = function.partition(":")
    found: Callable[[TaskContext], Mapping[str, Any] | None] = getattr(importlib.import_module(module), name)
    return found


@dataclass(frozen=True)
class Call:
    """One attempt at a task, as executors take it to where it runs; small, picklable."""

    store: str
    job: str
    stage: Stage
    index: int
    plan_digest: str
    threads: int = 1
    alone: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt, picklable: a manifest, or an error in words."""

    manifest: Manifest | None = None
    error: TieringError | RefusedError | None = None
    again: bool = False
    """Whether another attempt may do better."""


def attempt(call: Call) -> Outcome:
    """Make one attempt, wherever this process is; errors that are expected come back as outcomes."""
    store = open_store(call.store)
    try:
        manifest = run_attempt(
            store,
            call.job,
            call.stage,
            call.index,
            threads=call.threads,
            plan_digest=call.plan_digest,
            alone=call.alone,
        )
    except (LostError, StorageError) as error:
        return Outcome(error=error, again=True)
    except (TieringError, RefusedError) as error:
        return Outcome(error=error)
    return Outcome(manifest)
