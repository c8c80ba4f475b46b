"""A job: the tasks of its steps, run, skipped where finished, retried, recovered; and the carrier of jobs."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from tiering.artifacts.atomic import ExternalDirectories
from tiering.artifacts.checksum import split_digests
from tiering.artifacts.file_writer import damaged_blocks
from tiering.artifacts.manifest import FileEntry
from tiering.artifacts.storage import AnyArray
from tiering.artifacts.writer import DirectoryWriter
from tiering.errors import InternalError
from tiering.memory import Budget, parse_memory
from tiering.run import pieces
from tiering.run.grid import Grid
from tiering.run.options import ClusterOptions as ClusterOptions
from tiering.run.pieces import Columns, LostError, ShuffleFile, ShuffleStore, TaskRecord, canonical
from tiering.run.step import Call, ConflictError, LocalExecutor, Outcome, OutputFile, Step, plan_digest, run_attempt
from tiering.run.store import Store
from tiering.text.progress import in_log, note, progress
from tiering.text.units import parse_threads

if TYPE_CHECKING:
    from tiering.run.ray import RayExecutor

WINDOW = 4  # attempts under way or waiting, per slot of the executor
REPORT_SECONDS = 60.0  # seconds between two lines in a log on a running step; one more line follows at its end


@dataclass(frozen=True)
class RetryOptions:
    """When an attempt is retried, and when a speculative attempt is sent for a slow one."""

    attempts: int = 5  # attempts at a task in one run of a job, before its last error ends the job
    straggler_factor: float = 3.0
    """Multiple of the 95th percentile of the step after which a speculative attempt is sent."""
    straggler_floor: float = 60.0  # seconds before which no speculative attempt is sent
    poll: float = 0.5  # seconds between two looks at running attempts


@dataclass
class Counters:
    """Counts of what happened in a job, for reports."""

    run: int = 0  # tasks whose record is from this run
    skipped: int = 0  # tasks that an earlier run had finished
    retried: int = 0  # attempts that followed a failed one
    copies: int = 0  # speculative attempts
    recovered: int = 0  # tasks run again because their shuffle file or record was lost
    errors: list[str] = field(default_factory=list)  # errors of the attempts that were retried


@dataclass
class _Attempt:
    index: int
    begun: float | None = None  # time at which the attempt was first seen to have a slot


class Job:
    """The steps of one job, run one after the other; two runs of the same `name` are one job, which is resumed."""

    expected = 0  # steps that the job runs, as far as is known

    def __init__(
        self, store: Store, name: str, executor: LocalExecutor | RayExecutor, *, grid: Grid | None = None,
        threads: int = 1, retry: RetryOptions | None = None, counters: Counters | None = None,
    ) -> None:  # fmt: skip
        self.store, self.name, self.executor, self.threads = store, name, executor, threads
        self.grid = grid or Grid()
        self.retry, self.counters = retry or RetryOptions(), counters or Counters()
        self._steps: dict[str, Step] = {}
        self._plans: dict[str, str] = {}  # digests of the steps' plans, which may be long
        self._arrays: dict[str, Columns] = {}
        self._asked: set[tuple[str, int]] = set()  # tasks whose records this run has asked for
        self.tickets = count()  # numbers of the attempts

    def expect(self, steps: int) -> None:
        """Count steps that are going to run, for reports; some scores may need fewer."""
        self.expected += steps

    def run(self, step: Step, only: Iterable[int] | None = None) -> list[TaskRecord]:
        """Run the unfinished tasks of a step; return the records of all its tasks, or of those in `only`, in order."""
        self._plan(step)
        records = self._run(step, range(step.tasks) if only is None else only)
        if only is None and step.tasks > 1:
            pieces.put_table(self.store, self.name, step.name, records)
        return records

    def release(self, *steps: Step) -> None:
        """Remove the shuffle files of finished steps, which no later step reads; the tasks still count as finished."""
        for step in steps:
            self.store.put_if_absent(pieces.released_key(self.name, step.name), b"released")
            self.store.clear(pieces.shuffle_folder(self.name, step.name))

    def broadcast(self, name: str, columns: Columns, bounds: Sequence[int] = ()) -> Step:
        """Write arrays of the driver as the partitions, between `bounds`, of task 0 of a step that runs here, now."""
        cuts = list(bounds) or [0, *{array.shape[0] for array in columns.values()}]
        digest = xxhash.xxh3_64()
        for partition in pieces.split_rows(columns, cuts[1:]):
            for array in partition.values():
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        step = Step(name, "tiering.run.step:broadcast", 1, {"digest": digest.hexdigest(), "bounds": cuts})
        self._plan(step)
        self._arrays[name] = columns
        if self._find(name, 0) is None:
            run_attempt(self.call(step, 0), columns)
        return step

    def read(self, step: str, index: int, partition: int = 0) -> dict[str, AnyArray]:
        """Return a partition of a finished task, a small one, for the driver; a lost one is made again."""
        for _ in range(self.retry.attempts):
            try:
                return ShuffleStore(self.store, self.name).read(step, index, partition)
            except LostError as error:
                self.recover(error)
        return ShuffleStore(self.store, self.name).read(step, index, partition)

    def _plan(self, step: Step) -> None:
        """Put the plan of a step, or check that the one that is there is the same."""
        unknown = [name for name in step.reads if name not in self._steps]
        if unknown or self._steps.get(step.name, step) != step:
            raise InternalError(f"step {step.name}: reads {unknown}, or occurs twice in the plan")
        plan, key = pieces.canonical(step.to_json()), pieces.plan_key(self.name, step.name)
        found = self.store.put_if_absent(key, plan)
        try:
            json.loads(found)
        except ValueError:  # torn by a power cut
            self.store.remove(key)
            found = self.store.put_if_absent(key, plan)
        if found != plan:
            raise ConflictError(
                f"{self.store.url}: {key} is a different plan of the same job, from another "
                "build of this package or an input that changed; remove the job's folder and run it again"
            )
        self._steps[step.name] = step
        self._plans[step.name] = plan_digest(step)

    def _run(self, step: Step, wanted: Iterable[int]) -> list[TaskRecord]:
        order, released = list(wanted), self.store.size(pieces.released_key(self.name, step.name)) is not None
        found = {index: self._find(step.name, index, released) for index in order}
        records = {index: record for index, record in found.items() if record is not None}
        new = {(step.name, index) for index in order} - self._asked
        self.counters.skipped += sum((step.name, index) in new for index in records)
        self._asked |= new
        missing = [index for index in order if index not in records]
        if missing:
            with progress(len(order), step.name, "task") as bar:
                bar.update(len(records))
                _StepRun(self, step, missing, records, bar, len(order)).run()
        if new and in_log():
            note(self.report(step, len(records), len(order)))
        return [records[index] for index in order]

    def report(self, step: Step, done: int, tasks: int) -> str:
        """Return a line for logs on the progress of a step."""
        number = [name for name in self._steps if name not in self._arrays].index(step.name) + 1
        return f"{step.name}: step {number} of {max(number, self.expected)}, {done} of {tasks} tasks"

    def _find(self, step: str, index: int, released: bool = False) -> TaskRecord | None:
        """Return the record of a finished task; remove it if its files are lost, unless these were `released`."""
        found = pieces.read_record(self.store, self.name, step, index)
        if found is None or released or self._is_whole(found):
            return found
        self.store.remove(pieces.record_key(self.name, step, index))
        return None

    def _is_whole(self, record: TaskRecord) -> bool:
        """Return whether the files of a record are there: a file by its content, a shuffle file by its size."""
        shuffle_file = ShuffleFile(**record["shuffle"])
        if self.store.size(shuffle_file.key) != shuffle_file.nbytes:
            return False
        if record["file"] is None:
            return True
        file = OutputFile(**record["file"])
        path, size = Path(file.folder, file.at), FileEntry(file.dtype, tuple(file.shape), "").bytes
        if not path.is_file() or path.stat().st_size != size:
            return False
        digests = split_digests(bytes.fromhex(file.blocks))
        return not damaged_blocks(path, {file.first + block: digest for block, digest in digests.items()})

    def remove(self) -> None:
        """Remove the job's folder from the store, once its result is published."""
        self.store.clear(self.name)

    def recover(self, lost: LostError, *, run: bool = True) -> None:
        """Run a task again whose record or shuffle file is lost; without `run` the caller does that."""
        step = self._steps.get(lost.step)
        if step is None:
            raise InternalError(f"a task read {lost.step}, which is not an input of its step")
        found = pieces.read_record(self.store, self.name, step.name, lost.index)
        if found is not None and found["shuffle"]["key"] != lost.key and self._is_whole(found):
            return  # another consumer has noticed before
        note(f"note: {lost}")
        self.counters.recovered += 1
        self.store.remove(pieces.table_key(self.name, lost.step))  # the records say what follows
        self.store.remove(pieces.record_key(self.name, step.name, lost.index))
        mark = pieces.released_key(self.name, step.name)
        if lost.step in self._arrays:
            run_attempt(self.call(step, 0), self._arrays[step.name])
        elif self.store.size(mark) is not None:
            self.store.remove(mark)  # all of it is gone, and who reads one task's mostly reads the others' too
            self._run(step, range(step.tasks))
        elif run:
            self._run(step, [lost.index])

    def call(self, step: Step, index: int) -> Call:
        """Return the call that an executor sends to a worker for one attempt at a task."""
        return Call(
            self.store.url, self.name, step, index, self._plans[step.name], self.threads, resident=step.resident
        )


