"""From edges in the order of the input to lists by destination: COO to CSC of one relation, in tasks.

``count``    how many edges each run of destinations has, chunk by chunk of the edge list.
``buckets``  the edges of a chunk by range of destinations, in each in the order of the input.
``lists``    the lists of a range: its edges from all chunks, chunks in their order, sorted stably by destination.
``files``    a file of the relation each: ``indptr``, ``indices``, the arrays that run along the edges.

Ranges have about the same number of edges, by ``count``; a single node is never divided. Memory: a chunk or range of n
edges takes n times `edge_bytes`, two blocks of 64 MiB of a file that is written, and what decoding parquet takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import RefusedError
from tiering.formats.feature_rows import take
from tiering.formats.graph import relation_folder
from tiering.graph.plan import RelationPlan
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import balanced_bounds, equal_bounds
from tiering.run.inputs import open_row_source, row_source
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

AnyArray = npt.NDArray[Any]
_HERE = "tiering.graph.lists"
_MOST_RUNS = 1 << 16
"""Runs of destinations that are counted at the most."""


def write_relation(job: Job, writer: ArtifactWriter, plan: RelationPlan) -> None:
    """Write the files of a relation by tasks."""
    job.expect(4)
    # Steps are named by the relation: a run that goes on converts fewer relations. Names of files have a limit.
    name = "__".join(plan.edges.relation)
    name = name if len(name) <= 100 else f"{name[:80]}-{xxhash.xxh3_64_hexdigest(name.encode())}"
    edges, csc = plan.edges, plan.csc
    shift = max(0, (csc.num_dst - 1).bit_length() - _MOST_RUNS.bit_length() + 1)
    parts = plan.tasks
    ends = {"src": edges.src, "dst": edges.dst}
    values = {key: a for key, a in zip(csc.values, plan.values(), strict=True) if a is not None}
    read = {key: _described(job, f"{name}.{key}", array, parts) for key, array in {**ends, **values}.items()}
    given = tuple(one["given"] for one in read.values() if "given" in one)
    params = {
        "read": read, "values": list(csc.values), "parts": parts, "num_edges": csc.num_edges,
        "num_src": csc.num_src, "num_dst": csc.num_dst, "shift": shift,
    }  # fmt: skip
    decoding = max(getattr(array, "read_memory", 0) for array in edges.arrays)
    chunk = -(-csc.num_edges // parts) * plan.edge_bytes + decoding
    step = Step(f"{name}.count", f"{_HERE}:count", parts, params, given, chunk)
    counts = sum(
        (job.read(step.name, index)["edges"] for index in range(len(job.run(step)))),
        np.zeros(((csc.num_dst - 1) >> shift) + 1, np.int64),
    )
    runs = balanced_bounds(counts, parts)
    bounds = [min(run << shift, csc.num_dst) for run in runs]
    of_range = [int(counts[begin:end].sum()) for begin, end in pairwise(runs)]
    params = {**params, "bounds": bounds}
    buckets = Step(f"{name}.buckets", f"{_HERE}:buckets", parts, params, given, chunk)
    job.run(buckets)
    memory = max(of_range) * plan.edge_bytes + 8 * max(np.diff(bounds).tolist())
    lists = Step(f"{name}.lists", f"{_HERE}:lists", parts, {**params, "from": buckets.name}, (buckets.name,), memory)
    job.run(lists)
    job.release(buckets)
    files = join_step(f"{name}.files", writer.path, _files(plan, lists, of_range), max(of_range) * _widest(plan))
    make_files(job, writer, files)
    job.release(lists)


def _described(job: Job, name: str, array: AnyArray, parts: int) -> dict[str, Any]:
    """An array along the edges as tasks get at it: in the user's file, or as who leads the job hands it over."""
    source = row_source(array)
    if source is not None:
        return source.to_json()
    return {"given": job.broadcast(name, {"values": array}, equal_bounds(array.shape[0], parts)).name}


def _widest(plan: RelationPlan) -> int:
    """Bytes of an entry of the widest file."""
    return max(8, *plan.csc.item_bytes, 0)


