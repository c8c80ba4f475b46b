"""Processes that work together: which one, and whether it still runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process by number and start, so that one that got its number later is not taken for it."""

    pid: int
    """Number."""
    started: str
    """When it started, in the kernel's ticks; empty if there was none."""

    @classmethod
    def this(cls) -> Process:
        """The process that asks."""
        return cls(os.getpid(), _start(os.getpid()))

    def alive(self) -> bool:
        """Whether it still runs."""
        return bool(self.started) and _start(self.pid) == self.started


def _start(pid: int) -> str:
    """When a process started; empty if there is none, or it has ended and waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return "" if fields[0] in "ZX" else fields[19]
