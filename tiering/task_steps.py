"""Work that is cut into tasks, as it is foreseen: how many there are, what all of them move, and on which machines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tiering.description import Line, Part, Table
from tiering.errors import InputError
from tiering.units import format_bytes, format_count, format_seconds, parse_bytes

TASK_SHARE = 0.7
"""Of a machine's memory that Ray gives to tasks unless told otherwise."""
WORKER_BYTES = 256 << 20
"""That a worker holds beside what a task takes: the interpreter, and what it has loaded."""
STORE_RATE = 1e9
"""Bytes per second, for each machine, at which storage is taken to read and write: an order of magnitude."""
SMALL_PART = 1 << 20
"""Bytes below which a parallel file system no longer reads at its rate."""
_COLUMNS = ("by tasks", "tasks", "memory of one", "read", "taken", "handed on", "written")


@dataclass(frozen=True)
class TaskStep:
    """Tasks that may run side by side."""

    name: str
    tasks: int
    memory: int
    """Bytes that one takes at the most, beside what its process holds."""
    read: int = 0
    """Bytes of inputs and artifacts that are read, by all tasks together."""
    taken: int = 0
    """Of what earlier tasks have left."""
    left: int = 0
    """That they hand on."""
    written: int = 0
    """Of the artifact."""
    parts: int = 0
    """Pieces that all tasks hand on to all others; 0 where each has one."""
    times: int = 1
    """That the step is run; bytes are of all."""

    @property
    def moved(self) -> int:
        return self.read + self.taken + self.left + self.written


@dataclass(frozen=True)
class Machines:
    """A cluster that is planned for: so many machines with so much memory."""

    count: int
    memory: int

    @classmethod
    def parse(cls, text: str) -> Machines:
        """From ``8x64GiB``."""
        found = re.fullmatch(r"(\d+)\s*x\s*(\S+)", text)
        if found is None or int(found[1]) < 1:
            raise InputError(f"workers: expected a number, or machines to plan for such as 8x64GiB, found {text!r}")
        return cls(int(found[1]), parse_bytes(found[2], "workers: memory of a machine"))

    def __str__(self) -> str:
        return f"{self.count} machines of {format_bytes(self.memory)}"

    def side_by_side(self, memory: int) -> int:
        """Tasks that find room on one machine."""
        return int(TASK_SHARE * self.memory) // (memory + WORKER_BYTES)


def joined(steps: Sequence[TaskStep]) -> list[TaskStep]:
    """Steps that are run again and again, ``sweep-1``, ``sweep-2``, as one each."""
    found: dict[tuple[str, int], TaskStep] = {}
    for step in steps:
        name, _, number = step.name.rpartition("-")
        name = name if number.isdigit() else step.name
        if (known := found.get((name, step.tasks))) is None:
            found[name, step.tasks] = replace(step, name=name)
            continue
        sums = {key: getattr(known, key) + getattr(step, key) for key in ("read", "taken", "left", "written", "parts")}
        found[name, step.tasks] = replace(
            known, memory=max(known.memory, step.memory), times=known.times + step.times, **sums
        )
    return list(found.values())


@dataclass(frozen=True)
class TaskSums:
    """What all tasks of one or several steps take."""

    steps: tuple[TaskStep, ...]
    machines: Machines | None = None

    @property
    def tasks(self) -> int:
        return sum(step.tasks * step.times for step in self.steps)

    @property
    def memory(self) -> int:
        """Of the largest task."""
        return max((step.memory for step in self.steps), default=0)

    @property
    def moved(self) -> int:
        return sum(step.moved for step in self.steps)

    @property
    def seconds(self) -> float:
        """That storage takes for what is moved, at `STORE_RATE`: no cluster is faster than that.

        A step keeps no more machines busy than it has tasks.
        """
        count = self.machines.count if self.machines else 1
        return sum(step.moved / STORE_RATE / max(1, min(step.tasks, count)) for step in self.steps)

    @property
    def fit(self) -> bool:
        """Whether each task finds room on a machine."""
        return self.machines is None or self.machines.side_by_side(self.memory) > 0

    def to_json(self) -> dict[str, Any]:
        beside = None if self.machines is None else self.machines.side_by_side(self.memory)
        return {
            "tasks": self.tasks, "task_memory": self.memory, "moved": self.moved,
            "seconds_at_least": float(f"{self.seconds:.3g}"), "side_by_side": beside, "tasks_fit": self.fit,
        }  # fmt: skip

    def table(self) -> Part:
        """The steps, and their sums."""
        rows = []
        for s in self.steps:
            tasks = f"{s.times} x {s.tasks:,}" if s.times > 1 else f"{s.tasks:,}"
            rows.append((s.name, tasks, format_bytes(s.memory), *map(_size, (s.read, s.taken, s.left, s.written))))
        sums = (sum(getattr(step, key) for step in self.steps) for key in ("read", "taken", "left", "written"))
        rows.append(("total", f"{self.tasks:,}", format_bytes(self.memory), *map(_size, sums)))
        return Table("", _COLUMNS, rows, left=1)

    def lines(self) -> list[Part]:
        """In words: what fits, how long it takes at least, what may be done better."""
        rate = f"{STORE_RATE / 1e9:g} GB/s"
        whose = "of storage" if self.machines is None else f"of storage for each of {self.machines}"
        time = format_seconds(self.seconds) if self.seconds >= 0.95 else "less than a second"
        said = [f"tasks move {format_bytes(self.moved)}: {time} at the least, at {rate} {whose}"]
        if self.machines is not None:
            beside, least = self.machines.side_by_side(self.memory), format_bytes(self.memory + WORKER_BYTES)
            said.append(
                f"{beside:,} of the largest tasks side by side on each machine, by its memory"
                if beside
                else f"the largest tasks need {least}, more than a machine has for tasks; give --task-memory less"
            )
        for step in self.steps:
            if step.parts and step.left > 1 << 30 and (part := step.left // step.parts) < SMALL_PART:
                said.append(
                    f"{step.name} hands on {format_count(step.parts)} pieces of {format_bytes(part)}: storage that "
                    "likes long reads is faster with more --task-memory"
                )
        return [Line(text) for text in said]


def _size(size: int) -> str:
    return format_bytes(size) if size else "-"
