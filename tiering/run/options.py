"""The options of tasks: which executor runs them, where, and how finely work is cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiering.errors import InputError
from tiering.text.arguments import require_local
from tiering.text.options import option
from tiering.text.units import parse_bytes

if TYPE_CHECKING:
    from tiering.run.grid import Grid

EXECUTORS = ("local", "ray")
_PANEL = "Distributed execution"


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
        require_local("a directory", store=self.store)
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers: expected 1 or more, found {self.workers}")
        if self.address is not None and self.workers is not None:
            raise InputError("workers: of an executor on this machine, not of a cluster that is joined; leave it out")
        _ = self.grid, self.wanted

    @property
    def grid(self) -> Grid:
        """How finely work is cut."""
        from tiering.run.grid import Grid

        memory = Grid.task_memory if self.task_memory is None else parse_bytes(self.task_memory, "task memory")
        if memory < 64 << 20:
            raise InputError(f"task memory: expected 64MiB or more, found {self.task_memory}")
        if self.shards is not None and not 1 <= self.shards <= 65536:
            raise InputError(f"shards: expected 1 to 65536, found {self.shards}")
        return Grid(memory, self.shards)

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
