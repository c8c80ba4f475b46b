"""Batches sampled ahead of the consumer, so that their rows of the ssd tier are known before they need them.

A batch is a pure function of ``(seed, epoch, index)``: sampled ahead for its ids, it is kept if memory allows, and else
sampled again when its turn comes.
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
"""An epoch of a buffer, which takes the rows of batches: of the core, or of another process."""


class Sampled(Protocol):
    """A batch that was sampled ahead, such as `tiering.sampling.SampledBatch`."""

    @property
    def nodes(self) -> Mapping[str, Ids]:
        """Ids by node type, in host memory, at least of types with rows on SSD."""

    @property
    def hops(self) -> Sequence[Mapping[Any, Any]]:
        """Edges in host memory, by hop and relation."""

    @property
    def nbytes(self) -> int:
        """Memory of the batch."""


SampledT = TypeVar("SampledT", bound=Sampled)


class PrefetchSampler(Generic[SampledT]):
    """A sampler of one epoch's batches, ahead of the consumer in a thread of its own; `stop` ends it.

    Parameters
    ----------
    types
        Node types with rows on SSD, in their order there.
    reading
        The buffer's epoch, which reads the rows of each batch.
    order, draw
        Numbers of the batches; makes a batch by its number.
    trial
        Batches that were sampled already, by place in `order`.
    workers
        Threads that sample.
    kept_bytes
        Memory for batches sampled ahead.
    """

    def __init__(
        self,
        types: Sequence[str],
        reading: Reading,
        order: Sequence[int],
        draw: Callable[[int], SampledT],
        trial: Mapping[int, SampledT],
        workers: int,
        kept_bytes: int,
    ) -> None:
        self._types, self._reading, self._order, self._draw = types, reading, order, draw
        self._workers, self._most_kept_bytes = workers, kept_bytes
        self._kept = dict(trial)
        self._kept_bytes = sum(kept.nbytes for kept in self._kept.values())
        self._fed, self._over, self._stopped = 0, False, False
        self._error: BaseException | None = None
        self._process, self._changed = os.getpid(), threading.Condition()
        _running.add(self)
        self._thread = threading.Thread(target=self._feed, name="tiering-look-ahead", daemon=True)
        self._thread.start()

    def sample(self, place: int) -> SampledT:
        """Return the batch at a place in the order, once it was sampled ahead: as kept, or sampled again."""
        with self._changed:
            self._changed.wait_for(lambda: place < self._fed or self._over or self._stopped)
            if self._stopped:
                raise InputError("the epoch was ended")
            if place >= self._fed and self._error is not None:
                raise self._error
            kept = self._kept.pop(place, None)
            if kept is not None:
                self._kept_bytes -= kept.nbytes
        return kept if kept is not None else self._draw(self._order[place])

    def abort(self) -> None:
        """Let all waiting threads return: no batch is wanted any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._reading.stop()

    def stop(self) -> None:
        """End sampling and reading ahead. The thread has ended when this returns."""
        if self._process == os.getpid():  # a fork has no such thread, and may find the condition locked
            self.abort()
            self._thread.join()

    def end_with_interpreter(self) -> None:
        """End all threads of the epoch, the core's as well."""
        self.stop()
        self._reading.cancel()

    def _feed(self) -> None:
        """Sample to the end, or to the first batch that fails; the batches before it are read all the same."""
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
        count, started = len(self._order), 0
        waiting: deque[Future[SampledT]] = deque()
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tiering-look-ahead") as pool:
            for place in range(count):
                while started < count and len(waiting) <= self._workers:
                    waiting.append(pool.submit(self._kept_or_drawn, started))
                    started += 1
                sample = waiting.popleft().result()
                # False: ended, or readers met an error, which extraction reports.
                if not self._reading.add([sample.nodes[t] for t in self._types]):
                    for future in waiting:
                        future.cancel()
                    return
                self._keep(place, sample)

    def _kept_or_drawn(self, place: int) -> SampledT:
        kept = self._kept.get(place)
        return kept if kept is not None else self._draw(self._order[place])

    def _keep(self, place: int, sample: SampledT) -> None:
        with self._changed:
            self._fed = place + 1
            size = sample.nbytes
            if place not in self._kept and self._kept_bytes + size <= self._most_kept_bytes:
                self._kept[place] = sample
                self._kept_bytes += size
            self._changed.notify_all()


_running: weakref.WeakSet[PrefetchSampler[Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop running epochs before the interpreter ends threads inside the core, which would abort."""
    for epoch in list(_running):
        epoch.end_with_interpreter()
