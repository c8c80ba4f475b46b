"""A step of a stage that is cut into tasks: a plan, and pure functions of immutable inputs that each put one record.

A task may run twice, but has one record or none: what it writes lies under a key of its attempt, and a record of other
content than its own is a sign of bad memory or an impure function, and stops the job.
"""

from __future__ import annotations

import importlib
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import count, pairwise
from typing import Any, TypeVar

import numpy as np

from tiering.artifacts.storage import AnyArray, Bytes, storage_errors
from tiering.errors import InternalError, RefusedError, StorageError, TieringError
from tiering.run import pieces
from tiering.run.grid import Int64Array
from tiering.run.pieces import Columns, LostError, Memory, ShuffleFileWriter, ShuffleStore, TaskRecord, fresh
from tiering.run.resident import resident
from tiering.run.store import Store
from tiering.text.options import spell_flag
from tiering.text.progress import note
from tiering.text.units import format_bytes
from tiering.version import build

T = TypeVar("T")
READERS = 8  # partitions that a task reads at a time
ATTEMPTS = ".attempts"  # folder of files that tasks have written, in the unfinished artifact
FOLDER_TASKS = 256  # tasks whose shuffle files share a folder: one each costs more than the files


@dataclass(frozen=True)
class Step:
    """The plan of a step: what its tasks do and how many there are, whatever the number of workers."""

    name: str  # name in the job, such as ``node__to__node.lists``
    function: str  # ``module:name`` of a function of a `TaskContext` that returns small facts, JSON types
    tasks: int
    params: Mapping[str, Any] = field(default_factory=dict)  # parameters of all tasks, JSON types
    reads: tuple[str, ...] = ()  # steps of the job whose shuffle files, or resident arrays, the tasks read
    memory: int = 0  # peak memory of one task in bytes, excluding the worker process itself
    resident: int = 0  # bytes of `memory` that arrays may take which stay in the process for later tasks

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        document = {key: value for key, value in vars(self).items() if key not in ("memory", "resident")}
        return {**document, "params": dict(self.params), "reads": list(self.reads), "package": build()}


def plan_digest(step: Step) -> str:
    """Return the digest by which records name the plan of their step."""
    return pieces.digest_of(step.to_json())


_kept = threading.local()  # buffers of the thread's tasks of one function
_sharing = threading.Lock()  # so that the first tasks do not make the same at the same time


@lru_cache(maxsize=8)
def _shared(job: str, make: Callable[..., Any], *arguments: Any) -> Any:
    return make(*arguments)


class _Buffers:
    """Memory by slot, which grows."""

    def __init__(self) -> None:
        self._slots: dict[int, Bytes] = {}

    def get(self, slot: int, nbytes: int) -> Bytes:
        """Return so many bytes of a slot; what it held is gone."""
        if slot not in self._slots or self._slots[slot].size < nbytes:
            self._slots.pop(slot, None)  # before the next is taken
            self._slots[slot] = np.empty(nbytes, np.uint8)
        return self._slots[slot][:nbytes]


