"""The lists of a relation under new ids, by tasks; a list moves as a whole, and keeps its order.

``histogram`` counts edges by runs of old and of new ids, ``cut`` sends the lists of a range of old ids to ranges of new
ones, sources renamed, ``merge`` joins a range of new ids. Ranges have about the same number of edges. Memory: twice the
widest array along the edges of a range, `_COLUMN_BYTES` for each of its nodes, and a block of new ids of sources.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.storage import AnyArray
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph, value_bytes, value_rows
from tiering.reorder.adjacency import place_entries
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

_HERE = "tiering.reorder.tasks.relabel"
_COLUMN_BYTES = 64  # memory of a task per node of a range: offsets, new id, their order, and what is made of these


def write_relation(job: Job, writer: ArtifactWriter, graph: Graph, relation: Relation, order: str) -> None:
    """Write the files of a relation of a reordered graph by tasks; `order` is the directory of the finished order."""
    job.expect(4)
    nbytes = task_bytes(graph, relation)
    name, (source, _, destination) = f"relation-{graph.relations.index(relation)}", relation
    num_dst, num_edges, data = graph.num_nodes(destination), graph.num_edges(relation), graph.edge_data(relation)
    folder, per_edge, parts = relation_folder(relation), _edge_bytes(graph, relation), job.grid.parts(nbytes)
    files = {key: graph.manifest.files[f"{folder}/{key}"] for key in ("indices", *sorted(data))}
    params: dict[str, Any] = {
        "graph": str(graph.path), "order": order, "folder": folder, "source": source, "destination": destination,
        "num_src": graph.num_nodes(source), "num_dst": num_dst, "parts": parts, "files": list(files),
    }  # fmt: skip
    nodes = -(-num_dst // parts) * _COLUMN_BYTES
    histogram = Step(f"{name}.histogram", f"{_HERE}:histogram", parts, params, memory=nodes)
    runs = np.zeros((2, _runs(num_dst)), np.int64)
    for task in range(len(job.run(histogram))):
        runs += job.read(histogram.name, task)["edges"]
    # A column counts as much as its bytes: lists may be empty.
    shift = run_shift(num_dst)
    columns = np.minimum(1 << shift, num_dst - (np.arange(runs.shape[1]) << shift)) * _COLUMN_BYTES
    cuts = [balanced_bounds(edges * per_edge + columns, parts) for edges in runs]
    old, new = ([min(run << shift, num_dst) for run in cut] for cut in cuts)
    largest = max(
        int((edges * per_edge + columns)[low:high].sum())
        for edges, cut in zip(runs, cuts, strict=True) for low, high in pairwise(cut)
    )  # fmt: skip
    edges = [int(runs[1, low:high].sum()) for low, high in pairwise(cuts[1])]
    params, memory = {**params, "old": old, "new": new}, largest + BLOCK_BYTES
    cut = Step(f"{name}.cut", f"{_HERE}:cut", parts, params, memory=memory)
    job.run(cut)
    merge = Step(f"{name}.merge", f"{_HERE}:merge", parts, {**params, "from": cut.name}, (cut.name,), memory)
    job.run(merge)
    job.release(cut)
    before = [0, *np.cumsum(edges)[:-1].tolist()]
    offsets = JoinedFile(
        f"{folder}/indptr", "int64", (num_dst + 1,), [PartitionRange(merge.name, 0, parts)], before, num_edges
    )
    joined = [
        JoinedFile(f"{folder}/{key}", entry.dtype, entry.shape, [PartitionRange(merge.name, 0, parts, number)])
        for number, (key, entry) in enumerate(files.items(), 1)
    ]
    make_files(job, writer, join_step(f"{name}.files", writer.path, [offsets, *joined], max(edges) * per_edge // 2))
    job.release(merge)


def task_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task that made the whole relation."""
    return graph.num_edges(relation) * _edge_bytes(graph, relation) + graph.num_nodes(relation[2]) * _COLUMN_BYTES


