"""Batches sampled ahead of the consumer, so that what they need of the ssd tier is known before they need it.

A batch is a pure function of ``(seed, epoch, index)``: it is sampled for its ids far ahead, kept while there is room,
and else sampled again when its turn comes.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.loader.processes.client import ClientEpoch

Ids = npt.NDArray[np.int64]
Reading = native.RowBuffer | ClientEpoch
"""What takes the rows of batches: the core's buffer, or the way to that of another process."""


class Sampled(Protocol):
    """A batch that was sampled ahead, as `tiering.sampling.SampledBatch` is one."""

    @property
    def nodes(self) -> Mapping[str, Ids]:
        """Ids by node type, in host memory; of types with rows on SSD at the least."""

    @property
    def hops(self) -> Sequence[Mapping[Any, Any]]:
        """Edges that lie in host memory, by hop and relation."""

    @property
    def nbytes(self) -> int:
        """Memory that the batch holds."""


SampledT = TypeVar("SampledT", bound=Sampled)


class PrefetchSampler(Generic[SampledT]):
    """One epoch's batches, sampled ahead by a thread of its own; `stop` ends it.

    Parameters
    ----------
    types
        Node types with rows on SSD, in their order there.
    reading
        What is told which rows batches need, and reads them.
    count, sample
        How many batches there are; makes batch 0, 1, ..
    trial
        Batches that were sampled already.
    workers
        Threads that sample.
    kept_bytes
        Memory for what was sampled ahead, beside the rows' numbers.
    """

    def __init__(
        self,
        types: Sequence[str],
        reading: Reading,
        count: int,
        sample: Callable[[int], SampledT],
        trial: Mapping[int, SampledT],
        workers: int,
        kept_bytes: int,
    ) -> None:
        self._types, self._reading, self._count, self._draw = types, reading, count, sample
        self._workers, self._most_kept_bytes = workers, kept_bytes
        self._kept = dict(trial)
        self._kept_bytes = sum(kept.nbytes for kept in self._kept.values())
        self._fed, self._over, self._stopped = 0, False, False
        self._error: BaseException | None = None
        self._process, self._changed = os.getpid(), threading.Condition()
        _running.add(self)
        self._thread = threading.Thread(target=self._feed, name="tiering-look-ahead", daemon=True)
        self._thread.start()

    def sample(self, batch: int) -> SampledT:
        """The batch, once it was sampled ahead: what was kept of it, or sampled again."""
        with self._changed:
            self._changed.wait_for(lambda: batch < self._fed or self._over or self._stopped)
            if self._stopped:
                raise InputError("the epoch was ended")
            if batch >= self._fed and self._error is not None:
                raise self._error
            kept = self._kept.pop(batch, None)
            if kept is not None:
                self._kept_bytes -= kept.nbytes
        return kept if kept is not None else self._draw(batch)

    def give_up(self) -> None:
        """Let everybody return who waits: no batch is wanted any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._reading.stop()

    def stop(self) -> None:
        """End sampling and reading ahead. The thread has ended when this returns."""
        if self._process == os.getpid():  # a fork has no such thread, and may find the condition taken
            self.give_up()
            self._thread.join()

    def end_with_interpreter(self) -> None:
        """End all threads of the epoch, the core's as well."""
        self.stop()
        self._reading.cancel()

    def _feed(self) -> None:
        """Sample ahead to the end, or to the first batch that fails: those before it are read all the same."""
        error: BaseException | None = None
        try:
            self._feed_all()
        except BaseException as met:
            error = met
        with self._changed:
            self._error, self._over = error, True
            self._changed.notify_all()
        self._reading.end()

    def _feed_all(self) -> None:
        waiting: deque[Future[SampledT]] = deque()
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tiering-look-ahead") as pool:
            started = 0
            for batch in range(self._count):
                while started < self._count and len(waiting) <= self._workers:
                    waiting.append(pool.submit(self._sample_or_take, started))
                    started += 1
                sample = waiting.popleft().result()
                # False: ended, or readers met an error, which extraction reports.
                if not self._reading.add([sample.nodes[t] for t in self._types]):
                    for future in waiting:
                        future.cancel()
                    return
                self._keep(batch, sample)

    def _sample_or_take(self, batch: int) -> SampledT:
        known = self._kept.get(batch)
        return known if known is not None else self._draw(batch)

    def _keep(self, batch: int, sample: SampledT) -> None:
        with self._changed:
            self._fed = batch + 1
            size = sample.nbytes
            if batch not in self._kept and self._kept_bytes + size <= self._most_kept_bytes:
                self._kept[batch] = sample
                self._kept_bytes += size
            self._changed.notify_all()


_running: weakref.WeakSet[PrefetchSampler[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End what runs when the interpreter does: its last act would be to end threads inside the core, which aborts."""
    for epoch in list(_running):
        epoch.end_with_interpreter()
