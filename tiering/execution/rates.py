"""What this machine can do: a few figures, measured in about two seconds, from which times are predicted."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tiering import native
from tiering.artifacts.blocks import aligned_bytes, open_direct, write_all
from tiering.artifacts.storage import disk_free, storage_errors
from tiering.artifacts.streaming import SAMPLE_BYTES, read_rate

Clock: TypeAlias = Callable[[], float]
MIB = 1 << 20
TABLES = (1 << 18, 1 << 23, 1 << 26)
"""Entries of the tables that random accesses are measured on: in a core's cache, about the shared cache, far beyond."""
_ACCESSES = 1 << 21
_REFERENCE_EDGES, _REFERENCE_NODES = 1 << 20, 1 << 16
_PIECE = 8 * MIB
_WRITERS = 4


@dataclass(frozen=True)
class Disk:
    """Rates of a disk, in bytes per second."""

    read: float = 1e9
    """Front to back, past the page cache, several reads in flight."""
    write: float = 1e9
    """Front to back, past the page cache, several writes in flight, synced."""
    put: float = 7e8
    """Through the page cache, by one thread, then synced."""
    sync: float = 2e-3
    """Seconds until a small file is on disk."""


@dataclass(frozen=True)
class Rates:
    """What a machine can do with a number of threads."""

    threads: int = 2
    """Threads asked for."""
    edge: float = 6e-9
    """Seconds per edge of a small conversion from edge list to CSC: the unit of `tiering.execution.costs`."""
    copy: float = 1e10
    """Bytes read and bytes written per second where memory is copied."""
    touch: float = 2e9
    """Bytes per second of memory taken for the first time."""
    gather: tuple[float, ...] = (3e8, 2e8, 1e8)
    """Random accesses per second to 4-byte entries of tables of `TABLES` entries."""
    source: Disk = Disk()
    """The disk of the input."""
    target: Disk = Disk()
    """The disk of the output."""

    @property
    def one_disk(self) -> bool:
        """Input and output lie on the same disk: reading and writing share its time."""
        return self.source == self.target

    def access(self, entries: int, entry_bytes: int = 4) -> float:
        """Seconds of a random access to a table of so many entries: between `TABLES` by the logarithm of the size."""
        size = np.log(max(1, entries * entry_bytes))
        return float(np.interp(size, np.log([4 * each for each in TABLES]), [1 / rate for rate in self.gather]))

    def from_target(self) -> Rates:
        """The same where the input lies on the disk of the output: stages that follow in a chain."""
        return Rates(self.threads, self.edge, self.copy, self.touch, self.gather, self.target, self.target)


def measure_rates(threads: int, source: Path | None, target: Path) -> Rates:
    """Measure this machine; the figures are kept for the process.

    Parameters
    ----------
    threads
        Threads that the stages will use.
    source
        A large file of the input; ``None``: the input lies where the output does.
    target
        Output directory; need not exist. A temporary file of at most 256 MiB lies beside it for a while, of at most a
        fourth of what is free.

    Notes
    -----
    Each figure is the mean of a few turns, so that what else runs on the machine counts.
    """
    folder = next(each for each in (target.absolute(), *target.absolute().parents) if each.is_dir())
    disk = _measure_disk(folder)
    source_disk = disk
    if source is not None and source.stat().st_dev != folder.stat().st_dev:
        source_disk = Disk(read_rate(source, disk.read), disk.write, disk.put, disk.sync)
    edge, copy, touch, gather = measure_memory(threads)
    return Rates(threads, edge, copy, touch, gather, source_disk, disk)


def _typical(work: Callable[[], object], turns: int = 3, clock: Clock = time.perf_counter) -> float:
    """Seconds of a call: the mean, the slowest turn and the first left out, so that what else runs counts its share."""
    found = []
    for _ in range(turns + 2):
        begun = clock()
        work()
        found.append(clock() - begun)
    return max(sum(sorted(found[1:])[:turns]) / turns, 1e-9)


