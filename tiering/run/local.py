"""Attempts on threads of this process: the core computes outside Python's lock."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tiering.run.executor import Finished
from tiering.run.step import Call, Outcome, attempt


class LocalExecutor:
    """An executor of threads."""

    def __init__(self, workers: int) -> None:
        self.slots = workers
        self._pool = ThreadPoolExecutor(workers, "task")
        self._futures: dict[int, Future[Outcome]] = {}
        self._dropped: list[Future[Outcome]] = []

    def submit(self, ticket: int, call: Call) -> None:
        """Start an attempt under the number `ticket`."""
        self._futures[ticket] = self._pool.submit(attempt, call)

    def wait(self, tickets: Collection[int], seconds: float) -> list[Finished]:
        """Return the attempts among `tickets` that have ended; an empty list once `seconds` are over."""
        known = {self._futures[ticket]: ticket for ticket in tickets if ticket in self._futures}
        if not known:
            time.sleep(seconds)
            return []
        done, _ = wait(known, seconds, FIRST_COMPLETED)
        return [Finished(known[future], self._futures.pop(known[future]).result()) for future in done]

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
