"""The lists of a relation under new ids, by tasks; a list moves as a whole, and keeps its order.

``cut`` sends the lists of a range of old ids to ranges of new ones, sources renamed, ``write`` makes a file, range of
new ids after range. Ranges have about the same number of edges, which ``count`` counts by runs of old and of new ids.
Memory: twice the widest array along the edges of a range, `COLUMN_BYTES` for each of its nodes, and a block of new ids
of sources or what appending to a file takes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Relation, id_bytes, storage_dtype
from tiering.artifacts.storage import AnyArray
from tiering.artifacts.writer import DirectoryWriter
from tiering.errors import FormatError
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph, value_bytes, value_rows
from tiering.reorder.adjacency import place_entries
from tiering.run.files import TaskFile, ends_of, files_step, make_files, output_window
from tiering.run.grid import balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

_HERE = "tiering.reorder.tasks.relabel"
COLUMN_BYTES = 64  # memory of a task per node of a range: offsets, new id, their order, and what is made of these


def write_relation(
    job: Job, writer: DirectoryWriter, graph: Graph, relation: Relation, order: str, *, ids: str = "old_to_new",
    into: str = "",
) -> None:  # fmt: skip
    """Write the files of a relation under new ids by tasks, below the folder `into`.

    `order` is the directory of the finished order, of which the arrays `ids` have the new id of each node.
    """
    job.expect(3)
    name, (source, _, destination) = f"relation-{graph.relations.index(relation)}", relation
    num_dst, folder, per_edge = graph.num_nodes(destination), relation_folder(relation), _edge_bytes(graph, relation)
    names = [f"{folder}/{key}" for key in ("indptr", "indices", *sorted(graph.edge_data(relation)))]
    files, parts = [graph.manifest.files[file] for file in names], job.grid.parts(task_bytes(graph, relation))
    params = {
        "graph": str(graph.path), "order": order, "folder": str(writer.path), "source": source,
        "destination": destination, "num_src": graph.num_nodes(source), "num_dst": num_dst, "parts": parts,
        "names": names, "ids": ids,
    }  # fmt: skip
    chunks = job.grid.parts(num_dst * COLUMN_BYTES)
    nodes = -(-num_dst // chunks) * COLUMN_BYTES + 2 * BLOCK_BYTES
    counted = Step(f"{name}.count", f"{_HERE}:count", chunks, {**params, "chunks": chunks}, memory=nodes)
    job.run(counted)
    tables = [[job.read(counted.name, task, part) for task in range(chunks)] for part in range(2)]
    runs = np.stack([sum(of_task["edges"] for of_task in tasks) for tasks in tables])
    if (found := int(runs[0].sum())) != graph.num_edges(relation):
        raise FormatError(
            f"{names[0]}: expected offsets of {graph.num_edges(relation)} entries, found {found}; the graph is "
            "damaged: run `tiering check --full` on it"
        )
    # A column counts as much as its bytes: lists may be empty.
    shift = run_shift(num_dst)
    columns = np.minimum(1 << shift, num_dst - (np.arange(runs.shape[1]) << shift)) * COLUMN_BYTES
    weights = runs * per_edge + columns
    cuts = [balanced_bounds(nbytes, parts) for nbytes in weights]
    largest = max(
        int(nbytes[low:high].sum()) for nbytes, cut in zip(weights, cuts, strict=True) for low, high in pairwise(cut)
    )
    old, new = ([min(run << shift, num_dst) for run in cut] for cut in cuts)
    params = {**params, "old": old, "new": new}
    cut = Step(f"{name}.cut", f"{_HERE}:cut", parts, params, memory=largest + BLOCK_BYTES)
    job.run(cut)
    edges = [int(runs[1, low:high].sum()) for low, high in pairwise(cuts[1])]
    sizes = [[8 * n for n in (*np.diff(new).tolist(), 1)]]
    sizes += [[file.bytes // file.shape[0] * n for n in edges] for file in files[1:]]
    made = [
        TaskFile(into + name, str(writer.path), file.dtype, file.shape, ends_of(of_parts))
        for name, file, of_parts in zip(names, files, sizes, strict=True)
    ]
    params = {**params, "from": cut.name, "before": [0, *ends_of(edges)]}
    make_files(job, writer, files_step(f"{name}.files", f"{_HERE}:write", made, params, [cut.name], largest))
    job.release(counted, cut)


def task_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task that made the whole relation."""
    return graph.num_edges(relation) * _edge_bytes(graph, relation) + graph.num_nodes(relation[2]) * COLUMN_BYTES


