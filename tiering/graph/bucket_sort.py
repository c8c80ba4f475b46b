"""COO to CSC of a relation of any size, in memory or by way of the disk.

Each chunk of edges leaves a segment, in memory or in a scratch file, bucket after bucket of consecutive columns: a
record for each edge, then each value that runs along the edges. Then a few buckets at a time are sorted by column and
appended to the files. A bucket larger than a chunk is taken as an edge list of its own, and scattered once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.file_writer import FileWriter, WriteBehind
from tiering.artifacts.reader import SegmentFile, chunks, open_stream
from tiering.artifacts.storage import ALIGNMENT, LINE, AnyArray, Bytes, aligned_bytes, open_raw, padded
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.shape import value_rows
from tiering.graph.plan import RUN_PADDING, BucketPlan, RelationPlan, line_up
from tiering.graph.time_order import TimeOrder
from tiering.run.grid import Int64Array
from tiering.text.progress import progress


@dataclass
class Chunk:
    """Consecutive edges of a list; `first` is the number of the first of them."""

    first: int
    src: AnyArray
    dst: AnyArray
    values: list[Bytes | None]  # shape (edges, bytes of a value); ``None``: the numbers of the edges


def edge_chunks(relation: RelationPlan, step: int) -> Iterator[Chunk]:
    """Yield the edge list as it arrives from disk; a chunk is valid until the next is requested."""
    edges, values = relation.edges, relation.arrays()
    arrays = [edges.dst, edges.src, *(array for array in values if array is not None)]
    with progress(edges.num_edges, "scatter", "edge", scale=True) as bar:
        for first, end, (dst, src, *parts) in chunks(arrays, step):
            given = iter(parts)
            own = [None if array is None else value_rows(next(given), array is edges.edge_ids) for array in values]
            yield Chunk(first, src, dst, own)
            bar.update(end - first)


@dataclass
class Scattered:
    """Edges by bucket of consecutive columns, segment by segment."""

    level: int  # 0: the whole edge list; a bucket of it that is scattered once more is one deeper
    columns: range
    shift: int
    first_bucket: int  # edges of buckets below were dropped
    counts: Int64Array  # edges by segment and bucket
    begins: Int64Array  # by segment and bucket, edges of the segment in buckets before
    places: Int64Array  # by segment and part, where it begins: in memory, or in the file
    resident: npt.NDArray[np.bool_]  # segments in memory
    file: SegmentFile | None
    reader: native.StreamReader | None = None
    hub: tuple[int, int] | None = None  # column and first entry of the list whose parts by time are the columns

    def columns_of(self, first: int, end: int) -> range:
        """Return the columns of the buckets [first, end)."""
        return self.columns[first << self.shift : end << self.shift]


class BucketRange(NamedTuple):
    """Buckets [first, end) that are sorted together, or one that cannot be sorted as it is."""

    first: int
    end: int
    edges: int
    sortable: bool


class RunRequest(NamedTuple):
    """Runs of buckets that a reader brings into one of the two inputs; others lie in memory already."""

    begin: int  # where the input begins in memory
    places: Int64Array  # by part and segment, where the run begins: in memory, or in the file if it is `stored`
    stored: npt.NDArray[np.bool_]  # by part and segment, whether the run is read from the file


def write_by_buckets(
    writer: ArtifactWriter, folder: str, relation: RelationPlan, plan: BucketPlan, threads: int
) -> None:
    """Write the files of a relation, from the first missing block on; `ValueError` names an edge out of range."""
    with ExitStack() as stack:
        files = [
            stack.enter_context(writer.file(f"{folder}/{name}", dtype, shape, piece_bytes=plan.piece))
            for name, dtype, shape in relation.files()
        ]
        if any(file.done < file.nbytes for file in files):
            sort = _BucketSort(files, writer.path / folder / "scattered", stack, relation, plan, threads)
            sort.run(edge_chunks(relation, plan.chunk))


def _by_time(chunks: Iterator[Chunk], order: TimeOrder, cuts: Int64Array) -> Iterator[Chunk]:
    """Yield the entries of a list, the part of it between `cuts` in the place of their destination."""
    for chunk in chunks:
        parts = np.searchsorted(cuts, order.keys(order.times(chunk.values)), "right")
        yield Chunk(chunk.first, chunk.src, parts, chunk.values)


class _BucketSort:
    """Fills the files of a relation; scratch files are removed as `stack` closes."""

    def __init__(
        self, files: list[FileWriter], scratch: Path, stack: ExitStack, relation: RelationPlan, plan: BucketPlan,
        threads: int,
    ) -> None:  # fmt: skip
        self.files, self.scratch, self.stack, self.plan, self.threads = files, scratch, stack, plan, threads
        self.relation, self.sizes = relation, relation.sizes
        self.items, self.widths = (relation.id_bytes, *relation.item_bytes), np.array(relation.parts)
        self.segment = padded(relation.segment(plan.chunk)[-1])
        inputs = relation.input_bytes(plan.chunk, min(plan.runs, plan.segments))
        resident = plan.resident * self.segment
        self.memory = aligned_bytes(resident + 2 * self.segment + 2 * inputs)  # given by the system as it is used
        self.outputs = [slice(at, at + self.segment) for at in (resident, resident + self.segment)]
        self.inputs = [slice(at, at + inputs) for at in (resident + 2 * self.segment, self.memory.size - inputs)]
        self.offsets, self.input = np.empty(relation.offsets, np.int64), 0  # input of the last request
        self.entry, self.order = 0, relation.order

    def run(self, chunks: Iterator[Chunk]) -> None:
        """Scatter the edge list, sort the buckets, and write."""
        edges, step = self.relation.edges.num_edges, self.plan.chunk
        lengths = [min(step, edges - first) for first in range(0, edges, step)]
        whole = self._scatter(chunks, range(self.relation.num_dst), lengths)
        self.entry = int(whole.counts[:, : whole.first_bucket].sum())
        with progress(edges, "sort", "edge", scale=True) as self.bar:
            self.bar.update(self.entry)
            self._sort(whole)
        self.files[0].append(np.array([edges], np.int64), 8 * self.relation.num_dst)

    def _scatter(self, chunks: Iterator[Chunk], columns: range, lengths: list[int], level: int = 0) -> Scattered:
        """Send the edges of `columns`, which come in chunks of `lengths`, to their buckets; `level`: of the result."""
        shift = self._shift(sum(lengths), len(columns), len(lengths), level)
        first = self._first_column() >> shift if level == 0 else 0
        kept = np.arange(len(lengths) + 1) * (self.plan.resident if level == 0 else 0) // max(1, len(lengths))
        resident = np.diff(kept) > 0  # spread evenly, so that the disk has to do all the time
        file = self._scratch_file([n for n, within in zip(lengths, resident, strict=True) if not within], level)
        counts = np.zeros((len(lengths), ((len(columns) - 1) >> shift) + 1), np.int64)
        places = np.zeros((len(lengths), self.widths.size), np.int64)
        with closing(WriteBehind([self.memory[part] for part in self.outputs])) as behind:
            for number, chunk in enumerate(chunks):
                by_thread = native.count_buckets(chunk.dst, chunk.first, len(columns), shift, self.threads)
                counts[number] = by_thread.sum(0)
                cuts = self.relation.segment(int(counts[number, first:].sum()))
                out = None if resident[number] else file
                if out is not None:
                    begin, target = out.add(cuts[-1]), behind.next_buffer()
                else:
                    begin = int(kept[number]) * self.segment
                    target = self.memory[begin : begin + self.segment]
                parts = [target[start:stop] for start, stop in pairwise(cuts)]
                native.scatter_edges(
                    chunk.src, chunk.dst, chunk.values, chunk.first, self.relation.num_src, len(columns), shift,
                    by_thread, first, parts,
                )  # fmt: skip
                if out is not None:
                    behind.submit(out.write, target[: padded(cuts[-1])], begin)
                places[number] = begin + np.array(cuts[:-1])
            behind.finish()
        begins = np.zeros((counts.shape[0], counts.shape[1] + 1), np.int64)
        np.cumsum(counts[:, first:], 1, out=begins[:, first + 1 :])
        return Scattered(level, columns, shift, first, counts, begins, places, resident, file)

    def _shift(self, edges: int, columns: int, segments: int, level: int) -> int:
        """Return the columns of a bucket, a power of two; few buckets where each is scattered once more."""
        plan, sizes = self.plan, self.sizes
        wanted = min(edges // sizes.bucket_edges, plan.chunk // sizes.run_records)
        if segments > plan.runs:
            wanted = 2 * -(-segments // plan.runs)
        wanted = max(wanted, -(-columns // sizes.columns))
        wanted = min(wanted, sizes.buckets, (plan.counters >> level) // (16 * max(1, segments)))
        return (-(-columns // max(2, wanted)) - 1).bit_length()

    def _first_column(self) -> int:
        """Return the first column of which an earlier run has not written everything."""
        known = self.files[0].done // 8
        if known == 0:
            return 0
        entries = min(file.done // item for file, item in zip(self.files[1:], self.items, strict=True))
        indptr = open_raw(self.files[0].path, np.dtype(np.int64), (known,))
        return min(int(np.searchsorted(indptr, entries, "right")) - 1, self.relation.num_dst - 1)

    def _scratch_file(self, lengths: list[int], level: int) -> SegmentFile | None:
        if not lengths:
            return None
        path = self.scratch.with_name(f"{self.scratch.name}-{level}")
        file = SegmentFile(path, sum(padded(self.relation.segment(length)[-1]) for length in lengths))
        self.stack.callback(file.remove)
        return file

    def _sort(self, scattered: Scattered) -> None:
        """Append the buckets to the files: those read ahead are sorted while those before are written."""
        ranges, request = list(self._bucket_ranges(scattered)), None
        for buckets, following in zip_longest(ranges, ranges[1:]):
            if not buckets.sortable:
                self._take_apart(scattered, buckets)
                continue
            places = self._finish_read(scattered, request or self._start_read(scattered, buckets.first, buckets.end))
            request = None
            if following is not None and following.sortable:
                request = self._start_read(scattered, following.first, following.end)
            columns = scattered.columns_of(buckets.first, buckets.end)
            outs = self._outs(buckets.edges)
            offsets = self.offsets[: len(columns)]
            counts = np.ascontiguousarray(scattered.counts[:, buckets.first : buckets.end])
            native.sort_runs(
                self.memory, places, counts, self.items[1:], len(columns), scattered.shift, self.relation.num_src,
                self.entry, offsets, outs, self.threads,
            )  # fmt: skip
            if self.order is not None and buckets.edges:
                starts = np.zeros(1, np.int64) if scattered.hub else offsets - self.entry
                self.order.apply(starts, outs, columns.start, self.threads)
            self._emit(scattered, columns.start, offsets, outs, buckets.edges)

    def _bucket_ranges(self, scattered: Scattered) -> Iterator[BucketRange]:
        """Yield the buckets that are taken together: at most a chunk of edges, and of columns."""
        ends = np.concatenate([[0], np.cumsum(scattered.counts.sum(0))])
        together = max(1, self.sizes.columns >> scattered.shift)
        first, stop = scattered.first_bucket, ends.size - 1
        while first < stop:
            end = int(np.searchsorted(ends, ends[first] + self.plan.chunk, "right")) - 1
            end = max(first + 1, min(end, first + together, stop))
            edges, columns = int(ends[end] - ends[first]), len(scattered.columns_of(first, end))
            sortable = edges <= self.plan.chunk and columns <= self.sizes.columns
            if not sortable or len(scattered.resident) > self.plan.runs:
                sortable, end = False, first + 1
            yield BucketRange(first, end, int(ends[end] - ends[first]), sortable)
            first = end

    def _take_apart(self, scattered: Scattered, bucket: BucketRange) -> None:
        """Write a bucket that cannot be sorted as it is: empty, a single column, or scattered once more.

        A single column is scattered by time, and its parts are sorted, if it is to be put in order.
        """
        columns, hub = scattered.columns_of(bucket.first, bucket.end), scattered.hub
        if bucket.edges == 0:
            for begin in range(columns.start, columns.stop, self.sizes.columns) if hub is None else ():
                outs = self._outs(0)
                offsets = self.offsets[: columns.stop - begin]
                offsets[:] = self.entry
                self._emit(scattered, begin, offsets, outs, 0)
            return
        groups = list(self._groups(scattered, bucket.first))
        cuts = None
        if len(columns) == 1:
            if self.order is not None:
                values = (chunk.values for chunk in self._packed(scattered, bucket.first, groups))
                cuts = self.order.splitters(values, columns.start)
            if cuts is None:
                self._copy(scattered, columns.start, self._packed(scattered, bucket.first, groups))
                return
            hub, columns = hub or (columns.start, self.entry), range(cuts.size + 1)
        chunks = self._packed(scattered, bucket.first, groups)
        if cuts is not None and self.order is not None:
            chunks = _by_time(chunks, self.order, cuts)
        part = self._scatter(chunks, columns, [edges for _, edges in groups], scattered.level + 1)
        part.hub = hub
        scattered.reader = None
        self._sort(part)
        part.reader = None
        if part.file is not None:
            part.file.remove()

    def _copy(self, scattered: Scattered, column: int, chunks: Iterator[Chunk]) -> None:
        """Copy the edges of a single column, which are in order."""
        begin = self.entry
        for chunk in chunks:
            outs = self._outs(chunk.src.size)
            offsets = self.offsets[:1]
            offsets[:] = begin
            outs[0].view(chunk.src.dtype)[:] = chunk.src
            for out, values in zip(outs[1:], chunk.values, strict=True):
                assert values is not None
                out.reshape(values.shape)[:] = values
            self._emit(scattered, column, offsets, outs, chunk.src.size)

    def _groups(self, scattered: Scattered, bucket: int) -> Iterator[tuple[slice, int]]:
        """Yield segments whose runs of a bucket are read together, and how many edges these have."""
        first = edges = 0
        for number, count in enumerate(scattered.counts[:, bucket].tolist()):
            if edges + count > self.plan.chunk or number - first == self.plan.runs:
                if edges:
                    yield slice(first, number), edges
                first, edges = number, 0
            edges += count
        if edges:
            yield slice(first, len(scattered.resident)), edges

    def _packed(self, scattered: Scattered, bucket: int, groups: list[tuple[slice, int]]) -> Iterator[Chunk]:
        """Yield a bucket as an edge list, columns counted from its first; a chunk is valid until the next but one."""
        request = self._start_read(scattered, bucket, bucket + 1, groups[0][0])
        for number, (segments, edges) in enumerate(groups):
            begin, places = request.begin, self._finish_read(scattered, request)
            if number + 1 < len(groups):
                request = self._start_read(scattered, bucket, bucket + 1, groups[number + 1][0])
            parts = []
            for width, column in zip(self.relation.parts, places.T.tolist(), strict=True):
                end = begin
                for place, count in zip(column, scattered.counts[segments, bucket].tolist(), strict=True):
                    nbytes = count * width
                    self.memory[end : end + nbytes] = self.memory[place : place + nbytes]
                    end += nbytes
                parts.append(self.memory[begin:end])
                begin = end + -end % LINE
            words = parts[0].view(np.int64 if self.relation.id_bytes == 8 else np.int32)
            columns = parts[0].view(np.int32)[:: parts[0].size // edges // 4]
            yield Chunk(0, words[1::2], columns, [part.reshape(edges, -1) for part in parts[1:]])

    def _start_read(self, scattered: Scattered, first: int, end: int, segments: slice | None = None) -> RunRequest:
        """Begin to read the runs of buckets [first, end) into the next input; of some segments also those in memory."""
        self.input = 1 - self.input
        some = segments or slice(None)
        before = scattered.begins[some, first]
        nbytes = np.multiply.outer(self.widths, scattered.begins[some, end] - before)
        places = scattered.places[some].T + np.multiply.outer(self.widths, before)
        stored = ~scattered.resident[some] & (nbytes > 0)
        slots = np.where(stored | (segments is not None), nbytes + RUN_PADDING & -ALIGNMENT, 0)
        at = np.cumsum(slots).reshape(slots.shape) - slots
        asked = [values[stored].tolist() for values in (places, nbytes, at)]
        if scattered.file is not None and asked[0]:
            if scattered.reader is None:
                scattered.reader = open_stream([scattered.file.path], [self.memory[part] for part in self.inputs])
            scattered.reader.start([(0, place, n, self.input, slot) for place, n, slot in zip(*asked, strict=True)])
        return RunRequest(self.inputs[self.input].start, places, stored)

    def _finish_read(self, scattered: Scattered, request: RunRequest) -> Int64Array:
        """Return where the parts of the requested runs lie in memory, by run, until the next but one is requested."""
        if scattered.file is not None and scattered.reader is not None and request.stored.any():
            request.places[request.stored] = np.array(scattered.reader.finish()) + request.begin
        return np.ascontiguousarray(request.places.T)

    def _outs(self, edges: int) -> list[Bytes]:
        """Return the memory for the ids and the values of so many edges that are to be written."""
        target, cuts = self.memory[self.outputs[0]], line_up(edges, self.items)
        return [target[at : at + edges * item] for at, item in zip(cuts, self.items, strict=False)]

    def _emit(self, scattered: Scattered, column: int, offsets: Int64Array, outs: list[Bytes], edges: int) -> None:
        if scattered.hub is not None:
            column, offsets = scattered.hub[0], np.array(scattered.hub[1:])
        self.files[0].append(offsets, 8 * column)
        for file, item, out in zip(self.files[1:], self.items, outs, strict=True):
            file.append(out, item * self.entry)
        self.entry += edges
        self.bar.update(edges)
