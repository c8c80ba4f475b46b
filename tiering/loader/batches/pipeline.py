"""Background stages for a stream of numbered items: bounded, in order or not; errors reach the consumer."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tiering.errors import CapabilityError, TieringError
from tiering.loader.process import ForkLock


@dataclass
class StageTimes:
    """Seconds of a loader's stages and of its consumer; several threads may update them."""

    batches: int = 0  # batches handed over
    consumer: float = 0.0  # seconds of training, between a batch handed over and the next asked for
    starved: float = 0.0  # seconds that the consumer waited for batches
    busy: dict[str, float] = field(default_factory=dict)  # seconds of work by stage, over all its threads
    _lock: ForkLock = field(default_factory=ForkLock, repr=False)

    def add(self, stage: str, seconds: float) -> None:
        """Count work of a stage."""
        with self._lock:
            self.busy[stage] = self.busy.get(stage, 0.0) + seconds

    def reset(self) -> None:
        """Begin again at zero."""
        with self._lock:
            self.batches, self.consumer, self.starved, self.busy = 0, 0.0, 0.0, {}


@dataclass(frozen=True)
class PipelineStage:
    """A step that every item passes through."""

    name: str
    run: Callable[[Any], Any]  # makes an item of that of the stage before, the first stage of the item's number
    workers: int = 1  # items in this stage at the same time
    abort: Callable[[], None] | None = None  # makes a waiting `run` return, once no item is wanted any more


class StageError(TieringError, RuntimeError):
    """A stage of the pipeline failed; the cause is the error itself."""

    def __init__(self, what: str, stage: str, error: Exception) -> None:
        super().__init__(f"{what}: {stage} failed: {type(error).__name__}: {error}")


def run_stages(
    count: int,
    stages: list[PipelineStage],
    ahead: int,
    what: str,
    times: StageTimes | None = None,
    in_order: bool = True,
) -> Iterator[Any]:
    """Yield the results for items 0..count-1 in order, or as they are ready, while later items are worked on.

    Each stage has threads of its own. At most `ahead` items are begun and not yet handed over. `what` names an item in
    messages, such as ``epoch 3, batch``. When the consumer stops early, or a stage raises (`StageError`), queued items
    are dropped, running ones awaited, and all threads have ended before the generator has.
    """
    process = os.getpid()
    times = StageTimes() if times is None else times
    pools = [ThreadPoolExecutor(stage.workers, thread_name_prefix=f"tiering-{stage.name}") for stage in stages]
    waiting: deque[Future[Any]] = deque()
    started = 0
    try:
        while started < count or waiting:
            while started < count and len(waiting) < max(1, ahead):
                # Every stage has the item queued and waits for the one before; all keep the order: no deadlock.
                previous: Any = started
                for stage, pool in zip(stages, pools, strict=True):
                    previous = pool.submit(_run, stage, previous, f"{what} {started}", times)
                waiting.append(previous)
                started += 1
            asked = time.perf_counter()
            if in_order:
                ready = waiting.popleft()
            else:
                ready = next(iter(wait(waiting, return_when=FIRST_COMPLETED).done))
                waiting.remove(ready)
            item = ready.result()
            handed = time.perf_counter()
            times.starved += handed - asked
            times.batches += 1
            yield item
            del item, ready
            times.consumer += time.perf_counter() - handed
            if os.getpid() != process:
                raise CapabilityError(f"{what}: begun by another process, of which this is a fork; begin it anew")
    finally:
        if os.getpid() == process:  # a fork has none of their threads
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            for stage in stages:
                if stage.abort is not None:
                    stage.abort()
            for pool in pools:
                pool.shutdown(wait=True)


def _run(stage: PipelineStage, item: Any, what: str, times: StageTimes) -> Any:
    value = item.result() if isinstance(item, Future) else item
    start = time.perf_counter()
    try:
        return stage.run(value)
    except Exception as error:
        raise StageError(what, stage.name, error) from error
    finally:
        times.add(stage.name, time.perf_counter() - start)