def _edge_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task per edge."""
    if isinstance(graph, Graph):
        items = [value_bytes(values) for values in graph.edge_data(relation).values()]
    else:
        items = list(next(edges for edges in graph.edges if edges.relation == relation).values.values())
    return 2 * max(id_bytes(graph.num_nodes(relation[0])), *items, 0)


def _runs(num_dst: int) -> int:
    return ((num_dst - 1) >> run_shift(num_dst)) + 1


def histogram(context: TaskContext) -> None:
    """Count the edges of the lists of a range of nodes, by run of old ids, and by run of new ids."""
    params, num_dst = context.params, context.params["num_dst"]
    begin, end = equal_bounds(num_dst, params["parts"])[context.index : context.index + 2]
    indptr, new = _read_columns(params, begin, end)
    native.check_indptr(indptr - indptr[0], int(indptr[-1] - indptr[0]), context.threads)
    shift, degrees = run_shift(num_dst), np.diff(indptr)
    sums = [np.bincount(ids >> shift, degrees, _runs(num_dst)) for ids in (np.arange(begin, end), new)]
    context.write(edges=np.stack(sums).astype(np.int64))  # summed as float64: exact below 2^53 edges


def cut(context: TaskContext) -> None:
    """Write the lists of a range of old ids by range of new ones: columns with degrees, then each array's entries."""
    params, threads = context.params, context.threads
    indptr, new = _read_columns(params, *params["old"][context.index : context.index + 2])
    first, last = int(indptr[0]), int(indptr[-1])
    order, counts = native.partition(new, np.array(params["new"], np.int64), threads)
    places, lists = np.empty_like(new), np.cumsum(counts)
    places[order] = np.arange(new.size, dtype=new.dtype)
    starts = native.relabel_indptr(indptr - first, places, threads)
    context.write_all({"column": new[order], "degree": np.diff(starts)}, lists)
    for number, key in enumerate(params["files"]):
        values = open_manifest(params["graph"]).read(f"{params['folder']}/{key}", first, last)
        out, num_src = np.empty_like(values), params["num_src"] if number == 0 else None
        place_entries(values, 0, indptr - first, places, num_src, (0, 0, starts, value_rows(out).ravel()), threads)
        del values  # before the new ids are read
        if number == 0:
            _rename(out, params, threads)
        context.write_all({"values": out}, starts[lists])


def merge(context: TaskContext) -> None:
    """Write the lists of a range of new ids: offsets in the range, entries, values."""
    params, source, parts, index = context.params, context.params["from"], context.params["parts"], context.index
    columns = [context.read(source, task, index) for task in range(parts)]
    places = np.concatenate([part["column"] for part in columns]) - params["new"][index]
    indptr = np.concatenate([[0], *(part["degree"] for part in columns)]).cumsum()
    starts = native.relabel_indptr(indptr, places, context.threads)
    context.write(indptr=starts[:-1])
    for number in range(len(params["files"])):
        at, out = 0, np.empty(0)
        for task in range(parts):
            values = context.read(source, task, (1 + number) * parts + index)["values"]
            out = np.empty((int(starts[-1]), *values.shape[1:]), values.dtype) if task == 0 else out
            num_src, memory = params["num_src"] if number == 0 else None, value_rows(out).ravel()
            place_entries(values, at, indptr, places, num_src, (0, 0, starts, memory), context.threads)
            at += values.shape[0]
            del values  # before the next are read
        context.write(values=out)


def _read_columns(params: Any, begin: int, end: int) -> tuple[AnyArray, AnyArray]:
    """Return the offsets of lists [begin, end), and the new ids of their nodes."""
    indptr = open_manifest(params["graph"]).read(f"{params['folder']}/indptr", begin, end + 1)
    return indptr, open_manifest(params["order"]).read(f"nodes/{params['destination']}/old_to_new", begin, end)


def _rename(entries: AnyArray, params: Any, threads: int) -> None:
    """Give sources their new ids, as these stream past: all that is held of them is a block."""
    order, count = open_manifest(params["order"]), params["num_src"]
    step = BLOCK_BYTES // id_bytes(count)
    for begin in range(0, count, step):
        part = order.read(f"nodes/{params['source']}/old_to_new", begin, min(count, begin + step))
        native.rename_sources(entries.view(np.uint8), part, begin, count, threads)
