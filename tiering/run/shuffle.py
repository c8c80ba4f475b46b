"""The shuffle of edges into neighbour lists: COO to CSC in tasks, by the kernels of the conversion in one process.

``count``    edges of a chunk by bucket of 2^shift consecutive destinations.
``scatter``  the edges of a chunk by range of buckets, in a bucket in the order of the input.
``sort``     the lists of a range: its edges from all chunks, chunks in their order, sorted stably by destination.
``files``    the files of the relation: ``indptr``, ``indices``, the arrays that run along the edges.

Ranges are whole buckets of about the same number of edges. A stage brings the function that reads a chunk of edges.
Memory: `edge_bytes` for each edge of a chunk or range, and 8 bytes for each destination of a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import LINE, aligned_bytes
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import balanced_bounds
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext, resolve

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
_HERE = "tiering.run.shuffle"
BUCKETS = 1 << 12
"""Maximum of buckets: their lines still fit a core's private cache."""


class EdgeChunk(NamedTuple):
    """Consecutive edges in input order; `first` is the number of the first."""

    first: int
    src: AnyArray
    dst: AnyArray
    values: list[AnyArray | None]
    """Arrays that run along the edges; ``None``: the numbers of the edges."""


@dataclass(frozen=True)
class ListShuffle:
    """The edges of a relation on their way into lists."""

    name: str
    """Prefix of the steps' names."""
    chunk_reader: str
    """``module:name`` of a function that returns the `EdgeChunk` of a task of a `TaskContext`."""
    chunks: int
    num_edges: int
    num_src: int
    num_dst: int
    values: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Dtype and shape of a value of each array that runs along the edges, by file name."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the chunk reader."""
    reads: tuple[str, ...] = ()
    chunk_memory: int = 0
    """Peak memory of the scatter of one chunk in bytes."""

    @property
    def shift(self) -> int:
        """Destinations of a bucket, as a power of two."""
        return bucket_shift(self.num_dst)

    @property
    def item_bytes(self) -> list[int]:
        """Bytes of each value."""
        return [np.dtype(dtype).itemsize * int(np.prod(tail, dtype=np.int64)) for dtype, tail in self.values.values()]

    def to_params(self) -> dict[str, Any]:
        """Return the parameters of the steps' tasks."""
        return {
            **self.params, "chunk_reader": self.chunk_reader, "num_src": self.num_src, "num_dst": self.num_dst,
            "shift": self.shift, "items": self.item_bytes,
        }  # fmt: skip


def bucket_shift(num_dst: int) -> int:
    """Return the shift with which so many destinations have at most `BUCKETS` buckets."""
    return max(0, (num_dst - 1).bit_length() - BUCKETS.bit_length() + 1)


def edge_bytes(read: int, num_src: int, items: int) -> int:
    """Return the memory of a task per edge, of which `read` bytes are read and `items` run along it."""
    scattered = int(native.scattered_bytes(num_src)) + items
    return max(read + items + scattered, 2 * scattered)  # a chunk; a range whose partitions are joined


def count_edges(job: Job, shuffle: ListShuffle) -> Int64Array:
    """Return the edges of each bucket, counted by tasks; ids that are out of range are refused."""
    step = Step(
        f"{shuffle.name}.count", f"{_HERE}:count", shuffle.chunks, shuffle.to_params(), shuffle.reads,
        shuffle.chunk_memory,
    )  # fmt: skip
    total = np.zeros(((shuffle.num_dst - 1) >> shuffle.shift) + 1, np.int64)
    for index in range(len(job.run(step))):
        total += job.read(step.name, index)["edges"]
    return total


