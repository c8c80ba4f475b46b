"""COO to CSC by scattering, the first half: every edge goes to the bucket of its destination.

The edges are read once. The records of the first buckets stay in memory as far as that pays; the others go to a scratch
file that is written front to back: each chunk of the edges leaves a segment in which bucket follows bucket.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes, padded
from tiering.artifacts.segments import SegmentFile
from tiering.artifacts.streaming import Streamed
from tiering.formats.protocols import EdgeData
from tiering.graph.scatter_plan import ScatterPlan
from tiering.graph.sizes import CscSizes
from tiering.progress import progress

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

SAMPLES, SAMPLE_EDGES = 64, 4096
"""Places of the edge list that are looked at beforehand, and edges read at each."""
COMPARED, TRIALS = 3, 6
"""Chunks that are not held, and those held that are compared with them, when it is tried how fast memory comes."""
SLOW_TOUCH = 0.5e-9
"""Seconds per byte: memory that takes longer to touch is no faster than an SSD, written and read."""


@dataclass
class Segment:
    """Records of a chunk: those of buckets below `split` in memory from byte `low` on, the others in the file."""

    totals: Counts
    """Edges by bucket, dropped ones included."""
    split: int
    low: int
    high: int


@dataclass
class Scattered:
    """Where the records lie."""

    first: int
    """Records of buckets below were dropped."""
    record: int
    """Bytes of a record."""
    memory: Bytes
    segments: list[Segment] = field(default_factory=list)


def scatter(
    edges: EdgeData,
    sizes: CscSizes,
    plan: ScatterPlan,
    first: int,
    file: SegmentFile | None,
    threads: int,
    may_hold_less: bool = False,
) -> Scattered:
    """Scatter the edges whose bucket is `first` or later; ids are checked.

    Parameters
    ----------
    file
        Scratch file; ``None`` where all records stay in memory.
    threads
        Threads of the kernels; columns have their edges in input order for any number.
    may_hold_less
        The file has room for all records: if memory is slow to touch, less of it is used than planned.

    Raises
    ------
    ValueError
        Naming an edge whose id is out of range.
    """
    record, buckets = sizes.record_bytes, ((sizes.num_dst - 1) >> plan.shift) + 1
    result = Scattered(first, record, aligned_bytes(plan.held // record * record))
    holding = _Holding(edges, sizes, plan, first, buckets, may_hold_less)
    staging = _Staging(file, min(plan.chunk, sizes.num_edges) * record)
    used = 0
    with (
        Streamed([edges.dst, edges.src], plan.chunk) as stream,
        progress(sizes.num_edges, "scatter", "edge", scale=True) as bar,
        staging,
    ):
        for begin, end, (dst, src) in stream:
            counts = native.count_buckets(dst, begin, sizes.num_dst, plan.shift, threads)
            totals = counts.sum(0)
            split = holding.split(totals, result.memory.size - used) if file else buckets
            low, high = (int(part.sum()) * record for part in (totals[first:split], totals[split:]))
            target = result.memory[used : used + low], staging.take(high)
            began = time.perf_counter()
            native.scatter_edges(
                src, dst, begin, sizes.num_src, sizes.num_dst, plan.shift, counts, first, split, *target
            )
            holding.note(time.perf_counter() - began, low, high)
            result.segments.append(Segment(totals, split, used, staging.write(high)))
            used += low
            bar.update(end - begin)
    return result


class _Holding:
    """Which buckets stay in memory: the first ones, as many as there is room for by a sample of the edges.

    Where a virtual machine's host must find the memory first, touching it may take longer than writing to disk and
    reading again. So some chunks after the first are not held, for comparison, and once the last few take much longer
    than those did, nothing more is held.
    """

    def __init__(
        self, edges: EdgeData, sizes: CscSizes, plan: ScatterPlan, first: int, buckets: int, trial: bool
    ) -> None:
        starts = np.linspace(0, max(0, sizes.num_edges - SAMPLE_EDGES), SAMPLES).astype(np.int64)
        sample = np.concatenate([edges.dst[start : start + SAMPLE_EDGES] for start in starts])
        found = np.bincount(np.clip(sample >> plan.shift, 0, buckets - 1), minlength=buckets)
        expected = np.cumsum(found[first:]) * (sizes.num_edges * sizes.record_bytes / sample.size)
        self._first, self._buckets, self._record = first, buckets, sizes.record_bytes
        self._limit = first + int(np.searchsorted(expected, plan.held))
        self._trial, self._chunks = trial, 0
        self._usual: list[float] = []  # seconds per byte of chunks that were not held
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=TRIALS)

    def split(self, totals: Counts, room: int) -> int:
        """End of the buckets of a chunk that go to memory, of which `room` bytes are left."""
        limit = self._first if self._compared() else self._limit
        ends = self._record * np.cumsum(totals[self._first :])
        return min(limit, self._first + int(np.searchsorted(ends, room, "right")))

    def _compared(self) -> bool:
        """Whether this chunk is not held, for comparison."""
        return self._trial and 1 <= self._chunks <= COMPARED

    def note(self, seconds: float, low: int, high: int) -> None:
        """How long a chunk took of which so many bytes went to memory and to the file."""
        if self._compared():
            self._usual.append(seconds / max(1, high))
        elif self._trial and self._usual and low:
            self._recent.append((seconds, low, high))
            took, held, sent = map(sum, zip(*self._recent, strict=True))
            usual = median(self._usual) * (held + sent)
            if len(self._recent) == TRIALS and took > usual + SLOW_TOUCH * held:
                self._limit = self._first
        self._chunks += 1


class _Staging:
    """Two buffers: one is filled while the other is written to the scratch file."""

    def __init__(self, file: SegmentFile | None, nbytes: int) -> None:
        self._file, self._turn, self._at = file, 0, 0
        self._buffers = [aligned_bytes(padded(nbytes) if file else 0) for _ in range(2)]
        for buffer in self._buffers:
            buffer[::4096] = 0  # touched here: what it takes is not the first chunk's
        self._jobs: list[Future[None] | None] = [None, None]
        self._pool = ThreadPoolExecutor(1)

    def take(self, nbytes: int) -> Bytes:
        """The next buffer, once it is free."""
        self._turn = 1 - self._turn
        job, self._jobs[self._turn] = self._jobs[self._turn], None
        if job is not None:
            job.result()
        return self._buffers[self._turn][:nbytes]

    def write(self, nbytes: int) -> int:
        """Begin to write the buffer; where in the file it goes."""
        at = self._at
        if self._file is not None and nbytes:
            data = self._buffers[self._turn][: padded(nbytes)]
            self._jobs[self._turn] = self._pool.submit(self._file.append, data, nbytes)
            self._at += padded(nbytes)
        return at

    def __enter__(self) -> _Staging:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for job in self._jobs:
                if job is not None and kind is None:
                    job.result()
        finally:
            self._pool.shutdown()
            self._buffers = []
