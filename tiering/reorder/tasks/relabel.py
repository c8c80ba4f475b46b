"""The lists of a relation under new ids, by tasks: a shuffle of its own entries by the new id of their destination.

``histogram``  edges of the lists of a range of nodes, by runs of old ids and by buckets of new ones.

Then the steps of `tiering.run.shuffle`, whose chunks are ranges of old ids with about the same number of edges; a list
keeps its order. A chunk streams the new ids of the sources past its entries, a block at a time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph, value_bytes
from tiering.run.grid import balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.shuffle import EdgeChunk, ListShuffle, bucket_shift, edge_bytes, write_lists
from tiering.run.step import Step, TaskContext

AnyArray = npt.NDArray[Any]
_HERE = "tiering.reorder.tasks.relabel"
_COLUMN_BYTES = 32
"""Memory of a task per node of a chunk: offset, degree, new id."""


def write_relation(job: Job, writer: ArtifactWriter, graph: Graph, relation: Relation, order: str) -> None:
    """Write the files of a relation of a reordered graph by tasks; `order` is the directory of the finished order."""
    job.expect(4)
    name, (source, _, destination) = f"relation-{graph.relations.index(relation)}", relation
    num_src, num_dst, data = graph.num_nodes(source), graph.num_nodes(destination), graph.edge_data(relation)
    folder, parts = relation_folder(relation), job.grid.parts(task_bytes(graph, relation))
    params = {
        "graph": str(graph.path), "order": order, "folder": folder, "source": source, "destination": destination,
        "num_src": num_src, "num_dst": num_dst, "values": sorted(data),
    }  # fmt: skip
    bounds, largest, counts = _histogram(job, name, params, parts, _edge_bytes(graph, relation))
    shuffle = ListShuffle(
        name, f"{_HERE}:read_chunk", parts, graph.num_edges(relation), num_src, num_dst,
        {key: (data[key].dtype.name, tuple(data[key].shape[1:])) for key in sorted(data)},
        {**params, "bounds": bounds}, (), largest + 3 * BLOCK_BYTES,
    )  # fmt: skip
    write_lists(job, writer, folder, shuffle, counts)


def task_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task that made the whole relation."""
    columns = graph.num_nodes(relation[2]) * _COLUMN_BYTES
    return graph.num_edges(relation) * _edge_bytes(graph, relation) + columns


def _edge_bytes(graph: SizedGraph, relation: Relation) -> int:
    """Return the memory of a task per edge."""
    source, _, destination = relation
    if isinstance(graph, Graph):
        items = sum(map(value_bytes, graph.edge_data(relation).values()))
    else:
        items = sum(next(edges for edges in graph.edges if edges.relation == relation).values.values())
    read = id_bytes(graph.num_nodes(source)) + id_bytes(graph.num_nodes(destination))
    return edge_bytes(read, graph.num_nodes(source), items)


def _histogram(
    job: Job, name: str, params: dict[str, Any], parts: int, per_edge: int
) -> tuple[list[int], int, npt.NDArray[np.int64]]:
    """Return the bounds of the chunks, bytes of the largest, and the edges of each bucket of new ids."""
    num_dst, shift = params["num_dst"], run_shift(params["num_dst"])
    step = Step(
        f"{name}.histogram", f"{_HERE}:histogram", parts, {**params, "bounds": equal_bounds(num_dst, parts)},
        memory=-(-num_dst // parts) * _COLUMN_BYTES + 2 * BLOCK_BYTES,
    )  # fmt: skip
    runs = np.zeros(((num_dst - 1) >> shift) + 1, np.int64)
    counts = np.zeros(((num_dst - 1) >> bucket_shift(num_dst)) + 1, np.int64)
    for task in range(len(job.run(step))):
        runs += job.read(step.name, task)["edges"]
        counts += job.read(step.name, task, 1)["edges"]
    # A column counts as much as its bytes: lists may be empty.
    nodes = np.minimum(1 << shift, num_dst - (np.arange(runs.size) << shift))
    weights = runs * per_edge + nodes * _COLUMN_BYTES
    cuts = balanced_bounds(weights, parts)
    largest = max(int(weights[begin:end].sum()) for begin, end in pairwise(cuts))
    return [min(run << shift, num_dst) for run in cuts], largest, counts


def histogram(context: TaskContext) -> None:
    """Count the edges of the lists of a range of nodes, by run of old ids, and by bucket of new ids."""
    params = context.params
    begin, end = params["bounds"][context.index : context.index + 2]
    num_dst, indptr, new = params["num_dst"], *_read_columns(params, begin, end)
    native.check_indptr(indptr - indptr[0], int(indptr[-1] - indptr[0]), context.threads)
    degrees = np.diff(indptr)
    for ids, shift in ((np.arange(begin, end), run_shift(num_dst)), (new, bucket_shift(num_dst))):
        sums = np.zeros(((num_dst - 1) >> shift) + 1, np.int64)
        np.add.at(sums, ids >> shift, degrees)
        context.write(edges=sums)


def _read_columns(params: Any, begin: int, end: int) -> tuple[AnyArray, AnyArray]:
    """Return the offsets of lists [begin, end), and the new ids of their nodes."""
    indptr = open_manifest(params["graph"]).read(f"{params['folder']}/indptr", begin, end + 1)
    return indptr, open_manifest(params["order"]).read(f"nodes/{params['destination']}/old_to_new", begin, end)


def read_chunk(context: TaskContext) -> EdgeChunk:
    """Return the edges of the lists of a chunk under new ids."""
    params = context.params
    indptr, new = _read_columns(params, *params["bounds"][context.index : context.index + 2])
    first, last = int(indptr[0]), int(indptr[-1])
    graph, folder = open_manifest(params["graph"]), params["folder"]
    sources = graph.read(f"{folder}/indices", first, last)
    native.check_csc(indptr - first, sources, params["num_src"], context.threads)
    order, step = open_manifest(params["order"]), BLOCK_BYTES // id_bytes(params["num_src"])
    for begin in range(0, params["num_src"], step):
        part = order.read(f"nodes/{params['source']}/old_to_new", begin, min(params["num_src"], begin + step))
        native.rename_sources(sources.view(np.uint8), part, begin, params["num_src"], context.threads)
    values: list[AnyArray | None] = [graph.read(f"{folder}/{key}", first, last) for key in params["values"]]
    return EdgeChunk(first, sources, np.repeat(new, np.diff(indptr)), values)