@dataclass
class TaskContext:
    """The view that a task has of its job: its number, its parameters, earlier shuffle files, and its own."""

    shuffle: ShuffleStore
    step: str
    function: str
    index: int
    params: Mapping[str, Any]
    threads: int = 1
    file: OutputFile | None = None  # the file of an artifact that the task has written, if it writes one
    broadcast: Columns = field(default_factory=dict)  # arrays of the driver, where the driver runs the task itself
    _writer: ShuffleFileWriter | None = None
    _written: list[Columns] | None = None  # partitions that may stay in memory

    def share(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, made once for the tasks of the job in this process: an open artifact, say."""
        with _sharing:
            made: T = _shared(self.shuffle.job, make, *arguments)
            return made

    def read(self, step: str, index: int, partition: int = 0, memory: Memory = fresh) -> Columns:
        """Return a partition of an earlier step, in `memory` or as it is resident; `LostError` if it is damaged."""
        if memory is not fresh:
            return self.shuffle.read(step, index, partition, memory)
        return resident.get((step, index, partition), lambda: self.shuffle.read(step, index, partition))

    def buffer(self, nbytes: int) -> Bytes:
        """Return memory that the thread's next task of this function takes over: its pages need not be made again."""
        return self._buffers().get(0, nbytes)

    def _buffers(self) -> _Buffers:
        if getattr(_kept, "function", None) != self.function:
            _kept.function, _kept.buffers = self.function, _Buffers()
        return _kept.buffers  # type: ignore[no-any-return]

    def read_many(self, step: str, places: Iterable[tuple[int, int]], *, keep: bool = True) -> Iterator[Columns]:
        """Return partitions, by task and number, in their order; the next `READERS` are read meanwhile.

        Unless they are to `keep`, each is gone when the next is requested.
        """
        slots, buffers = count(), self._buffers()
        with ThreadPoolExecutor(READERS) as pool:
            coming: deque[Future[Columns]] = deque()
            for index, partition in places:
                memory = fresh if keep else partial(buffers.get, 1 + next(slots) % (READERS + 2))
                coming.append(pool.submit(self.read, step, index, partition, memory))
                if len(coming) > READERS:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def write(self, **columns: AnyArray) -> None:
        """Write the next partition of this task's shuffle file."""
        if self._writer is None:
            raise InternalError(f"{self.step}: partitions are written while the task runs")
        self._writer.add(columns)
        if self._written is not None:
            self._written.append(columns)

    def write_all(self, columns: Columns, ends: Sequence[int] | Int64Array) -> None:
        """Write columns as consecutive partitions that end at `ends`."""
        for partition in pieces.split_rows(columns, np.asarray(ends, np.int64).tolist()):
            self.write(**partition)


@dataclass(frozen=True)
class OutputFile:
    """A window of a file of an unfinished artifact that a task has written: JSON types."""

    folder: str
    name: str
    at: str  # path in the folder until all windows are written
    dtype: str
    shape: Sequence[int]
    blocks: str  # digests of the window's blocks, in hexadecimal
    first: int = 0  # number of its first block


class ConflictError(TieringError, RuntimeError):
    """Two runs of a task made different bytes."""


def broadcast(context: TaskContext) -> None:
    """Write the driver's arrays as partitions."""
    for begin, end in pairwise(context.params["bounds"]):
        context.write(**{name: array[begin:end] for name, array in context.broadcast.items()})


@dataclass(frozen=True)
class Call:
    """One attempt at a task as executors carry it to a worker: small and picklable."""

    store: str
    job: str
    step: Step
    index: int
    plan_digest: str
    threads: int = 1
    alone: bool = False
    resident: int = 0  # bytes that may stay in the memory of the process


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt, picklable: a record, or an error."""

    record: TaskRecord | None = None
    error: TieringError | RefusedError | None = None
    again: bool = False  # whether another attempt may succeed


def attempt(call: Call) -> Outcome:
    """Run one attempt in this process; expected errors come back as outcomes."""
    try:
        with storage_errors():
            return Outcome(run_attempt(call))
    except (LostError, StorageError) as error:
        return Outcome(error=error, again=True)
    except (TieringError, RefusedError) as error:
        return Outcome(error=error)


def run_attempt(call: Call, arrays: Columns | None = None) -> TaskRecord:
    """Run a task once in this process, with `arrays` of the driver to `broadcast`; commit it, return the record."""
    store, step, index = Store(call.store), call.step, call.index
    if arrays is None:
        resident.begin_task(call.job, (step.name, *step.reads), call.resident)
    shuffle = ShuffleStore(store, call.job)
    context = TaskContext(shuffle, step.name, step.function, index, step.params, call.threads, broadcast=arrays or {})
    own = f"{pieces.shuffle_folder(call.job, step.name)}/{index // FOLDER_TASKS:03}/{index:06}-"
    for stale in store.keys(own) if call.alone else ():
        store.remove(stale)
    key = f"{own}{uuid.uuid4().hex}.shuffle"
    with store.writer(key) as out:
        context._writer, context._written = ShuffleFileWriter(key, out), [] if call.resident > 0 else None
        facts = resolve(step.function)(context) or {}
        written = context._writer.finish()
    resident.put({(step.name, index, number): columns for number, columns in enumerate(context._written or ())})
    file = None if context.file is None else vars(context.file)
    content = {
        "step": step.name, "index": index, "plan": call.plan_digest, "facts": facts,
        "shuffle": {**vars(written), "key": ""}, "file": None if file is None else {**file, "at": ""},
    }  # fmt: skip
    document = {
        **content, "shuffle": vars(written), "file": file, "content": pieces.digest_of(content),
        "by": {"host": socket.gethostname(), "pid": os.getpid()},
    }  # fmt: skip
    return _commit(store, call.job, {**document, "digest": pieces.digest_of(document)})


def _commit(store: Store, job: str, record: TaskRecord) -> TaskRecord:
    """Put the record; where another attempt was first, compare its content with ours."""
    step, index = record["step"], record["index"]
    key, data = pieces.record_key(job, step, index), pieces.canonical(record)
    if store.put_if_absent(key, data) == data:
        return record
    store.remove(record["shuffle"]["key"])
    first = pieces.read_record(store, job, step, index)
    file = None if first is None else first["file"]
    if first is None or (file is not None and Store(file["folder"]).size(file["at"]) is None):
        raise LostError(step, index, f"{key} is damaged, or its file is missing")
    if first["content"] != record["content"]:
        raise ConflictError(
            f"{store.url}: task {index} of {step} ran twice and wrote different bytes ({first['content']} on "
            f"{first['by']['host']}, {record['content']} on {record['by']['host']}): one of them has bad memory or "
            "a bad disk, or their packages differ; find out which, then remove the job's folder and run it again"
        )
    return first


def resolve(name: str) -> Callable[..., Any]:
    """Return the function or class at ``module:name``."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


class LocalExecutor:
    """Attempts on threads of this process: the core computes outside Python's lock."""

    def __init__(self, workers: int, memory: int | None = None) -> None:
        """`memory`: bytes for all attempts that run at the same time, of which one runs in any case."""
        self.slots, self._workers, self._memory = workers, workers, memory
        self._pool = ThreadPoolExecutor(workers, "task")
        self._futures: dict[int, Future[Outcome]] = {}
        self._dropped: list[Future[Outcome]] = []

    def submit(self, ticket: int, call: Call) -> None:
        """Start an attempt under the number `ticket`; tasks of its step run side by side as far as memory allows."""
        need, slots, kept = call.step.memory, self._workers, self._workers * call.step.resident
        if need and self._memory is not None:
            slots = max(1, min(slots, self._memory // need))
            kept = kept and self._memory - slots * (need - call.step.resident)
        if slots != self.slots:  # what the last step began ends on its own threads
            self._pool.shutdown(wait=False)
            self.slots, self._pool = slots, ThreadPoolExecutor(slots, "task")
            if slots < min(self._workers, call.step.tasks):
                note(
                    f"note: {call.step.name}: {slots} of {self._workers} workers run at a time: a task takes up to "
                    f"{format_bytes(need)}, and {format_bytes(self._memory or 0)} are left for tasks; lower "
                    f"{spell_flag('task_memory')}"
                )
        self._futures[ticket] = self._pool.submit(attempt, replace(call, resident=kept))

    def wait(self, tickets: Collection[int], seconds: float) -> list[tuple[int, Outcome]]:
        """Return the attempts among `tickets` that have ended, each once, and how; none once `seconds` are over."""
        known = {self._futures[ticket]: ticket for ticket in tickets if ticket in self._futures}
        if not known:
            time.sleep(seconds)
            return []
        done, _ = wait(known, seconds, FIRST_COMPLETED)
        return [(known[future], self._futures.pop(known[future]).result()) for future in done]

    def running(self, ticket: int) -> bool:
        """Return whether the attempt runs or has ended, rather than waits for a thread."""
        future = self._futures.get(ticket)
        return future is not None and (future.running() or future.done())

    def cancel(self, ticket: int) -> None:
        """Give an attempt up; its result is never returned."""
        future = self._futures.pop(ticket, None)
        if future is not None and not future.cancel():
            self._dropped.append(future)

    def settle(self) -> None:
        """Wait until canceled attempts that were running have ended."""
        wait(self._dropped)
        self._dropped.clear()

    def close(self) -> None:
        """End the threads, and drop attempts that have not begun."""
        self._pool.shutdown(cancel_futures=True)
        _shared.cache_clear()
        resident.clear()
