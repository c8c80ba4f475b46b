"""Processes that work together: which one, whether it still runs, and locks that its forked children can take."""

from __future__ import annotations

import os
import threading
import weakref
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


class ForkLock:
    """A lock that a forked child finds open: the thread that held it in the parent does not exist there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def reopen(self) -> None:
        """Forget who holds it."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _reopen_locks() -> None:
    for lock in _locks:
        lock.reopen()


os.register_at_fork(after_in_child=_reopen_locks)
