"""Executors run attempts at tasks and report their ends: threads here, Ray in `tiering.run.ray`.

`tiering.run.job` retries: a lost worker's attempt ends with a `LostWorkerError` that may be tried again.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tiering.errors import CapabilityError
from tiering.run.step import Call, Outcome, attempt

WORKER_BYTES = 256 << 20  # memory of a worker in addition to that of its task: the interpreter, and what it has loaded


class LostWorkerError(CapabilityError):
    """The process or machine that ran an attempt, or the cluster, is gone; finished tasks stay for the next run."""


def memory_of(call: Call) -> int:
    """Return the memory of an attempt with its worker in bytes; 0 if unknown."""
    return call.step.memory and call.step.memory + WORKER_BYTES


class LocalExecutor:
    """Attempts on threads of this process: the core computes outside Python's lock."""

    def __init__(self, workers: int) -> None:
        self.slots = workers  # attempts that can run at the same time
        self._pool = ThreadPoolExecutor(workers, "task")
        self._futures: dict[int, Future[Outcome]] = {}
        self._dropped: list[Future[Outcome]] = []

    def submit(self, ticket: int, call: Call) -> None:
        """Start an attempt under the number `ticket`."""
        self._futures[ticket] = self._pool.submit(attempt, call)

    def wait(self, tickets: Collection[int], seconds: float) -> list[tuple[int, Outcome]]:
        """Return the attempts among `tickets` that have ended, each once, and how; none once `seconds` are over."""
        known = {self._futures[ticket]: ticket for ticket in tickets if ticket in self._futures}
        if not known:
            time.sleep(seconds)
            return []
        done, _ = wait(known, seconds, FIRST_COMPLETED)
        return [(known[future], self._futures.pop(known[future]).result()) for future in done]

    def running(self, ticket: int) -> bool:
        """Return whether the attempt runs or has ended, rather than waits for a thread."""
        future = self._futures.get(ticket)
        return future is not None and (future.running() or future.done())

    def cancel(self, ticket: int) -> None:
        """Give an attempt up; its result is never returned."""
        future = self._futures.pop(ticket, None)
        if future is not None and not future.cancel():
            self._dropped.append(future)

    def settle(self) -> None:
        """Wait until cancelled attempts that were running have ended."""
        wait(self._dropped)
        self._dropped.clear()

    def close(self) -> None:
        """End the threads, and drop attempts that have not begun."""
        self._pool.shutdown(cancel_futures=True)
