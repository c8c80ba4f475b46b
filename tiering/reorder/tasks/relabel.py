"""The lists of a relation under new ids, in tasks.

``weigh``   how many edges the lists of runs of nodes have, by old ids and by new ones.
``cut``     the lists of a range of old ids in the order of new ones, entries renamed, cut at ranges of new ids.
``merge``   the lists of a range of new ids, from all ranges of old ones.

A list keeps its order. Ranges, of old and of new ids, have about the same number of edges. Memory: `entry_bytes` for
each edge of a range, and a piece of the order of the sources, which streams past the entries that it renames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import FileEntry, Relation, id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.reorder.arrays import rows
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import balanced_bounds, equal_bounds
from tiering.run.inputs import StoredArtifact
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

AnyArray = npt.NDArray[Any]
Files = Mapping[str, FileEntry]
_HERE = "tiering.reorder.tasks.relabel"
_MOST_RUNS = 1 << 16
_COLUMN_BYTES = 64
"""Of a node in a task: offsets, new id, their order, and what is made of these."""


def write_relation(job: Job, writer: ArtifactWriter, graph: Graph, relation: Relation, order: str) -> None:
    """Write the files of a relation of a reordered graph by tasks; `order` is the directory of the finished order."""
    name = f"relation-{graph.relations.index(relation)}"
    job.expect(4)
    source, _, destination = relation
    folder, num_dst, num_edges = relation_folder(relation), graph.num_nodes(destination), graph.num_edges(relation)
    described = _entry_files(graph, relation)
    values = [key for key in described if key != "indices"]
    widths = [entry.bytes // max(1, num_edges) for entry in described.values()]
    per_edge = 3 * sum(widths)
    parts = job.grid.parts(task_bytes(graph, relation))
    shift = max(0, (num_dst - 1).bit_length() - _MOST_RUNS.bit_length() + 1)
    params = {
        "graph": str(graph.path), "order": order, "folder": folder, "source": source, "destination": destination,
        "num_src": graph.num_nodes(source), "num_dst": num_dst, "num_edges": num_edges, "parts": parts,
        "shift": shift, "values": values,
    }  # fmt: skip
    bounds, edges = _ranges(job, name, params, per_edge)
    columns = max(max(np.diff(bounds[which]).tolist()) for which in bounds)
    memory = max(*edges["old"], *edges["new"]) * per_edge + columns * _COLUMN_BYTES + 3 * BLOCK_BYTES
    params = {**params, "old": bounds["old"], "new": bounds["new"]}
    cut = Step(f"{name}.cut", f"{_HERE}:cut", parts, params, memory=memory)
    job.run(cut)
    params = {**params, "from": cut.name}
    merge = Step(f"{name}.merge", f"{_HERE}:merge", parts, params, (cut.name,), memory)
    job.run(merge)
    job.release(cut)
    before = [0, *np.cumsum(edges["new"])[:-1].tolist()]
    files = [
        JoinedFile(
            f"{folder}/indptr", "int64", (num_dst + 1,), [PartitionRange(merge.name, 0, parts)], before, num_edges
        )
    ]
    files += [
        JoinedFile(f"{folder}/{key}", entry.dtype, entry.shape, [PartitionRange(merge.name, 0, parts, part)])
        for part, (key, entry) in enumerate(described.items(), 1)
    ]
    step = join_step(f"{name}.files", writer.path, files, max(edges["new"]) * max(widths))
    make_files(job, writer, step)
    job.release(merge)


def _ranges(
    job: Job, name: str, params: Mapping[str, Any], per_edge: int
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Where ranges begin and end, of ``old`` ids and of ``new``, and the edges of each."""
    num_dst, parts, shift = params["num_dst"], params["parts"], params["shift"]
    even = -(-num_dst // parts) * _COLUMN_BYTES + 2 * BLOCK_BYTES
    count = ((num_dst - 1) >> shift) + 1
    weigh = Step(f"{name}.weigh", f"{_HERE}:weigh", parts, params, memory=even)
    job.run(weigh)
    runs = {which: np.zeros(count, np.int64) for which in ("old", "new")}
    for task in range(parts):
        for which, edges in job.read(weigh.name, task).items():
            runs[which] += edges
    # A column counts as much as its bytes: lists may be empty.
    nodes = np.minimum(1 << shift, num_dst - (np.arange(runs["old"].size) << shift))
    cuts = {which: balanced_bounds(of * per_edge + nodes * _COLUMN_BYTES, parts) for which, of in runs.items()}
    bounds = {which: [min(run << shift, num_dst) for run in cut] for which, cut in cuts.items()}
    return bounds, {which: [int(runs[which][a:b].sum()) for a, b in pairwise(cut)] for which, cut in cuts.items()}


def task_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task that made the whole relation."""
    if isinstance(graph, Graph):
        entries = sum(entry.bytes for entry in _entry_files(graph, relation).values())
    else:
        edges = next(edges for edges in graph.edges if edges.relation == relation)
        entries = edges.num_edges * (graph.nodes[relation[0]].id_bytes + sum(edges.values.values()))
    return 3 * entries + graph.num_nodes(relation[2]) * _COLUMN_BYTES


def _entry_files(graph: Graph, relation: Relation) -> Files:
    """Return the files that run along the entries of a relation: ``indices``, then edge data by name."""
    folder = relation_folder(relation)
    return {key: graph.manifest.files[f"{folder}/{key}"] for key in ("indices", *sorted(graph.edge_data(relation)))}


def weigh(context: TaskContext) -> None:
    """Edges of the lists of a range of nodes, by run of ``2**shift`` nodes, of old ids and of new."""
    params = context.params
    begin, end = equal_bounds(params["num_dst"], params["parts"])[context.index : context.index + 2]
    indptr = StoredArtifact(params["graph"]).read(f"{params['folder']}/indptr", begin, end + 1)
    native.check_indptr(indptr - indptr[0], int(indptr[-1] - indptr[0]), context.threads)
    new = StoredArtifact(params["order"]).read(f"nodes/{params['destination']}/old_to_new", begin, end)
    runs, degrees = ((params["num_dst"] - 1) >> params["shift"]) + 1, np.diff(indptr)
    context.write(
        old=_summed(np.arange(begin, end) >> params["shift"], degrees, runs),
        new=_summed(new >> params["shift"], degrees, runs),
    )


def _summed(runs: AnyArray, degrees: AnyArray, count: int) -> AnyArray:
    """Sums of degrees by run; exact."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, runs, degrees)
    return sums


def cut(context: TaskContext) -> None:
    """The lists of a range of old ids by range of new ones: columns with degrees, entries, values."""
    params = context.params
    begin, end = params["old"][context.index : context.index + 2]
    graph, order = StoredArtifact(params["graph"]), StoredArtifact(params["order"])
    indptr = graph.read(f"{params['folder']}/indptr", begin, end + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    new = order.read(f"nodes/{params['destination']}/old_to_new", begin, end)
    by_new = np.argsort(new)
    places = np.empty_like(by_new)
    places[by_new] = np.arange(by_new.size)
    own = indptr - first
    files = [graph.read(f"{params['folder']}/{key}", first, last) for key in ("indices", *params["values"])]
    starts, arrays = _in_order(own, places, files, params["num_src"], context.threads)
    _rename(arrays[0], order, params, context.threads)
    ascending = new[by_new]
    ends = np.searchsorted(ascending, params["new"][1:]).tolist()
    degrees = np.diff(starts)
    for low, high in pairwise([0, *ends]):
        context.write(column=ascending[low:high], degree=degrees[low:high])
        for array in arrays:
            context.write(values=array[starts[low] : starts[high]])


def merge(context: TaskContext) -> None:
    """The lists of a range of new ids: offsets in the range, entries, values."""
    params = context.params
    begin, source, each = params["new"][context.index], params["from"], 2 + len(params["values"])
    tasks = range(params["parts"])
    columns = list(context.read_many(source, ((task, context.index * each) for task in tasks)))
    places = np.concatenate([part["column"] for part in columns]) - begin
    degrees = np.concatenate([part["degree"] for part in columns])
    own = np.concatenate([[0], np.cumsum(degrees)])
    files = [
        np.concatenate(
            [part["values"] for part in context.read_many(source, ((t, context.index * each + n) for t in tasks))]
        )
        for n in range(1, each)
    ]
    starts, arrays = _in_order(own, places, files, params["num_src"], context.threads)
    context.write(indptr=starts[:-1])
    for array in arrays:
        context.write(values=array)


def _in_order(
    indptr: AnyArray, places: AnyArray, files: Sequence[AnyArray], num_src: int, threads: int
) -> tuple[AnyArray, list[AnyArray]]:
    """Lists in the order of their `places`: their offsets, and all arrays that run along the entries."""
    starts: AnyArray = native.relabel_indptr(indptr, places, threads)
    arrays = []
    for number, values in enumerate(files):
        out = np.empty(values.shape, values.dtype)
        memory = out.reshape(-1).view(np.uint8)
        if out.size == 0:
            pass
        elif number == 0:
            native.place_indices(values, 0, indptr, places, num_src, 0, 0, starts, memory, threads)
        else:
            own = rows(values)
            native.place_values(own, 0, indptr, places, 0, 0, starts, memory, threads)
        arrays.append(out)
    return starts, arrays


def _rename(entries: AnyArray, order: StoredArtifact, params: Mapping[str, Any], threads: int) -> None:
    """Give sources their new ids, as the order streams past: all that is held of it is a block."""
    name, count = f"nodes/{params['source']}/old_to_new", params["num_src"]
    step = BLOCK_BYTES // id_bytes(count)
    for first in range(0, count, step):
        part = order.read(name, first, min(count, first + step))
        native.rename_sources(entries.view(np.uint8), part, first, count, threads)
