"""The lists of a relation by tasks: the ranges of the user's arrays that each reads, for `tiering.run.shuffle`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import relation_folder
from tiering.graph.plan import RelationPlan
from tiering.run.grid import equal_bounds
from tiering.run.inputs import open_row_source, row_source
from tiering.run.job import Job
from tiering.run.shuffle import EdgeChunk, ListShuffle, count_edges, write_lists
from tiering.run.step import TaskContext

AnyArray = npt.NDArray[Any]


def write_relation(job: Job, writer: ArtifactWriter, plan: RelationPlan) -> None:
    """Write the files of a relation by tasks."""
    job.expect(4)
    # Steps are named by the relation: a run that goes on converts fewer relations. Names of files have a limit.
    name = "__".join(plan.edges.relation)
    name = name if len(name) <= 100 else f"{name[:80]}-{xxhash.xxh3_64_hexdigest(name.encode())}"
    edges, csc, parts = plan.edges, plan.csc, plan.tasks
    along = dict(zip(csc.values, plan.values(), strict=True))
    arrays = {"src": edges.src, "dst": edges.dst, **{key: array for key, array in along.items() if array is not None}}
    sources = {key: _describe(job, f"{name}.{key}", array, parts) for key, array in arrays.items()}
    values = {
        key: ("int64", ()) if array is None or key == "edge_ids" else (array.dtype.name, tuple(array.shape[1:]))
        for key, array in along.items()
    }
    decoding = max(getattr(array, "read_memory", 0) for array in edges.arrays)
    shuffle = ListShuffle(
        name, "tiering.graph.lists:read_chunk", parts, csc.num_edges, csc.num_src, csc.num_dst, values,
        {"sources": sources, "values": list(csc.values), "bounds": equal_bounds(csc.num_edges, parts)},
        tuple(source["broadcast"] for source in sources.values() if "broadcast" in source),
        -(-csc.num_edges // parts) * plan.edge_bytes + decoding,
    )  # fmt: skip
    write_lists(job, writer, relation_folder(edges.relation), shuffle, count_edges(job, shuffle))


def _describe(job: Job, name: str, array: AnyArray, parts: int) -> dict[str, Any]:
    """Return an array along the edges as tasks read it: in the user's file, or broadcast by the driver."""
    source = row_source(array)
    if source is not None:
        return source.to_json()
    return {"broadcast": job.broadcast(name, {"values": array}, equal_bounds(array.shape[0], parts)).name}


def read_chunk(context: TaskContext, *, destinations_only: bool = False) -> EdgeChunk:
    """Return the edges of a task's chunk."""
    bounds = context.params["bounds"]
    begin, end = bounds[context.index], bounds[context.index + 1]

    def read(key: str) -> AnyArray:
        source = context.params["sources"][key]
        if "broadcast" in source:
            return context.read(source["broadcast"], 0, context.index)["values"]
        return open_row_source(source).read(begin, end)

    dst = read("dst")
    if destinations_only:
        return EdgeChunk(begin, dst, dst, [])
    values: list[AnyArray | None] = []
    for key in context.params["values"]:
        array = read(key) if key in context.params["sources"] else None
        values.append(array.astype(np.int64, copy=False) if array is not None and key == "edge_ids" else array)
    return EdgeChunk(begin, read("src"), dst, values)