def reference_seconds(threads: int, turns: int = 5, clock: Clock = time.perf_counter) -> float:
    """Seconds per edge of a small conversion from edge list to CSC, over so many turns."""
    random = np.random.default_rng(0)
    src, dst = (random.integers(0, _REFERENCE_NODES, _REFERENCE_EDGES, np.int32) for _ in range(2))
    work = lambda: native.coo_to_csc(src, dst, _REFERENCE_NODES, _REFERENCE_NODES, threads)  # noqa: E731
    return _typical(work, turns, clock) / _REFERENCE_EDGES


@cache
def measure_memory(threads: int, clock: Clock = time.perf_counter) -> tuple[float, float, float, tuple[float, ...]]:
    """`Rates.edge`, `copy`, `touch` and `gather`, by a clock: the fit of the constants has its own."""
    random = np.random.default_rng(0)
    edge = reference_seconds(threads, clock=clock)
    touch = _typical(lambda: aligned_bytes(128 * MIB).fill(1), 2, clock) / (128 * MIB)
    copy = _copy_seconds(threads, clock)
    table = np.zeros((max(TABLES), 4), np.uint8)
    ids, out = random.integers(0, 1 << 62, _ACCESSES, np.int64), np.empty((_ACCESSES, 4), np.uint8)
    gather = []
    for entries in TABLES:
        places = (ids % entries).astype(np.int32)
        part = table[:entries]
        part[:] = 1  # zero pages are all one page
        gather.append(_ACCESSES / _typical(partial(native.gather_rows, part, places, out, threads), clock=clock))
    return edge, 1 / copy, 1 / touch, tuple(gather)


def _copy_seconds(threads: int, clock: Clock) -> float:
    """Seconds per byte read or written."""
    source, target = np.ones(64 * MIB, np.uint8), np.ones(64 * MIB, np.uint8)
    cuts = np.linspace(0, source.size, threads + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(lambda a, b: np.copyto(target[a:b], source[a:b]), cuts[:-1], cuts[1:]))

        return _typical(copy, clock=clock) / (2 * source.size)


@cache
def _measure_disk(folder: Path) -> Disk:
    """Write a file past the page cache, read it again, write through the cache, sync small files."""
    size = min(SAMPLE_BYTES, disk_free(folder) // 4 // _PIECE * _PIECE)
    if size < 2 * _PIECE or not os.access(folder, os.W_OK):
        return Disk()
    with storage_errors(folder), tempfile.NamedTemporaryFile(dir=folder, prefix=".rates.", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        write = size / _write_seconds(Path(file.name), file.fileno(), size)
        read = read_rate(Path(file.name), write)
        small = memoryview(os.urandom(_PIECE))
        begun = time.perf_counter()
        for offset in range(0, size // 4, _PIECE):
            os.pwrite(file.fileno(), small, offset)
        os.fdatasync(file.fileno())
        put = size // 4 / (time.perf_counter() - begun)
    with storage_errors(folder):
        sync = _typical(lambda: _put_small(folder, small[:4096]), 5)
    return Disk(read, write, put, sync)


def _put_small(folder: Path, data: memoryview) -> None:
    """A file that is new: its name and its place go to disk too, which takes longer than its bytes."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".rates.", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def _write_seconds(path: Path, plain: int, size: int) -> float:
    """Seconds in which `size` bytes are written as blocks are."""
    data = aligned_bytes(_PIECE)
    data[:] = np.frombuffer(os.urandom(MIB) * (_PIECE // MIB), np.uint8)
    direct = open_direct(path)
    try:
        begun = time.perf_counter()
        with ThreadPoolExecutor(_WRITERS) as pool:
            fd = plain if direct is None else direct
            list(pool.map(lambda offset: write_all(fd, data, offset), range(0, size, _PIECE)))
        os.fdatasync(plain)
        return time.perf_counter() - begun
    finally:
        if direct is not None:
            os.close(direct)
