"""The carrier of a command's tasks: an executor, a store for their shuffle files, and how finely work is cut."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import xxhash

from tiering.artifacts.atomic import ExternalDirectories
from tiering.artifacts.writer import ArtifactWriter
from tiering.run.job import Counters, Job, RetryOptions
from tiering.run.options import ClusterOptions as ClusterOptions
from tiering.run.pieces import canonical
from tiering.run.ray import RayExecutor
from tiering.run.step import LocalExecutor
from tiering.run.store import Store
from tiering.text.progress import note
from tiering.text.units import parse_threads


class Carrier(AbstractContextManager["Carrier"]):
    """The runner of jobs, handed to the stages of a command; a context manager that ends the executor."""

    def __init__(self, options: ClusterOptions, retry: RetryOptions | None = None) -> None:
        self.options, self.grid, self.retry = options, options.grid, retry
        self.counters = Counters()
        self._executor: LocalExecutor | RayExecutor | None = None
        self._jobs: list[Job] = []

    def cuts(self, nbytes: int) -> bool:
        """Return whether a step that would take `nbytes` in one task runs as several tasks."""
        return nbytes > 0 and self.grid.parts(nbytes) > 1

    def job(self, writer: ArtifactWriter) -> Job:
        """Return the job that makes an artifact; its name stands for what is made, from what, and how it is cut."""
        stage = str(writer.journal.identity["stage"])
        identity: Mapping[str, Any] = {**writer.journal.identity, "out": str(writer.root), **vars(self.grid)}
        name = f"{stage}-{xxhash.xxh3_64_hexdigest(canonical(identity))}"
        url, executor = self.options.store or str(writer.root.with_name(f".{writer.root.name}.tasks")), self._started()
        folder = Path(os.path.abspath(url)) / name  # noqa: PTH100 - keep symbolic links in the name as given
        # Removed with the journal that knows of it, however the run ends.
        ExternalDirectories(writer.journal, writer.root).own_temporary(folder)
        job = Job(
            Store(url), name, executor, grid=self.grid, threads=self.options.threads, retry=self.retry,
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
                sizes = {"workers": workers, "threads": options.threads}
                self._executor = RayExecutor(options.address, **sizes, resources=options.wanted)
            else:
                self._executor = LocalExecutor(workers)
        return self._executor

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
