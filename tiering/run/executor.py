"""The interface of executors, which run attempts at tasks and report their ends; `tiering.run.job` retries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from tiering.errors import CapabilityError
from tiering.run.step import Call, Outcome

WORKER_BYTES = 256 << 20
"""Memory of a worker in addition to that of its task: the interpreter, and what it has loaded."""


class LostWorkerError(CapabilityError):
    """The process or machine that ran an attempt, or the cluster, is gone; finished tasks stay for the next run."""


@dataclass(frozen=True)
class Finished:
    """An attempt that has ended."""

    ticket: int
    outcome: Outcome


class Executor(Protocol):
    """Runs attempts at tasks."""

    @property
    def slots(self) -> int:
        """Attempts that can run at the same time."""

    def submit(self, ticket: int, call: Call) -> None:
        """Begin an attempt, under a number that the caller gives it."""

    def wait(self, tickets: Collection[int], seconds: float) -> list[Finished]:
        """Those of the attempts that have ended, at least one unless the time is over; each is told once.

        What becomes of a lost worker's attempt is an outcome with a `LostWorkerError` that may be tried again.
        """

    def running(self, ticket: int) -> bool:
        """Whether the attempt may have begun: it does not wait for a slot, as far as that is known."""

    def cancel(self, ticket: int) -> None:
        """Forget an attempt: its result is not wanted any more."""

    def settle(self) -> None:
        """Wait for dropped attempts that go on in this process: what they write would come after what removes it."""

    def close(self) -> None:
        """Give back what the executor holds."""


def memory_of(call: Call) -> int:
    """Bytes that an attempt takes with its worker; 0 if they are not known."""
    return call.step.memory and call.step.memory + WORKER_BYTES


def has_room(machine: Mapping[str, float], call: Call) -> bool:
    """Return whether an attempt fits a machine of such resources on which nothing else runs."""
    return machine.get("CPU", 0) >= call.threads and machine.get("memory", 0) >= memory_of(call)