def _files(plan: RelationPlan, lists: Step, of_range: Sequence[int]) -> list[JoinedFile]:
    """The files of the relation, by the parts of ``lists``; `of_range`: edges of each range."""
    csc, folder, before = plan.csc, relation_folder(plan.edges.relation), [0, *np.cumsum(of_range)[:-1].tolist()]
    files = [
        JoinedFile(
            f"{folder}/indptr",
            "int64",
            (csc.num_dst + 1,),
            [PartitionRange(lists.name, 0, lists.tasks)],
            before,
            csc.num_edges,
        ),
        JoinedFile(
            f"{folder}/indices",
            f"int{8 * csc.id_bytes}",
            (csc.num_edges,),
            [PartitionRange(lists.name, 0, lists.tasks, 1)],
        ),
    ]
    for part, (key, array) in enumerate(zip(csc.values, plan.values(), strict=True), 2):
        dtype = "int64" if array is None or key == "edge_ids" else array.dtype.name
        tail = () if array is None else array.shape[1:]
        files.append(
            JoinedFile(
                f"{folder}/{key}", dtype, (csc.num_edges, *tail), [PartitionRange(lists.name, 0, lists.tasks, part)]
            )
        )
    return files


def count(context: TaskContext) -> None:
    """Edges of a chunk by run of ``2**shift`` destinations; ids that are none of the type's are refused."""
    params = context.params
    first, dst = _chunk(context, "dst")
    _check_ids(dst, params["num_dst"], "destination", first)
    runs = ((params["num_dst"] - 1) >> params["shift"]) + 1
    context.write(edges=np.bincount(dst >> params["shift"], minlength=runs).astype(np.int64))


def buckets(context: TaskContext) -> None:
    """The edges of a chunk by range of destinations: source, destination in the range, values or number."""
    params = context.params
    first, dst = _chunk(context, "dst")
    _, src = _chunk(context, "src")
    _check_ids(src, params["num_src"], "source", first)
    bounds = np.array(params["bounds"], np.int64)
    order, counts = native.partition(dst, bounds, context.threads)
    local = dst[order] - np.repeat(bounds[:-1], counts).astype(dst.dtype)
    columns: dict[str, AnyArray] = {
        "src": src[order].astype(f"i{id_bytes(params['num_src'])}", copy=False),
        "dst": local.astype(f"i{id_bytes(int(np.diff(bounds).max(initial=0)))}", copy=False),
    }
    for key in params["values"]:
        if key in params["read"]:
            values = _chunk(context, key)[1][order]
            columns[f"value {key}"] = values.astype(np.int64) if key == "edge_ids" else values
        else:
            columns[f"value {key}"] = order.astype(np.int64) + first
    context.write_all(columns, np.cumsum(counts))


def lists(context: TaskContext) -> None:
    """The lists of a range of destinations: a part with offsets, one with sources, one for each value."""
    params, bounds = context.params, context.params["bounds"]
    chunks = list(context.read_many(params["from"], ((chunk, context.index) for chunk in range(params["parts"]))))
    joined = {key: np.concatenate([chunk.pop(key) for chunk in chunks]) for key in list(chunks[0])}
    columns = bounds[context.index + 1] - bounds[context.index]
    values = [key for key in joined if key.startswith("value ")]
    src, dst = joined.pop("src"), joined.pop("dst")
    indptr, indices, positions = native.coo_to_csc(src, dst, params["num_src"], columns, context.threads, bool(values))
    context.write(indptr=indptr[:-1])
    context.write(indices=indices)
    for key in values:
        own = joined.pop(key)
        context.write(values=own if positions is None else take(own, positions, context.threads))


def _chunk(context: TaskContext, key: str) -> tuple[int, AnyArray]:
    """Number of a chunk's first edge, and what an array along the edges has of it."""
    params = context.params
    bounds, described = equal_bounds(params["num_edges"], params["parts"]), params["read"][key]
    begin, end = bounds[context.index], bounds[context.index + 1]
    if "given" in described:
        return begin, context.read(described["given"], 0, context.index)["values"]
    return begin, open_row_source(described).read(begin, end)


def _check_ids(ids: AnyArray, count: int, side: str, first: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        at = int(np.flatnonzero((ids < 0) | (ids >= count))[0])
        raise RefusedError(f"edge {first + at}: {side} id {ids[at]} is outside 0..{count - 1}")