def write_lists(job: Job, writer: ArtifactWriter, folder: str, shuffle: ListShuffle, counts: Int64Array) -> None:
    """Write the files of a relation by tasks; `counts` are the edges of each bucket."""
    parts, items = shuffle.chunks, sum(shuffle.item_bytes)
    cuts = balanced_bounds(counts, parts)
    edges = [int(counts[begin:end].sum()) for begin, end in pairwise(cuts)]
    columns = [min(end << shuffle.shift, shuffle.num_dst) - (begin << shuffle.shift) for begin, end in pairwise(cuts)]
    columns = [max(0, count) for count in columns]
    params = {**shuffle.to_params(), "cuts": cuts, "chunks": parts}
    scatter = Step(f"{shuffle.name}.scatter", f"{_HERE}:scatter", parts, params, shuffle.reads, shuffle.chunk_memory)
    job.run(scatter)
    memory = max(edges) * edge_bytes(0, shuffle.num_src, items) + 8 * max(columns)
    lists = Step(
        f"{shuffle.name}.sort", f"{_HERE}:sort", parts, {**params, "from": scatter.name}, (scatter.name,), memory
    )
    job.run(lists)
    job.release(scatter)
    before, ids = [0, *np.cumsum(edges)[:-1].tolist()], f"int{8 * id_bytes(shuffle.num_src)}"
    files = [
        JoinedFile(
            f"{folder}/indptr", "int64", (shuffle.num_dst + 1,), [PartitionRange(lists.name, 0, parts)], before,
            shuffle.num_edges,
        )
    ]  # fmt: skip
    for number, (key, (dtype, tail)) in enumerate({"indices": (ids, ()), **shuffle.values}.items(), 1):
        shape = (shuffle.num_edges, *tail)
        files.append(JoinedFile(f"{folder}/{key}", dtype, shape, [PartitionRange(lists.name, 0, parts, number)]))
    largest = max(8 * max(columns), max(edges) * max(8, *shuffle.item_bytes, 0))
    make_files(job, writer, join_step(f"{shuffle.name}.files", writer.path, files, largest))
    job.release(lists)


def count(context: TaskContext) -> None:
    """Count the edges of a chunk by bucket."""
    params = context.params
    chunk: EdgeChunk = resolve(params["chunk_reader"])(context, destinations_only=True)
    counted = native.count_buckets(chunk.dst, chunk.first, params["num_dst"], params["shift"], context.threads)
    context.write(edges=counted.sum(0))


def scatter(context: TaskContext) -> None:
    """Write the edges of a chunk by range of buckets, then the edges of each bucket, range by range."""
    params = context.params
    chunk: EdgeChunk = resolve(params["chunk_reader"])(context)
    num_src, num_dst, shift, threads = params["num_src"], params["num_dst"], params["shift"], context.threads
    by_thread = native.count_buckets(chunk.dst, chunk.first, num_dst, shift, threads)
    widths, edges = [int(native.scattered_bytes(num_src)), *params["items"]], chunk.dst.shape[0]
    parts = [aligned_bytes(max(LINE, edges * width))[: edges * width] for width in widths]
    values = [None if array is None else value_rows(array) for array in chunk.values]
    native.scatter_edges(chunk.src, chunk.dst, values, chunk.first, num_src, num_dst, shift, by_thread, 0, parts)
    counts = by_thread.sum(0)
    cuts = params["cuts"]
    ends = np.concatenate([[0], np.cumsum(counts)])[cuts[1:]]
    shapes = zip(parts, widths, strict=True)
    context.write_all({str(n): part.reshape(edges, width) for n, (part, width) in enumerate(shapes)}, ends)
    context.write_all({"edges": counts}, cuts[1:])


def sort(context: TaskContext) -> None:
    """Write the lists of a range: a partition with offsets, one with sources, one for each value."""
    params, index, chunks = context.params, context.index, context.params["chunks"]
    begin, end = params["cuts"][index : index + 2]
    shift, items = params["shift"], params["items"]
    columns = max(0, min(end << shift, params["num_dst"]) - (begin << shift))
    places = ((chunk, chunks + index) for chunk in range(chunks))
    counts = np.stack([part["edges"] for part in context.read_many(params["from"], places)])
    widths = np.array([native.scattered_bytes(params["num_src"]), *items])
    sizes = -(-counts.sum(1)[:, None] * widths // LINE) * LINE
    offsets = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)
    memory = aligned_bytes(max(LINE, int(sizes.sum())))
    for chunk, starts in enumerate(offsets.tolist()):
        context.read(params["from"], chunk, index, memory[starts[0] :])
    total, indptr = int(counts.sum()), np.zeros(columns, np.int64)
    outs = [np.empty(total * width, np.uint8) for width in (id_bytes(params["num_src"]), *items)]
    if columns:
        native.sort_runs(
            memory, offsets, counts, items, columns, shift, params["num_src"], 0, indptr, outs, context.threads
        )
    context.write(indptr=indptr)
    ids, *values = outs
    context.write(indices=ids.view(f"i{id_bytes(params['num_src'])}"))
    for out, width in zip(values, items, strict=True):
        context.write(values=out.reshape(total, width))


def value_rows(array: AnyArray) -> Bytes:
    """Return values as bytes, shape (edges, bytes of a value)."""
    width = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.shape[0], width)
