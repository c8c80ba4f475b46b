"""Holds tasks of real stages on whatever worker they run, so that a test can kill or freeze that.

Who leads the job asks for `run` in the place of the stage's own function. What the task does, and what its manifest
says, stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cluster_jobs import _pause

from tiering.run.job import Job
from tiering.run.step import Call, Step, TaskContext, resolve


@contextmanager
def held_calls(hold: Mapping[str, Any] | None) -> Iterator[None]:
    """Meanwhile this process asks for tasks that are held as `cluster_jobs.hold` says, if at all."""
    whole = Job.call

    def call(self: Job, stage: Step, index: int) -> Call:
        made = whole(self, stage, index)
        params = {**stage.params, "hold": hold, "held function": stage.function}
        return replace(made, step=replace(stage, function="stage_holds:run", params=params))

    if hold is not None:
        Job.call = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        Job.call = whole  # type: ignore[method-assign]


def run(context: TaskContext) -> Mapping[str, Any] | None:
    """Wait if the task is to be held, then do what its stage does."""
    _pause(context)
    return resolve(context.params["held function"])(context)
