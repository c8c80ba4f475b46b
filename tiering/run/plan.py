"""Plans of stages: steps with their memory and disk, known before anything runs; whether the disks suffice."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.artifacts.storage import disk_free, disk_of
from tiering.errors import StorageError
from tiering.memory import Budget
from tiering.text.description import Described, Fields, Part, Table, to_text
from tiering.text.units import format_bytes, format_seconds

SMALL = 20 << 20
"""Bytes of everything that is small: modules loaded on the way, manifests, stacks, what the allocator keeps."""
DISK_RATE = 1e9  # bytes per second of a disk: an order of magnitude, not measured
EDGE_SECONDS = 10e-9  # seconds in which a thread takes an edge once: an order of magnitude, not measured
_DISK = ("disk_read", "disk_written", "disk_scratch", "disk_left")
_COLUMNS = ("step", "method", "peak memory", "bytes read", "bytes written", "scratch", "left on disk")


def base_memory(budget: Budget) -> int:
    """Return the bytes a stage holds throughout: the memory of this process at its begin, and `SMALL`."""
    return budget.resident + SMALL


@dataclass(frozen=True)
class StepEstimate:
    """One step of a stage; steps follow each other."""

    name: str
    how: str  # strategy in words: ``in memory``, ``scatter``, ``3 windows``
    memory: int = 0  # bytes of anonymous and shared memory at the peak, in addition to what the stage holds throughout
    disk_read: int = 0  # bytes of the inputs that are read from disk; what lies in the page cache is not
    disk_written: int = 0  # bytes of the result that are written
    disk_scratch: int = 0  # bytes that are written for a while, read again, and gone when the step ends
    amount: int = 0  # how many of `unit` (``edge``, ``node``, ``row`` or ``list``) pass, each as often as it does
    unit: str = ""
    in_store: bool = False  # whether `disk_scratch` are shuffle files of tasks, in their store


def _total(name: str) -> Any:
    """Return a property of a stage: the sum of a figure of its steps."""
    return property(lambda stage: sum(getattr(step, name) for step in stage.steps))


@dataclass(frozen=True)
class StageEstimate:
    """A stage: its steps, and the bytes that it leaves in each directory."""

    stage: str
    out: Path
    steps: tuple[StepEstimate, ...]  # in the order in which they run
    left: Mapping[Path, int] = field(default_factory=dict)
    """Bytes that stay, by the directory they lie in: `out`, and the directories of stripe files."""
    held: int = 0  # bytes of memory held throughout: the interpreter, what it has loaded, and the opened input
    notes: tuple[str, ...] = ()  # assumptions behind the numbers, where they are not plain
    threads: int = 1
    store: Path | None = None  # directory of the shuffle files of tasks; by default next to `out`

    @property
    def memory(self) -> int:
        """Peak of anonymous and shared memory: `held` and the largest step."""
        return self.held + max((step.memory for step in self.steps), default=0)

    disk_read, disk_written, disk_scratch = _total("disk_read"), _total("disk_written"), _total("disk_scratch")

    @property
    def disk_left(self) -> int:
        """Bytes that stay; the manifest, some KiB, apart."""
        return sum(self.left.values())

    @property
    def seconds(self) -> float:
        """Time, about: bytes moved at `DISK_RATE`, then edges at `EDGE_SECONDS`, shared by the threads."""
        moved: int = self.disk_read + self.disk_written + 2 * self.disk_scratch
        edges = sum(step.amount for step in self.steps if step.unit == "edge")
        return moved / DISK_RATE + edges * EDGE_SECONDS / self.threads

    def needed(self) -> dict[Path, int]:
        """Return the bytes that must be free by directory: for files that stay, and the largest scratch files there."""
        scratch = Counter[Path]()
        for step in self.steps:
            place = (step.in_store and self.store) or self.out
            scratch[place] = max(scratch[place], step.disk_scratch)
        return Counter(self.left) + scratch

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return {
            "stage": self.stage,
            "out": str(self.out),
            "seconds": float(f"{self.seconds:.3g}"),
            "memory": self.memory,
            "memory_held": self.held,
            **{name: getattr(self, name) for name in _DISK},
            "left": {str(place): nbytes for place, nbytes in self.left.items()},
            "steps": [dict(vars(step)) for step in self.steps],
            "notes": list(self.notes),
        }

    def describe(self) -> list[Part]:
        """Return the table of the steps, the time, the notes."""
        time = [f"time: {_about(self.seconds)}"] if self.steps else []
        lines = [*time, *(f"note: {text}" for text in self.notes)]
        return [Table(f"{self.stage} -> {self.out}", _COLUMNS, self._rows(), left=2), *lines]

    def _rows(self) -> list[tuple[str, ...]]:
        if not self.steps:
            return [("all", "up to date", *(["-"] * 5))]

        def row(name: str, how: str, *sizes: int) -> tuple[str, ...]:
            return (name, how, *(format_bytes(size) if size else "-" for size in sizes))

        steps = [
            (*row(s.name, s.how, self.held + s.memory, s.disk_read, s.disk_written, s.disk_scratch), "")
            for s in self.steps
        ]
        total = row("total", "", self.memory, self.disk_read, self.disk_written, self.disk_scratch, self.disk_left)
        return [*steps, total]


@dataclass(frozen=True)
class Estimate(Described):
    """The estimate of one or several stages that run one after the other."""

    plans: tuple[StageEstimate, ...]

    @property
    def seconds(self) -> float:
        """Estimated seconds of all stages."""
        return sum(plan.seconds for plan in self.plans)

    @property
    def memory(self) -> int:
        """Bytes of memory at the peak of the largest stage."""
        return max((plan.memory for plan in self.plans), default=0)

    def shortages(self) -> list[str]:
        """Return a line for each disk with less free space than the stages need at their fullest moment."""
        place: dict[int, Path] = {}
        needed, kept = Counter[int](), Counter[int]()
        for plan in self.plans:
            for path, nbytes in plan.needed().items():
                device = disk_of(path)
                place.setdefault(device, path)
                needed[device] = max(needed[device], kept[device] + nbytes)
            for path, nbytes in plan.left.items():
                kept[disk_of(path)] += nbytes
        disks = [(path, needed[device], disk_free(path)) for device, path in place.items()]
        short = [disk for disk in disks if disk[1] > disk[2]]
        return [f"{path}: {format_bytes(wanted)} needed, {format_bytes(free)} free" for path, wanted, free in short]

    def require_space(self) -> None:
        """Raise `StorageError` naming each disk that is too small, bytes needed and free."""
        if short := self.shortages():
            raise StorageError(errno.ENOSPC, f"{'; '.join(short)}; make room or choose another disk")

    def __str__(self) -> str:
        return to_text(self.describe())

    def describe(self) -> list[Part]:
        """Return a table per stage, the totals, and the assumptions behind the numbers; ``print`` shows them."""
        parts = [part for plan in self.plans for part in plan.describe()]
        if len(self.plans) > 1:
            left = format_bytes(sum(plan.disk_left for plan in self.plans))
            parts.append(
                Fields({"time": _about(self.seconds), "peak memory": format_bytes(self.memory), "left on disk": left})
            )
        assumed = f"disks of {DISK_RATE / 1e9:g} GB/s and {1e9 * EDGE_SECONDS:g} ns per edge and thread"
        return [
            *parts,
            "nothing was run; reads exclude data in the page cache; memory is the whole process's;",
            f"the time is an order of magnitude and assumes {assumed}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return {
            "dry_run": True,
            "stages": [plan.to_json() for plan in self.plans],
            "seconds": float(f"{self.seconds:.3g}"),
            "memory": self.memory,
            **{name: sum(getattr(plan, name) for plan in self.plans) for name in _DISK},
            "fits": not self.shortages(),
            "assumed": {"disk_bytes_per_second": DISK_RATE, "seconds_per_edge": EDGE_SECONDS},
        }


def _about(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 0.95 else "less than a second"
