"""COO to CSC of a relation by tasks, with the kernels of the conversion in one process.

``count`` counts the edges of a chunk by bucket of 2^shift destinations, ``scatter`` sends them to ranges of buckets of
about the same number of edges, ``sort`` sorts a range stably by destination. Memory: `RelationPlan.edge_bytes` for each
edge of a chunk or range, and 8 bytes for each destination of a range.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import entry_width, mapped_file, offset_in
from tiering.artifacts.storage import LINE, AnyArray, Bytes, aligned_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.dataset import as_lists
from tiering.formats.graph import relation_folder
from tiering.formats.shape import value_rows
from tiering.graph.bucket_sort import Chunk
from tiering.graph.plan import BUCKETS, RelationPlan
from tiering.graph.time_order import TimeOrder
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import Int64Array, balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.pieces import within
from tiering.run.step import Step, TaskContext, resolve
from tiering.run.store import Store

_HERE = "tiering.graph.tasks"


def write_relation(job: Job, writer: ArtifactWriter, plan: RelationPlan) -> None:
    """Write the files of a relation by tasks."""
    job.expect(4)
    # Steps are named by the relation: a run that goes on converts fewer relations. Names of files have a limit.
    name = "__".join(plan.edges.relation)
    name = name if len(name) <= 100 else f"{name[:80]}-{xxhash.xxh3_64_hexdigest(name.encode())}"
    edges, parts, folder = plan.edges, plan.tasks, relation_folder(plan.edges.relation)
    along = dict(zip(plan.values, plan.arrays(), strict=True))
    arrays = {"src": edges.src, "dst": edges.dst, **{key: array for key, array in along.items() if array is not None}}
    sources = {key: _describe(job, f"{name}.{key}", array, parts) for key, array in arrays.items()}
    broadcasts = tuple(source["broadcast"] for source in sources.values() if "broadcast" in source)
    shift = run_shift(plan.num_dst, BUCKETS)
    params: dict[str, Any] = {
        "sources": sources, "values": list(plan.values), "bounds": equal_bounds(edges.num_edges, parts),
        "num_src": plan.num_src, "num_dst": plan.num_dst, "shift": shift, "items": list(plan.item_bytes),
        "order": plan.order,
    }  # fmt: skip
    chunk = -(-edges.num_edges // parts) * plan.edge_bytes
    chunk += max(getattr(array, "read_memory", 0) for array in edges.arrays)
    count = Step(f"{name}.count", f"{_HERE}:count", parts, params, broadcasts, chunk)
    counts = np.zeros(((plan.num_dst - 1) >> shift) + 1, np.int64)
    for index in range(len(job.run(count))):
        counts += job.read(count.name, index)["edges"]
    cuts = balanced_bounds(counts, parts)
    ranges = [int(counts[begin:end].sum()) for begin, end in pairwise(cuts)]
    columns = [_columns(begin, end, shift, plan.num_dst) for begin, end in pairwise(cuts)]
    params = {**params, "cuts": cuts, "chunks": parts, "count": count.name}
    scatter = Step(f"{name}.scatter", f"{_HERE}:scatter", parts, params, (count.name, *broadcasts), chunk)
    job.run(scatter)
    memory = max(ranges) * plan.edge_bytes + 8 * max(columns)
    lists = Step(f"{name}.sort", f"{_HERE}:sort", parts, {**params, "from": scatter.name}, (scatter.name,), memory)
    job.run(lists)
    job.release(scatter)
    files = [
        JoinedFile(f"{folder}/{key}", dtype, shape, [PartitionRange(lists.name, 0, parts, number)], ranges)
        for number, (key, dtype, shape) in enumerate(plan.files())
    ]
    files[0] = replace(files[0], rows=columns, before=[0, *np.cumsum(ranges)[:-1].tolist()], last=edges.num_edges)
    make_files(job, writer, join_step(f"{name}.files", writer.path, files))
    job.release(lists)


def _columns(begin: int, end: int, shift: int, num_dst: int) -> int:
    return max(0, min(end << shift, num_dst) - (begin << shift))


@dataclass(frozen=True)
class FileArray:
    """An array of the user's in a file that every machine sees under the same path: any stride, any offset."""

    path: str
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
    offset: int

    @classmethod
    def of(cls, array: AnyArray) -> FileArray | None:
        """Return the file behind a memory map or a view of one; ``None`` if there is none with a name."""
        mapped = mapped_file(array)
        if mapped is None or not Path(str(mapped.filename)).is_file() or array.size == 0 or min(array.strides) <= 0:
            return None
        path = os.path.realpath(str(mapped.filename))
        return cls(path, array.dtype.str, array.shape, array.strides, offset_in(mapped, array))

    def read(self, begin: int, end: int) -> AnyArray:
        """Return entries [begin, end) along the first axis, in memory and contiguous."""
        dtype, shape = np.dtype(self.dtype), (end - begin, *self.shape[1:])
        if begin == end:
            return np.empty(shape, dtype)
        nbytes = (end - begin - 1) * self.strides[0] + entry_width(dtype.itemsize, self.shape, self.strides)
        file = Path(self.path)
        data = Store(file.parent).read(file.name, self.offset + begin * self.strides[0], nbytes)
        return np.ascontiguousarray(np.ndarray(shape, dtype, data.data, 0, tuple(self.strides)))


