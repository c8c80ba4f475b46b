"""The carrier of a command's tasks: an executor, a store for their shuffle files, and how finely work is cut."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from tiering.artifacts.atomic import ExternalDirectories
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError
from tiering.options import option
from tiering.progress import note
from tiering.run.grid import Grid
from tiering.run.job import Counters, Job, RetryOptions
from tiering.run.pieces import canonical
from tiering.run.ray import RayExecutor
from tiering.run.step import LocalExecutor
from tiering.run.store import Store, check_store
from tiering.units import parse_threads

EXECUTORS = ("local", "ray")


_PANEL = "Many workers, the same bytes"


@dataclass(frozen=True)
class ClusterOptions:
    """How tasks run. Only `task_memory` and `shards` decide what they are; nothing changes the result."""

    executor: str = option(
        "local", "Run the work as tasks: on a Ray cluster, or on threads (local) as --shards or --task-memory say.",
        "local|ray", panel=_PANEL, cli=str | None,
    )  # fmt: skip
    store: str | None = option(
        None, "Directory of the shuffle files; all machines see it. Default: next to the output.", "DIR", panel=_PANEL
    )
    address: str | None = option(
        None, "Ray cluster to join. Default: one of this machine alone.", "auto|HOST:PORT", panel=_PANEL
    )
    workers: int | None = option(None, "Tasks at a time on this machine. Default: processors.", "N", panel=_PANEL)
    task_memory: str | int | None = option(
        None, "Approximate memory of a task; decides the number of partitions.", "SIZE", panel=_PANEL, cli=str | None
    )
    shards: int | None = option(None, "Number of partitions, instead.", "N", panel=_PANEL)
    resources: Mapping[str, float | str] | str | None = option(
        None, "What a machine of the Ray cluster needs to take tasks: an amount of a resource for each, or a label.",
        "NAME=AMOUNT|LABEL=TEXT,..", panel=_PANEL, cli=str | None,
    )  # fmt: skip
    threads: int = 1  # threads of a task

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise InputError(f"executor: expected {' or '.join(EXECUTORS)}, found {self.executor!r}")
        for name in ("address", "resources"):
            if getattr(self, name) is not None and self.executor != "ray":
                raise InputError(f"{name}: only with executor ray; leave it out")
        if self.store is not None:
            check_store(self.store)
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers: expected 1 or more, found {self.workers}")
        if self.address is not None and self.workers is not None:
            raise InputError("workers: of an executor on this machine, not of a cluster that is joined; leave it out")
        _ = self.grid, self.wanted

    @property
    def grid(self) -> Grid:
        """How finely work is cut."""
        return Grid.of(self.task_memory, self.shards)

    @property
    def cuts(self) -> bool:
        """Whether work is cut at all: on this machine alone only where a size is given, for one process is faster."""
        return self.executor == "ray" or (self.task_memory, self.shards) != (None, None)

    @property
    def wanted(self) -> dict[str, float | str]:
        """Amounts of resources and texts of labels, by name."""
        given = {} if self.resources is None else self.resources
        if isinstance(given, str):
            items = (item.partition("=") for item in given.split(","))
            texts = {name.strip(): value.strip() for name, _, value in items}
            given = {name: float(v) if v.replace(".", "", 1).isdecimal() else v for name, v in texts.items()}
        for name, value in given.items():
            known = name in ("", "CPU", "GPU", "memory", "object_store_memory")
            whole = isinstance(value, str) or 0 < value <= 1 or (value > 1 and value == int(value))
            if known or value == "" or not whole:
                raise InputError(
                    "resources: expected NAME=AMOUNT, a fraction up to 1 or a whole number, or LABEL=TEXT, as machines "
                    f"were given them at `ray start`, found {name}={value}"
                )
        return dict(given)


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
                more = {"resources": options.wanted} if options.wanted else {}
                self._executor = RayExecutor(options.address, workers=workers, threads=options.threads, **more)
            else:
                self._executor = LocalExecutor(workers)
        return self._executor

    def __exit__(self, *error: object) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
