"""The machine's own limit: how fast memory is copied."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from tiering.bench.harness import Comparison, compare
from tiering.bench.sizes import Sizes


class Copier:
    """Copies memory with several threads, between two arrays that are larger than the caches."""

    def __init__(self, megabytes: int, threads: int) -> None:
        self._source = np.ones(max(megabytes * 1_000_000 // 8, threads))
        self._target = np.empty_like(self._source)
        self._cuts = np.linspace(0, self._source.size, threads + 1).astype(int)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)

    @property
    def nbytes(self) -> int:
        """Bytes read and written by one whole copy."""
        return 2 * self._source.nbytes

    def copy(self, nbytes: int) -> None:
        """Copy until `nbytes` have been read and written in all."""
        rounds, rest = divmod(nbytes, self.nbytes)
        for share in [1.0] * rounds + [rest / self.nbytes]:
            list(self._pool.map(self._part, range(self._threads), [share] * self._threads))

    def _part(self, t: int, share: float) -> None:
        first, last = self._cuts[t], self._cuts[t] + int(share * (self._cuts[t + 1] - self._cuts[t]))
        np.copyto(self._target[first:last], self._source[first:last])

    def __enter__(self) -> Copier:
        self.copy(self.nbytes)  # first touch
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()


def copy_bandwidth(*, megabytes: int = 256, threads: int = 2, repeats: int = 5) -> Comparison:
    """Copy `megabytes` MB with `threads` threads; the rate counts bytes read and bytes written.

    A copy larger than the last-level cache measures memory; a smaller one measures the cache.
    """
    with Copier(megabytes, threads) as copier:
        parameters = {"megabytes": megabytes, "threads": threads}
        return compare(
            "copy",
            lambda: copier.copy(copier.nbytes),
            {},
            amount=copier.nbytes,
            unit="B",
            repeats=repeats,
            parameters=parameters,
        )


def bench_copy(sizes: Sizes) -> Comparison:
    """`copy_bandwidth` at about the size of the graph."""
    megabytes = max(1, min(2048, sizes.edges // 25_000))
    return copy_bandwidth(megabytes=megabytes, threads=sizes.threads, repeats=sizes.repeats)
