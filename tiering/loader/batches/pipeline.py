"""Background stages for a stream of numbered items: bounded, in order or not; errors reach the consumer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tiering.errors import CapabilityError, TieringError
from tiering.loader.process import ForkLock

Span = tuple[str, float, float]  # a stage, and when it worked on an item


@dataclass
class StageTimes:
    """Seconds of a loader's stages, and of its consumer, cut where it requests a batch and gets one."""

    batches: int = 0  # batches handed over
    spent: dict[str, float] = field(default_factory=dict)  # wall time by ``training``, ``waiting`` and ``setup``
    waited: dict[str, float] = field(default_factory=dict)  # of ``waiting`` by the stage that the batch was in
    busy: dict[str, float] = field(default_factory=dict)  # seconds of work by stage, over all its threads
    threads: dict[str, int] = field(default_factory=dict)  # threads by stage
    _epochs: int = 0  # running
    _ended: float = 0.0  # wall seconds of epochs that have ended
    _begun: float = 0.0
    _mark: float = field(default_factory=time.perf_counter)
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Count the wall time of an epoch."""
        with self._lock:
            if not self._epochs:
                self._begun = self._mark = time.perf_counter()
            self._epochs += 1
        try:
            yield
        finally:
            self.lap("setup")
            with self._lock:
                self._epochs -= 1
                self._ended += 0.0 if self._epochs else self._mark - self._begun

    @property
    def wall(self) -> float:
        """Wall seconds of epochs."""
        return self._ended + (time.perf_counter() - self._begun if self._epochs else 0.0)

    def lap(self, what: str) -> tuple[float, float]:
        """Count the consumer's time since the last call; return when it began and ended."""
        with self._lock:
            before, self._mark = self._mark, time.perf_counter()
            self.spent[what] = self.spent.get(what, 0.0) + self._mark - before
            return before, self._mark

    @contextmanager
    def work(self, stage: str) -> Iterator[None]:
        """Count work of a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.busy[stage] = self.busy.get(stage, 0.0) + time.perf_counter() - start

    def hand_over(self, spans: Sequence[Span]) -> None:
        """Count a batch that the consumer has waited for until now, by the stages that worked on it meanwhile."""
        asked, ready = self.lap("waiting")
        parts = {stage: max(0.0, min(end, ready) - max(begin, asked)) for stage, begin, end in spans}
        parts["handover"] = ready - asked - sum(parts.values())
        self.batches += 1
        for stage, seconds in parts.items():
            self.waited[stage] = self.waited.get(stage, 0.0) + seconds

    def reset(self) -> None:
        """Begin again at zero."""
        with self._lock:
            self.batches, self.spent, self.waited, self.busy = 0, {}, {}, {}
            self._ended, self._begun = 0.0, time.perf_counter()
            self._mark = self._begun


@dataclass(frozen=True)
class PipelineStage:
    """A step that every item passes through."""

    name: str
    run: Callable[[Any], Any]  # makes an item from the stage before's; the first stage from the item's position
    workers: int = 1  # items in this stage at the same time
    counted: bool = True  # whether `run` is all work; else it counts its work by itself
    abort: Callable[[], None] | None = None  # makes a waiting `run` return, once no item is wanted any more


class StageError(TieringError, RuntimeError):
    """A stage of the pipeline failed; the cause is the error itself."""

    def __init__(self, what: str, stage: str, error: Exception) -> None:
        super().__init__(f"{what}: {stage} failed: {type(error).__name__}: {error}")


def run_stages(
    numbers: Sequence[int],
    stages: list[PipelineStage],
    ahead: int,
    what: str,
    times: StageTimes | None = None,
    in_order: bool = True,
) -> Iterator[tuple[int, Any]]:
    """Yield number and result of each item in order, or as they are ready, while later items are worked on.

    The first stage takes an item's position in `numbers`. Each stage has threads of its own. At most `ahead` items are
    begun and not yet handed over. `what` names an item in messages, such as ``epoch 3, batch``. When the consumer stops
    early, or a stage raises (`StageError`), queued items are dropped, running ones awaited, and all threads have ended
    before the generator has.
    """
    process = os.getpid()
    times = StageTimes() if times is None else times
    pools = [ThreadPoolExecutor(stage.workers, thread_name_prefix=f"tiering-{stage.name}") for stage in stages]
    waiting: dict[Future[Any], tuple[int, list[Span]]] = {}  # number and spans of items, in order
    times.threads = {stage.name: stage.workers for stage in stages}
    started = 0
    times.lap("setup")
    try:
        while started < len(numbers) or waiting:
            while started < len(numbers) and len(waiting) < max(1, ahead):
                # Every stage has the item queued and waits for the one before; all keep the order: no deadlock.
                previous: Any = started
                spans: list[Span] = []
                for stage, pool in zip(stages, pools, strict=True):
                    previous = pool.submit(_run, stage, previous, f"{what} {numbers[started]}", times, spans)
                waiting[previous] = numbers[started], spans
                started += 1
            if not in_order:
                wait(waiting, return_when=FIRST_COMPLETED)
            ready = next(future for future in waiting if in_order or future.done())
            item = ready.result()
            number, spans = waiting.pop(ready)
            times.hand_over(spans)
            try:
                yield number, item
            finally:
                times.lap("training")
            del item, ready
            if os.getpid() != process:
                raise CapabilityError(f"{what}: started by another process, of which this is a fork; start it again")
    finally:
        if os.getpid() == process:  # a fork has none of their threads
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            for stage in stages:
                if stage.abort is not None:
                    stage.abort()
            for pool in pools:
                pool.shutdown(wait=True)


def _run(stage: PipelineStage, item: Any, what: str, times: StageTimes, spans: list[Span]) -> Any:
    value = item.result() if isinstance(item, Future) else item
    start = time.perf_counter()
    try:
        with times.work(stage.name) if stage.counted else nullcontext():
            return stage.run(value)
    except Exception as error:
        raise StageError(what, stage.name, error) from error
    finally:
        spans.append((stage.name, start, time.perf_counter()))