class _StepRun:
    """The attempts at the tasks of a step that are missing."""

    def __init__(
        self, job: Job, step: Step, missing: list[int], records: dict[int, TaskRecord], bar: object, tasks: int
    ) -> None:
        self.job, self.step, self.records, self.bar, self.tasks = job, step, records, bar, tasks
        self.reported = time.monotonic()
        self.waiting = deque(missing)
        self.attempts: dict[int, _Attempt] = {}
        self.tries: dict[int, int] = {}
        self.seconds: list[float] = []

    def run(self) -> None:
        executor, retry = self.job.executor, self.job.retry
        try:
            while self.waiting or self.attempts:
                while self.waiting and len(self.attempts) < WINDOW * executor.slots:
                    self._submit(self.waiting.popleft())
                for ticket, outcome in executor.wait(list(self.attempts), retry.poll):
                    self._finish(ticket, outcome)
                self._send_copies()
                if time.monotonic() - self.reported >= REPORT_SECONDS and in_log():
                    self.reported = time.monotonic()
                    note(self.job.report(self.step, len(self.records), self.tasks))
        except BaseException:
            for ticket in self.attempts:
                executor.cancel(ticket)
            executor.settle()
            raise

    def _submit(self, index: int) -> None:
        ticket, alone = next(self.job.tickets), all(attempt.index != index for attempt in self.attempts.values())
        self.attempts[ticket] = _Attempt(index)
        self.tries[index] = self.tries.get(index, 0) + 1
        self.job.executor.submit(ticket, replace(self.job.call(self.step, index), alone=alone))

    def _finish(self, ticket: int, outcome: Outcome) -> None:
        attempt = self.attempts.pop(ticket, None)
        if attempt is None or attempt.index in self.records:
            return  # a copy was faster
        if outcome.record is None:
            self._fail(attempt.index, outcome)
            return
        if attempt.begun is not None:
            self.seconds.append(time.monotonic() - attempt.begun)
        self.records[attempt.index] = outcome.record
        self.job.counters.run += 1
        self.bar.update(1)  # type: ignore[attr-defined]
        for copy in [t for t, other in self.attempts.items() if other.index == attempt.index]:
            self.job.executor.cancel(copy)
            del self.attempts[copy]

    def _fail(self, index: int, outcome: Outcome) -> None:
        error, tries = outcome.error, self.tries[index]
        if error is None:
            raise InternalError(f"task {index} of {self.step.name} ended without a result")
        if not outcome.again or tries >= self.job.retry.attempts:
            if tries > 1:
                note(f"note: task {index} of {self.step.name} failed {tries} times; the last error follows")
            raise error
        self.job.counters.errors.append(str(error))
        if isinstance(error, LostError):
            self.job.recover(error, run=(error.step, error.index) != (self.step.name, index))
        if not any(attempt.index == index for attempt in self.attempts.values()):
            self.job.counters.retried += 1
            self.waiting.appendleft(index)

    def _send_copies(self) -> None:
        """Send a speculative attempt for each that takes too long: its worker may be frozen or cut off."""
        retry, now = self.job.retry, time.monotonic()
        ranked = sorted(self.seconds) or [0.0]
        patience = max(retry.straggler_floor, retry.straggler_factor * ranked[int(0.95 * (len(ranked) - 1))])
        copied = [attempt.index for attempt in self.attempts.values()]
        for ticket, attempt in list(self.attempts.items()):
            if attempt.begun is None:
                if self.job.executor.running(ticket):
                    attempt.begun = now
                continue
            late = now - attempt.begun > patience and self.tries[attempt.index] < retry.attempts
            if late and copied.count(attempt.index) == 1:
                self.job.counters.copies += 1
                self._submit(attempt.index)


