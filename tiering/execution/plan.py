"""What a stage is going to do: steps with their memory, disk and time, known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiering.execution.memory import own_memory

SMALL = 20 << 20
"""Bytes of everything that is small: modules loaded on the way, manifests, stacks, what the allocator keeps."""


def held_memory() -> int:
    """What a stage that begins now holds throughout: what this process has taken, and `SMALL`."""
    return own_memory() + SMALL


@dataclass(frozen=True)
class Step:
    """One step of a stage; steps follow each other."""

    name: str
    """What is made."""
    how: str
    """Strategy in words: ``in memory``, ``scatter``, ``3 windows``..."""
    memory: int = 0
    """Bytes of anonymous and shared memory at the peak, beside what the stage holds throughout."""
    disk_read: int = 0
    """Bytes of the inputs that are read from disk; what lies in the page cache is not."""
    disk_written: int = 0
    """Bytes of the result that are written."""
    disk_scratch: int = 0
    """Bytes that are written for a while, read again once, and gone when the step ends."""
    seconds: float = 0.0
    """Time, at the rates of this machine."""
    amount: int = 0
    """How many of `unit` pass."""
    unit: str = ""
    """``edge``, ``node``, ``row`` or ``B``."""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {**vars(self), "seconds": round(self.seconds, 4)}


@dataclass(frozen=True)
class StagePlan:
    """A stage: its steps, what it leaves and where."""

    stage: str
    """Name of the command."""
    out: Path
    """The artifact."""
    steps: tuple[Step, ...]
    """In the order in which they run."""
    left: Mapping[Path, int] = field(default_factory=dict)
    """Bytes that stay, by the directory they lie in: `out`, and those of SSD images."""
    held: int = 0
    """Bytes of memory held throughout: the interpreter, what it has loaded, and the opened input."""
    notes: tuple[str, ...] = ()
    """What the numbers rest on, where that is not plain."""

    @property
    def memory(self) -> int:
        """Peak of anonymous and shared memory: `held` and the largest step."""
        return self.held + max((step.memory for step in self.steps), default=0)

    @property
    def disk_read(self) -> int:
        """Bytes of inputs read from disk."""
        return sum(step.disk_read for step in self.steps)

    @property
    def disk_written(self) -> int:
        """Bytes of the result written."""
        return sum(step.disk_written for step in self.steps)

    @property
    def disk_scratch(self) -> int:
        """Bytes written for a while and read again, over all steps."""
        return sum(step.disk_scratch for step in self.steps)

    @property
    def disk_left(self) -> int:
        """Bytes that stay; the manifest, some KiB, apart."""
        return sum(self.left.values())

    @property
    def seconds(self) -> float:
        """Time of all steps."""
        return sum(step.seconds for step in self.steps)

    def needed(self) -> dict[Path, int]:
        """Bytes that must be free, by directory: what stays, and the largest scratch file beside `out`."""
        scratch = max((step.disk_scratch for step in self.steps), default=0)
        return {place: nbytes + (scratch if place == self.out else 0) for place, nbytes in self.left.items()}

    def to_json(self) -> dict[str, Any]:
        """JSON form: totals and steps."""
        return {
            "stage": self.stage,
            "out": str(self.out),
            "seconds": round(self.seconds, 4),
            "memory": self.memory,
            "memory_held": self.held,
            "disk_read": self.disk_read,
            "disk_written": self.disk_written,
            "disk_scratch": self.disk_scratch,
            "disk_left": self.disk_left,
            "left": {str(place): nbytes for place, nbytes in self.left.items()},
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }
