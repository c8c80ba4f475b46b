"""Double buffering: what is needed next is loaded, and what was filled is written, while the caller works."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
T = TypeVar("T")
U = TypeVar("U")


def prefetch(load: Callable[[T], U], items: Iterable[T]) -> Generator[U, None, None]:
    """Yield ``load(item)`` of each item in order; a thread loads the next while the caller uses one.

    With two buffers used in turn, a result is valid until the next is asked for.
    """
    pool, following = ThreadPoolExecutor(1), cast("Future[U] | None", None)
    try:
        for item in items:
            current, following = following, pool.submit(load, item)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()
    finally:
        pool.shutdown(cancel_futures=True)


class WriteBehind:
    """Buffers that are filled in turn, each while the others are written by `writers` threads."""

    def __init__(self, buffers: Sequence[Bytes], writers: int = 1) -> None:
        self._buffers = buffers
        self._writes: list[list[Future[Any]]] = [[] for _ in buffers]
        self._current = -1
        self._pool = ThreadPoolExecutor(writers)

    def next_buffer(self) -> Bytes:
        """Return the next buffer to fill, once all writes from it have ended; raise what one of them raised."""
        self._current = (self._current + 1) % len(self._buffers)
        self._wait(self._current)
        return self._buffers[self._current]

    def submit(self, write: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call `write`, which reads the current buffer, in the background."""
        future = self._pool.submit(write, *arguments)
        self._writes[self._current].append(future)
        return future

    def finish(self) -> None:
        """Wait for all writes, raise what one of them raised, and `close`."""
        try:
            for buffer in range(len(self._buffers)):
                self._wait(buffer)
        finally:
            self.close()

    def close(self) -> None:
        """End the threads once the writes under way have ended, and let the buffers go."""
        self._pool.shutdown()
        self._buffers = ()

    def _wait(self, buffer: int) -> None:
        writes, self._writes[buffer] = self._writes[buffer], []
        for write in writes:
            write.result()