def value_sizes(graph: SizedGraph, relation: Relation) -> tuple[int, ...]:
    """Return the bytes of a value of each array along the edges of a relation."""
    if isinstance(graph, Graph):
        return tuple(value_bytes(values) for values in graph.edge_data(relation).values())
    return tuple(next(edges for edges in graph.edges if edges.relation == relation).values.values())


def _edge_bytes(graph: SizedGraph, relation: Relation) -> int:
    return 2 * max(id_bytes(graph.num_nodes(relation[0])), *value_sizes(graph, relation), 0)


def count(context: TaskContext) -> None:
    """Write the edges of a range of nodes by runs of old and of new ids."""
    params, shift = context.params, run_shift(context.params["num_dst"])
    begin, end = equal_bounds(params["num_dst"], params["chunks"])[context.index : context.index + 2]
    indptr, new = _read_columns(context, begin, end)
    native.check_indptr(indptr - indptr[0], int(indptr[-1] - indptr[0]), context.threads)
    degrees, runs = np.diff(indptr), -(-params["num_dst"] // (1 << shift))
    for ids in (np.arange(begin, end), new):  # summed as float64: exact below 2^53 edges
        context.write(edges=np.bincount(ids >> shift, degrees, runs).astype(np.int64))


def cut(context: TaskContext) -> None:
    """Write the lists of a range of old ids by range of new ones: columns with degrees, then each array's entries."""
    params, threads = context.params, context.threads
    indptr, new = _read_columns(context, *params["old"][context.index : context.index + 2])
    first, last = int(indptr[0]), int(indptr[-1])
    indptr = indptr - first
    order, counts = native.partition(new, np.array(params["new"], np.int64), threads)
    places, lists = np.empty_like(new), np.cumsum(counts)
    places[order] = np.arange(new.size, dtype=new.dtype)
    starts = native.relabel_indptr(indptr, places, threads)
    context.write_all({"column": new[order], "degree": np.diff(starts)}, lists)
    for number, file in enumerate(params["names"][1:]):
        values = context.share(open_manifest, params["graph"]).read(file, first, last)
        out, num_src = np.empty_like(values), params["num_src"] if number == 0 else None
        place_entries(values, 0, indptr, places, num_src, (0, 0, starts, value_rows(out).ravel()), threads)
        if number == 0:
            _rename(context, out)
        context.write_all({"values": out}, starts[lists])


def write(context: TaskContext) -> None:
    """Write a window of a file of the relation, range of new ids after range: offsets, entries, or values."""
    params, source, parts = context.params, context.params["from"], context.params["parts"]
    with output_window(context) as file:
        num_src = params["num_src"] if file.number == 1 else None
        for part in file.parts:
            if part == parts:  # behind the offsets of all
                file.append(np.array([params["before"][parts]]))
                continue
            columns = list(context.read_many(source, ((task, part) for task in range(parts))))
            places = np.concatenate([column["column"] for column in columns]) - params["new"][part]
            indptr = np.concatenate([[0], *(column["degree"] for column in columns)]).cumsum()
            starts = native.relabel_indptr(indptr, places, context.threads)
            if file.number == 0:
                file.append(starts[:-1] + params["before"][part])
            else:
                at, out = 0, np.empty((int(starts[-1]), *file.file.shape[1:]), storage_dtype(file.file.dtype))
                window = (0, 0, starts, value_rows(out).ravel())
                for task in range(parts):
                    values = context.read(source, task, file.number * parts + part)["values"]
                    place_entries(values, at, indptr, places, num_src, window, context.threads)
                    at += values.shape[0]
                file.append(out)


def _read_columns(context: TaskContext, begin: int, end: int) -> tuple[AnyArray, AnyArray]:
    """Return the offsets of lists [begin, end), and the new ids of their nodes."""
    params = context.params
    graph, order = (context.share(open_manifest, params[key]) for key in ("graph", "order"))
    new = order.read(f"nodes/{params['destination']}/{params['ids']}", begin, end)
    return graph.read(params["names"][0], begin, end + 1), new


def _rename(context: TaskContext, entries: AnyArray) -> None:
    """Give sources their new ids, as these stream past: all that is held of them is a block."""
    params = context.params
    order, count = context.share(open_manifest, params["order"]), params["num_src"]
    step = BLOCK_BYTES // id_bytes(count)
    for begin in range(0, count, step):
        part = order.read(f"nodes/{params['source']}/{params['ids']}", begin, min(count, begin + step))
        native.rename_sources(entries.view(np.uint8), part, begin, count, context.threads)
