"""The machine's own limit: how fast memory is copied."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tiering.bench.harness import Comparison, compare


def copy_bandwidth(*, megabytes: int = 256, threads: int = 2, repeats: int = 5) -> Comparison:
    """Copy `megabytes` MB with `threads` threads; the rate counts bytes read and bytes written.

    A copy larger than the last-level cache measures memory; a smaller one measures the cache.
    """
    source = np.ones(megabytes * 1_000_000 // 8)
    target = np.empty_like(source)
    cuts = np.linspace(0, source.size, threads + 1).astype(int)
    pool = ThreadPoolExecutor(threads)

    def part(t: int) -> None:
        np.copyto(target[cuts[t] : cuts[t + 1]], source[cuts[t] : cuts[t + 1]])

    def run() -> None:
        list(pool.map(part, range(threads)))

    with pool:
        parameters = {"megabytes": megabytes, "threads": threads}
        return compare("copy", run, {}, amount=2 * source.nbytes, unit="B", repeats=repeats, parameters=parameters)