class Carrier(AbstractContextManager["Carrier"]):
    """The runner of jobs, handed to the stages of a command; a context manager that ends the executor."""

    def __init__(
        self, options: ClusterOptions, retry: RetryOptions | None = None, memory: str | int | Budget | None = None
    ) -> None:
        self.options, self.grid, self.retry, self.memory = options, options.grid, retry, memory
        self.counters = Counters()
        self._executor: LocalExecutor | RayExecutor | None = None
        self._jobs: list[Job] = []

    def uses_tasks(self, nbytes: int) -> bool:
        """Return whether a step that would take `nbytes` in one task runs as several tasks."""
        return nbytes > 0 and self.grid.parts(nbytes) > 1

    def job(self, writer: DirectoryWriter) -> Job:
        """Return the job that makes an artifact; its name stands for what is made, from what, and how it is cut."""
        stage = str(writer.journal.identity["stage"])
        identity: Mapping[str, Any] = {**writer.journal.identity, "out": str(writer.root), **vars(self.grid)}
        name = f"{stage}-{xxhash.xxh3_64_hexdigest(canonical(identity))}"
        url = self._url(writer.root)
        self._started()  # a cluster that cannot be joined leaves nothing behind
        folder = Path(os.path.abspath(url)) / name  # noqa: PTH100 - keep symbolic links in the name as given
        # Removed with the journal that knows of it, however the run ends.
        ExternalDirectories(writer.journal, writer.root).own_temporary(folder)
        return self._begin(url, name)

    def job_of(self, name: str, path: Path) -> Job:
        """Return a job about what lies at `path`, which writes no artifact."""
        return self._begin(self._url(path.absolute()), name)

    def _url(self, path: Path) -> str:
        return self.options.store or str(path.with_name(f".{path.name}.tasks"))

    def _begin(self, url: str, name: str) -> Job:
        job = Job(
            Store(url), name, self._started(), grid=self.grid, threads=self.options.threads, retry=self.retry,
            counters=self.counters,
        )  # fmt: skip
        self._jobs.append(job)
        return job

    def finish(self) -> None:
        """Report retries and recoveries, and remove the jobs' folders from the store: their artifact is published."""
        counters = self.counters
        unusual = {
            "from an earlier run": counters.skipped, "tried again": counters.retried,
            "copied": counters.copies, "made again": counters.recovered,
        }  # fmt: skip
        if any(unusual.values()):
            text = ", ".join(f"{count} {words}" for words, count in unusual.items() if count)
            note(f"note: tasks: {counters.run} run, {text}")
        while self._jobs:
            self._jobs.pop().remove()
        self.counters = Counters()

    def _started(self) -> LocalExecutor | RayExecutor:
        if self._executor is None:
            options = self.options
            workers = options.workers or parse_threads(None)
            if options.executor == "ray":
                from tiering.run.ray import RayExecutor

                sizes = {"workers": workers, "threads": options.threads}
                self._executor = RayExecutor(options.address, **sizes, resources=options.wanted)
            else:
                self._executor = LocalExecutor(workers, parse_memory(self.memory).left())
        return self._executor

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
