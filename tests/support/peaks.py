"""The most memory this process held while something ran."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Peak:
    """The most anonymous and shared memory a process held while it was watched."""

    bytes: int = 0


def settle() -> None:
    """Give back what earlier work left behind: it would go while a test compares what is held, or plans with it."""
    from tiering.memory import release_unused

    release_unused()


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Watch this process's anonymous and shared memory, every 2 ms."""
    from tiering.memory import own_memory

    settle()
    peak, done = Peak(own_memory()), threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            peak.bytes = max(peak.bytes, own_memory())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
