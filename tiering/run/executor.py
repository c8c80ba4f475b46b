"""The interface of executors, which run attempts at tasks and report their ends; `tiering.run.job` retries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from tiering.errors import CapabilityError
from tiering.run.step import Call, Outcome

WORKER_BYTES = 256 << 20  # memory of a worker in addition to that of its task: the interpreter, and what it has loaded


class LostWorkerError(CapabilityError):
    """The process or machine that ran an attempt, or the cluster, is gone; finished tasks stay for the next run."""


@dataclass(frozen=True)
class Finished:
    """An attempt that has ended."""

    ticket: int
    outcome: Outcome


class Executor(Protocol):
    """A runner of attempts at tasks."""

    @property
    def slots(self) -> int:
        """Attempts that can run at the same time."""

    def submit(self, ticket: int, call: Call) -> None:
        """Start an attempt under a number of the caller's."""

    def wait(self, tickets: Collection[int], seconds: float) -> list[Finished]:
        """Return attempts that have ended, at least one unless the time is over; each is returned once.

        A lost worker's attempt has an outcome with a `LostWorkerError` that may be tried again.
        """

    def running(self, ticket: int) -> bool:
        """Return whether the attempt has a slot, as far as is known."""

    def cancel(self, ticket: int) -> None:
        """Forget an attempt: its result is not wanted any more."""

    def settle(self) -> None:
        """Wait for canceled attempts that still write in this process."""

    def close(self) -> None:
        """End the executor."""


def memory_of(call: Call) -> int:
    """Return the memory of an attempt with its worker in bytes; 0 if unknown."""
    return call.step.memory and call.step.memory + WORKER_BYTES


def has_room(machine: Mapping[str, float], call: Call) -> bool:
    """Return whether an attempt fits a machine of such resources on which nothing else runs."""
    return machine.get("CPU", 0) >= call.threads and machine.get("memory", 0) >= memory_of(call)
