"""Runs the tasks of a stage: skips what is done, tries again what failed, sends copies after stragglers, and has made
again what was lost.

Everything that decides between attempts is here, for every executor; a task knows nothing of it.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.artifacts.checksum import split_digests
from tiering.artifacts.file_writer import damaged_blocks
from tiering.artifacts.manifest import FileEntry
from tiering.cluster.executors import Executor, Finished
from tiering.cluster.manifests import (
    LostError,
    Manifest,
    canonical,
    dropped_key,
    manifest_key,
    plan_key,
    read_manifest,
    segments_folder,
)
from tiering.cluster.partitions import Partitions
from tiering.cluster.segments import Columns, Segment
from tiering.cluster.store import Store
from tiering.cluster.tasks import Call, ConflictError, Outcome, OutputFile, Stage, plan_digest, run_attempt
from tiering.errors import InternalError, RefusedError, TieringError
from tiering.progress import in_log, note, progress

WINDOW = 4
"""Attempts under way or waiting, for each slot: so many as keep slots busy and are remembered at no cost."""
REPORT_SECONDS = 60.0
"""Between two lines in a log on a stage that runs; there is one at its end in any case."""


@dataclass(frozen=True)
class RetryOptions:
    """When to try again, and when to send a copy after an attempt that does not end."""

    attempts: int = 5
    """Of a task, in one run of a job, before its last error ends the job."""
    straggler_factor: float = 3.0
    """Times the 95th percentile of the stage that an attempt may take before a copy is sent after it."""
    straggler_floor: float = 60.0
    """Seconds that it may take in any case."""
    poll: float = 0.5
    """Seconds between two looks at attempts that do not end."""


@dataclass
class Counters:
    """What happened in a job, for reports, and for tests to see that a fault has happened."""

    run: int = 0
    """Tasks whose manifest is from this run."""
    skipped: int = 0
    """Tasks that an earlier run had finished."""
    retried: int = 0
    """Attempts after one that failed."""
    copies: int = 0
    """Attempts sent after one that did not end."""
    recovered: int = 0
    """Tasks run again because what they had left was lost."""
    errors: list[str] = field(default_factory=list)
    """Of attempts that were tried again."""


@dataclass
class _Attempt:
    index: int
    begun: float | None = None
    """When it was first seen to have a slot."""


class Job:
    """Stages of one job, run one after the other; their plans and manifests are in the store under the job's name.

    The name stands for what is computed, from what: two runs of the same name are the same job, and the second goes on
    where the first was stopped.
    """

    expected = 0
    """Stages that the job runs, as far as is known."""

    def __init__(
        self,
        store: Store,
        name: str,
        executor: Executor,
        *,
        threads: int = 1,
        retry: RetryOptions | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.store, self.name, self.executor, self.threads = store, name, executor, threads
        self.retry, self.counters = retry or RetryOptions(), counters or Counters()
        self._stages: dict[str, Stage] = {}
        self._plans: dict[str, str] = {}
        """Digests of the stages' plans, which may be long."""
        self._given: dict[str, Columns] = {}
        self._tickets = 0

    def expect(self, stages: int) -> None:
        """Count stages that are going to run, for reports; some scores may need fewer."""
        self.expected += stages

    def run(self, stage: Stage, only: Iterable[int] | None = None) -> list[Manifest]:
        """Run what is missing of a stage; the manifests of all its tasks, or of those in `only`, in their order."""
        self._plan(stage)
        return self._run(stage, range(stage.tasks) if only is None else only)

    def drop(self, *stages: Stage) -> None:
        """Remove what the tasks of finished stages have left, which no stage to come reads; they still count as done.

        Should something that was made of it be lost, they are run again.
        """
        for stage in stages:
            self.store.claim(dropped_key(self.name, stage.name), b"dropped")
            self.store.clear(segments_folder(self.name, stage.name))

    def give(self, name: str, columns: Columns, bounds: Sequence[int] = ()) -> Stage:
        """Hand arrays of who leads the job to its tasks: the parts of task 0 of a stage that is run here, now.

        `bounds`: where parts begin and end; all is one part unless told. Arrays stay with who leads, to be given again.
        """
        cuts = list(bounds) or [0, *{array.shape[0] for array in columns.values()}]
        digest = xxhash.xxh3_64()
        for begin, end in pairwise(cuts):
            for array in columns.values():
                digest.update(np.ascontiguousarray(array[begin:end]).reshape(-1).view(np.uint8).data)
        stage = Stage(name, "tiering.cluster.tasks:give", 1, {"digest": digest.hexdigest(), "bounds": cuts})
        self._plan(stage)
        self._given[name] = columns
        if self._found(name, 0) is None:
            self._write_given(stage)
        return stage

    def _write_given(self, stage: Stage) -> None:
        plan, given = self._plans[stage.name], self._given[stage.name]
        run_attempt(self.store, self.name, stage, 0, plan_digest=plan, given=given)

    def read(self, stage: str, index: int, part: int = 0) -> dict[str, npt.NDArray[Any]]:
        """The columns of a part of a finished task, small ones, for who plans on; a lost one is made again."""
        for _ in range(self.retry.attempts):
            try:
                return Partitions(self.store, self.name).part(stage, index, part)
            except LostError as error:
                self.recover(error)
        return Partitions(self.store, self.name).part(stage, index, part)

    def _plan(self, stage: Stage) -> None:
        """Write the plan down, or see that it is the one that was."""
        unknown = [name for name in stage.reads if name not in self._stages]
        if unknown or self._stages.get(stage.name, stage) != stage:
            raise InternalError(f"stage {stage.name}: reads {unknown}, or is planned twice")
        plan, key = canonical(stage.to_json()), plan_key(self.name, stage.name)
        found = self.store.claim(key, plan)
        if not _is_json(found):  # torn by a power cut
            self.store.remove(key)
            found = self.store.claim(key, plan)
        if found != plan:
            raise ConflictError(
                f"{self.store.url}: {key} is another plan of the same job, by another "
                "version of this package or an input that changed; remove the job's folder and run it again"
            )
        self._stages[stage.name] = stage
        self._plans[stage.name] = plan_digest(stage)

    def _run(self, stage: Stage, wanted: Iterable[int]) -> list[Manifest]:
        manifests: dict[int, Manifest] = {}
        order, dropped = list(wanted), self.store.size(dropped_key(self.name, stage.name)) is not None
        for index in order:
            found = self._found(stage.name, index, dropped)
            if found is not None:
                manifests[index] = found
        self.counters.skipped += len(manifests)
        missing = [index for index in order if index not in manifests]
        if missing:
            with progress(len(order), stage.name, "task") as bar:
                bar.update(len(manifests))
                _StageRun(self, stage, missing, manifests, bar, len(order)).run()
        if order and in_log():
            note(self.report(stage, len(manifests), len(order)))
        return [manifests[index] for index in order]

    def report(self, stage: Stage, done: int, tasks: int) -> str:
        """A line for logs: how far a stage has come."""
        number = [name for name in self._stages if name not in self._given].index(stage.name) + 1
        of = max(number, self.expected)
        return f"{stage.name}: stage {number} of {of}, {done} of {tasks} tasks"

    def _found(self, stage: str, index: int, dropped: bool = False) -> Manifest | None:
        """The manifest of a finished task; one of which nothing is left is removed, unless that was `dropped`."""
        found = read_manifest(self.store, self.name, stage, index)
        if found is None or dropped or self._there(found):
            return found
        self.store.remove(manifest_key(self.name, stage, index))
        return None

    def _there(self, manifest: Manifest) -> bool:
        """Whether what a manifest stands for is there: a file as it was written, a segment by its size.

        Content of segments is compared where it is read. Cost: reads the file.
        """
        segment = Segment.from_json(manifest["segment"])
        if self.store.size(segment.key) != segment.nbytes:
            return False
        if manifest["file"] is None:
            return True
        file = OutputFile.from_json(manifest["file"])
        path, size = Path(file.folder, file.at), FileEntry(file.dtype, tuple(file.shape), "").bytes
        if not path.is_file() or path.stat().st_size != size:
            return False
        return not damaged_blocks(path, split_digests(bytes.fromhex(file.blocks)))

    def remove(self) -> None:
        """Remove what tasks have left for each other, once the job's result is published."""
        self.store.clear(self.name)

    def recover(self, lost: LostError, *, run: bool = True) -> None:
        """Run a task again whose manifest or segment is gone or damaged.

        `run`: whether that is done here, or by who calls, to whom that task belongs.
        """
        stage = self._stages.get(lost.stage)
        if stage is None:
            raise InternalError(f"a task read {lost.stage}, which its stage does not name")
        found = read_manifest(self.store, self.name, stage.name, lost.index)
        if found is not None and found["segment"]["key"] != lost.key and self._there(found):
            return  # another consumer has noticed before
        note(f"note: {lost}")
        self.counters.recovered += 1
        self.store.remove(manifest_key(self.name, stage.name, lost.index))
        mark = dropped_key(self.name, stage.name)
        if lost.stage in self._given:
            self._write_given(stage)
        elif self.store.size(mark) is not None:
            self.store.remove(mark)  # all of it is gone, and who reads one task's mostly reads the others' too
            self._run(stage, range(stage.tasks))
        elif run:
            self._run(stage, [lost.index])

    def call(self, stage: Stage, index: int) -> Call:
        return Call(self.store.url, self.name, stage, index, self._plans[stage.name], self.threads)

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