def _describe(job: Job, name: str, array: Any, parts: int) -> dict[str, Any]:
    """Return an array along the edges as tasks read it: in the user's file, or broadcast by the driver.

    What is no array is a dataclass of JSON types with a method ``read(begin, end)``, such as a column of parquet.
    """
    source = FileArray.of(array) if isinstance(array, np.ndarray) else array
    if source is None or as_lists(array) is not None:
        return {"broadcast": job.broadcast(name, {"values": array}, equal_bounds(array.shape[0], parts)).name}
    return {"class": f"{type(source).__module__}:{type(source).__name__}", **vars(source)}


def _read(context: TaskContext, key: str) -> AnyArray:
    source = dict(context.params["sources"][key])
    if "broadcast" in source:
        return context.read(source["broadcast"], 0, context.index)["values"]
    values: AnyArray = resolve(source.pop("class"))(**source).read(*context.params["bounds"][context.index :][:2])
    return values


def _count(context: TaskContext, dst: AnyArray) -> Int64Array:
    params, first = context.params, context.params["bounds"][context.index]
    return native.count_buckets(dst, first, params["num_dst"], params["shift"], context.threads)


def count(context: TaskContext) -> None:
    """Count the edges of a chunk by bucket; an id that is out of range is refused."""
    context.write(edges=_count(context, _read(context, "dst")).sum(0))


def scatter(context: TaskContext) -> None:
    """Write the edges of a chunk by range of buckets, then the edges of each bucket, range by range."""
    params = context.params
    values: list[Bytes | None] = []
    for key in params["values"]:
        array = _read(context, key) if key in params["sources"] else None
        values.append(None if array is None else value_rows(array, key == "edge_ids"))
    chunk = Chunk(params["bounds"][context.index], _read(context, "src"), _read(context, "dst"), values)
    one = context.threads == 1  # thread, whose counts are there
    by_thread = context.read(params["count"], context.index)["edges"][None] if one else _count(context, chunk.dst)
    widths, edges = [int(native.scattered_bytes(params["num_src"])), *params["items"]], chunk.dst.shape[0]
    parts = [aligned_bytes(max(LINE, edges * width))[: edges * width] for width in widths]
    native.scatter_edges(
        chunk.src, chunk.dst, values, chunk.first, params["num_src"], params["num_dst"], params["shift"], by_thread, 0,
        parts,
    )  # fmt: skip
    counts, cuts = by_thread.sum(0), params["cuts"]
    rows = {str(n): part.reshape(edges, width) for n, (part, width) in enumerate(zip(parts, widths, strict=True))}
    context.write_all(rows, np.concatenate([[0], np.cumsum(counts)])[cuts[1:]])
    context.write_all({"edges": counts}, cuts[1:])


def sort(context: TaskContext) -> None:
    """Write the lists of a range: a partition with offsets, one with sources, one for each value."""
    params, index, chunks = context.params, context.index, context.params["chunks"]
    begin, end = params["cuts"][index : index + 2]
    columns = _columns(begin, end, params["shift"], params["num_dst"])
    places = ((chunk, chunks + index) for chunk in range(chunks))
    counts = np.stack([part["edges"] for part in context.read_many(params["from"], places)])
    widths = np.array([native.scattered_bytes(params["num_src"]), *params["items"]])
    sizes = -(-counts.sum(1)[:, None] * widths // LINE) * LINE
    offsets = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)
    memory = aligned_bytes(max(LINE, int(sizes.sum())))
    for chunk, start in enumerate(offsets[:, 0].tolist()):
        context.read(params["from"], chunk, index, within(memory[start:]))
    total, indptr, wide = int(counts.sum()), np.zeros(columns, np.int64), id_bytes(params["num_src"])
    outs = [np.empty(total * width, np.uint8) for width in (wide, *params["items"])]
    if columns:
        native.sort_runs(
            memory, offsets, counts, params["items"], columns, params["shift"], params["num_src"], 0, indptr, outs,
            context.threads,
        )  # fmt: skip
        if params["order"] is not None and total:
            TimeOrder(*params["order"]).apply(indptr, outs, begin << params["shift"], context.threads)
    context.write(indptr=indptr)
    context.write(indices=outs[0].view(f"i{wide}"))
    for out, width in zip(outs[1:], params["items"], strict=True):
        context.write(values=out.reshape(total, width))
