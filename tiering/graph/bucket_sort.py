"""COO to CSC by scattering, the second half: buckets are sorted by column and appended to the result.

A few buckets, at most a chunk of edges, are taken together (a unit); their parts of all segments are read while the
unit before is sorted, and written while the next one is. A bucket that is larger is streamed twice, segment by segment,
once to count and once to place, if its ids fit in memory; else its blocks are left missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.appending import BlockAppender
from tiering.artifacts.direct_io import ALIGNMENT, aligned_bytes, padded
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.streaming import open_stream
from tiering.graph.scatter import Scattered
from tiering.graph.scatter_plan import MARGIN, RUN_PADDING, ScatterPlan
from tiering.graph.sizes import CHUNK_BYTES_PER_EDGE, CscSizes
from tiering.memory import Budget
from tiering.progress import progress

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


def sort_buckets(
    scattered: Scattered,
    scratch: Path | None,
    sizes: CscSizes,
    plan: ScatterPlan,
    files: tuple[FileWriter, FileWriter],
    budget: Budget,
    threads: int,
) -> None:
    """Fill ``indptr`` and ``indices`` (`files`) from the scattered records."""
    sort = _BucketSort(scattered, scratch, sizes, plan, budget, threads)
    entry = int(sort.totals[: scattered.first].sum())
    with (
        BlockAppender(files[0], 8 * (scattered.first << plan.shift)) as indptr,
        BlockAppender(files[1], sizes.id_bytes * entry) as indices,
        progress(sizes.num_edges, "sort", "edge", scale=True) as bar,
        ThreadPoolExecutor(1) as writer,
    ):
        bar.update(entry)
        jobs: list[Future[None]] = []
        for first, end, offsets, ids in sort.units(entry):
            jobs.append(writer.submit(_append, indptr, offsets, indices, ids))
            if len(jobs) > 1:
                jobs.pop(0).result()
            bar.update(int(sort.totals[first:end].sum()))
        for job in jobs:
            job.result()
        indptr.append(np.array([sizes.num_edges], np.int64).view(np.uint8))


def _append(indptr: BlockAppender, offsets: Counts, indices: BlockAppender, ids: Bytes | int) -> None:
    indptr.append(offsets.view(np.uint8))
    if isinstance(ids, int):
        indices.skip(ids)
    else:
        indices.append(ids)


class _BucketSort:
    def __init__(
        self,
        scattered: Scattered,
        scratch: Path | None,
        sizes: CscSizes,
        plan: ScatterPlan,
        budget: Budget,
        threads: int,
    ) -> None:
        self.first, self.sizes, self.plan, self.budget, self.threads = scattered.first, sizes, plan, budget, threads
        counts = [segment.totals for segment in scattered.segments]
        self.counts = np.array(counts, np.int64).reshape(len(counts), ((sizes.num_dst - 1) >> plan.shift) + 1)
        self.totals = self.counts.sum(0)
        self._runs = _Runs(scattered, self.counts, scratch, plan.chunk)
        most = min(plan.columns, self._columns(0, len(self.totals)))
        self._offsets = [np.empty(most, np.int64) for _ in range(2)]
        self._ids = [aligned_bytes(min(plan.chunk, sizes.num_edges) * sizes.id_bytes) for _ in range(2)]

    def units(self, entry: int) -> Iterator[tuple[int, int, Counts, Bytes | int]]:
        """First bucket and end, offsets of the columns, and ids, or how many bytes of them there are not.

        What is handed out is valid until the next but one is asked for.
        """
        units = list(self._cut())
        ahead = False
        for turn, (first, end) in enumerate(units):
            edges = int(self.totals[first:end].sum())
            if edges > self.plan.chunk:
                offsets, ids = self._large(first, entry)
                yield first, end, offsets, ids
                del ids
            else:
                if not ahead:
                    self._runs.start(first, end, turn % 2)
                runs = self._runs.finish()
                following = units[turn + 1] if turn + 1 < len(units) else None
                ahead = following is not None and int(self.totals[slice(*following)].sum()) <= self.plan.chunk
                if following is not None and ahead:
                    self._runs.start(*following, 1 - turn % 2)
                offsets = self._offsets[turn % 2][: self._columns(first, end)]
                out = self._ids[turn % 2][: edges * self.sizes.id_bytes]
                own = np.ascontiguousarray(self.counts[:, first:end])
                native.sort_runs(
                    runs, own, offsets.size, self.plan.shift, self.sizes.num_src, entry, offsets, out, self.threads
                )
                yield first, end, offsets, out
            entry += edges

    def _columns(self, first: int, end: int) -> int:
        """Number of columns of the buckets [first, end)."""
        return min(self.sizes.num_dst, end << self.plan.shift) - (first << self.plan.shift)

    def _cut(self) -> Iterator[tuple[int, int]]:
        """Buckets sorted together: within the limits, and on one side of where each segment is split."""
        ends = np.concatenate([[0], np.cumsum(self.totals)])
        most = max(1, self.plan.columns >> self.plan.shift)
        for begin, stop in pairwise(self._runs.borders()):
            first = begin
            while first < stop:
                end = int(np.searchsorted(ends, ends[first] + self.plan.chunk, "right")) - 1
                end = max(first + 1, min(end, first + most, stop))
                yield first, end
                first = end

    def _large(self, bucket: int, entry: int) -> tuple[Counts, Bytes | int]:
        """A bucket that is larger than a chunk."""
        columns, edges = self._columns(bucket, bucket + 1), int(self.totals[bucket])
        offsets = np.zeros(columns + 1, np.int64)
        for run in self._runs.one_by_one(bucket):
            native.count_destinations(self._local(run), 0, offsets[1:], self.threads)
        np.cumsum(offsets, out=offsets)
        nbytes = edges * self.sizes.id_bytes
        room = self.budget.left() - 16 * columns - self.plan.chunk * CHUNK_BYTES_PER_EDGE - MARGIN
        if nbytes > room:
            return offsets[:-1] + entry, nbytes
        out, cursors = aligned_bytes(nbytes), offsets[:-1].copy()
        for run in self._runs.one_by_one(bucket):
            native.place_sources(
                self._ids_of(run), self._local(run), 0, self.sizes.num_src, 0, 0, cursors, out, self.threads
            )
        return offsets[:-1] + entry, out

    def _local(self, run: Bytes) -> npt.NDArray[np.int32]:
        """Columns within the bucket, of records."""
        return run.view(np.int32)[:: self.sizes.record_bytes // 4]

    def _ids_of(self, run: Bytes) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
        """Sources of records."""
        return run.view(np.int64)[1::2] if self.sizes.id_bytes == 8 else run.view(np.int32)[1::2]


class _Runs:
    """Parts of the segments, by bucket; those in the file are read ahead."""

    def __init__(self, scattered: Scattered, counts: Counts, scratch: Path | None, unit: int) -> None:
        self._scattered, self._record = scattered, scattered.record
        self._begins = np.zeros((counts.shape[0], counts.shape[1] + 1), np.int64)
        np.cumsum(counts, 1, out=self._begins[:, 1:])
        nbytes = unit * scattered.record + len(scattered.segments) * RUN_PADDING if scratch else 0
        self._buffers = [aligned_bytes(nbytes) for _ in range(2)]
        self._reader = open_stream([scratch], self._buffers) if scratch else None
        self._reading: native.StreamReader | None = None
        self._runs: list[Bytes | tuple[int, int, int]] = []

    def borders(self) -> list[int]:
        """Buckets at which a unit must end."""
        splits = {segment.split for segment in self._scattered.segments}
        return sorted({self._scattered.first, self._begins.shape[1] - 1, *splits})

    def start(self, first: int, end: int, turn: int, segments: range | None = None) -> None:
        """Begin to read the runs of the buckets [first, end), of all segments or some, into buffer 0 or 1."""
        ranges: list[tuple[int, int, int, int, int]] = []
        self._runs, at = [], 0
        for number in range(len(self._begins)) if segments is None else segments:
            segment, begins = self._scattered.segments[number], self._begins[number]
            in_memory = end <= segment.split
            origin = begins[self._scattered.first if in_memory else segment.split]
            begin = int(begins[first] - origin) * self._record + (segment.low if in_memory else segment.high)
            nbytes = int(begins[end] - begins[first]) * self._record
            if in_memory or nbytes == 0:
                self._runs.append(self._scattered.memory[begin : begin + nbytes])
            else:
                self._runs.append((turn, len(ranges), nbytes))
                ranges.append((0, begin, nbytes, turn, at))
                at += padded(nbytes) + 2 * ALIGNMENT
        self._reading = self._reader if ranges else None
        if self._reading is not None:
            self._reading.start(ranges)

    def finish(self) -> list[Bytes]:
        """The runs, one per segment; valid until the next but one start."""
        places = [] if self._reading is None else self._reading.finish()
        found = []
        for run in self._runs:
            if isinstance(run, tuple):
                turn, number, nbytes = run
                found.append(self._buffers[turn][places[number] : places[number] + nbytes])
            else:
                found.append(run)
        return found

    def one_by_one(self, bucket: int) -> Iterator[Bytes]:
        """The runs of a bucket that may be larger than a buffer."""
        for number in range(len(self._begins)):
            self.start(bucket, bucket + 1, number % 2, range(number, number + 1))
            yield self.finish()[0]