class _StageRun:
    """The attempts at the tasks of a stage that are missing."""

    def __init__(
        self, job: Job, stage: Stage, missing: list[int], manifests: dict[int, Manifest], bar: object, tasks: int
    ) -> None:
        self.job, self.stage, self.manifests, self.bar, self.tasks = job, stage, manifests, bar, tasks
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
                for finished in executor.wait(list(self.attempts), retry.poll):
                    self._finish(finished)
                self._send_copies()
                if time.monotonic() - self.reported >= REPORT_SECONDS and in_log():
                    self.reported = time.monotonic()
                    note(self.job.report(self.stage, len(self.manifests), self.tasks))
        except BaseException:
            for ticket in self.attempts:
                executor.drop(ticket)
            executor.settle()
            raise

    def _submit(self, index: int) -> None:
        ticket, alone = self.job.ticket(), all(attempt.index != index for attempt in self.attempts.values())
        self.attempts[ticket] = _Attempt(index)
        self.tries[index] = self.tries.get(index, 0) + 1
        self.job.executor.submit(ticket, replace(self.job.call(self.stage, index), alone=alone))

    def _finish(self, finished: Finished) -> None:
        attempt = self.attempts.pop(finished.ticket, None)
        if attempt is None or attempt.index in self.manifests:
            return  # a copy was faster
        outcome = finished.outcome
        if outcome.manifest is None:
            self._fail(attempt.index, outcome)
            return
        if attempt.begun is not None:
            self.seconds.append(time.monotonic() - attempt.begun)
        self.manifests[attempt.index] = outcome.manifest
        self.job.counters.run += 1
        self.bar.update(1)  # type: ignore[attr-defined]
        for ticket in [t for t, other in self.attempts.items() if other.index == attempt.index]:
            self.job.executor.drop(ticket)
            del self.attempts[ticket]

    def _fail(self, index: int, outcome: Outcome) -> None:
        error = outcome.error or InternalError(f"task {index} of {self.stage.name} ended without a word")
        if not outcome.again or self.tries[index] >= self.job.retry.attempts:
            raise self._named(error, index)
        self.job.counters.errors.append(str(error))
        if isinstance(error, LostError):
            own = (error.stage, error.index) == (self.stage.name, index)
            self.job.recover(error, run=not own)
        if not any(attempt.index == index for attempt in self.attempts.values()):
            self.job.counters.retried += 1
            self.waiting.appendleft(index)

    def _named(self, error: TieringError | RefusedError, index: int) -> Exception:
        tries = self.tries[index]
        if tries > 1:
            note(f"note: task {index} of {self.stage.name} failed {tries} times; the last error follows")
        return error

    def _send_copies(self) -> None:
        """Send a second attempt after each that takes too long: its worker may be frozen, or cut off, unnoticed."""
        retry, now = self.job.retry, time.monotonic()
        copied = [attempt.index for attempt in self.attempts.values()]
        for ticket, attempt in list(self.attempts.items()):
            if attempt.begun is None:
                if self.job.executor.running(ticket):
                    attempt.begun = now
                continue
            late = now - attempt.begun > self._patience() and self.tries[attempt.index] < retry.attempts
            if late and copied.count(attempt.index) == 1:
                self.job.counters.copies += 1
                self._submit(attempt.index)

    def _patience(self) -> float:
        """Seconds that an attempt may take before a copy is sent."""
        retry = self.job.retry
        if not self.seconds:
            return retry.straggler_floor
        ranked = sorted(self.seconds)
        return max(retry.straggler_floor, retry.straggler_factor * ranked[int(0.95 * (len(ranked) - 1))])
