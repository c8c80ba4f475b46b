"""Out-degree: a node that stands in many neighbour lists is sampled often."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Int64Array
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext
from tiering.scores.blocks import range_bounds
from tiering.scores.columns import column_sizes, cut_columns, join_columns
from tiering.scores.counts import in_place
from tiering.scores.request import HUGE_PAGE, SLACK, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.units import format_count

COUNTED_EDGES = 1 << 25  # edges whose out-degrees are counted together
ENTRY_BYTES, NODE_BYTES = 32, 16  # bytes of a task for each entry and for each node of its range
_HERE = "tiering.scores.degree"


def degree(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Count how often each node stands in `indices`, summed over relations; duplicates count. One pass."""
    counts: dict[str, Int64Array] = {}
    for relation in graph.relations:
        node_type, (_, indices) = relation[0], graph.csc(relation)
        degrees = native.out_degrees(indices, graph.num_nodes(node_type), request.threads)
        if node_type in counts:
            counts[node_type] += degrees
        else:
            counts[node_type] = degrees
    none = {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types if t not in counts}
    return ScoreColumns({t: in_place((counts | none)[t], 1) for t in graph.node_types})


def degree_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N, 8 more for the largest type if it is the source of several relations, 4 for 2^25 edges."""
    sources = [relation[0] for relation in graph.relations]
    again = max((graph.num_nodes(source) for source in sources if sources.count(source) > 1), default=0)
    batch = 4 * min(max(map(graph.num_edges, graph.relations), default=0), COUNTED_EDGES)
    need = 8 * (graph.num_nodes() + again) + batch + 256 * 160 * request.threads + SLACK + 2 * HUGE_PAGE
    return MemoryNeed(need, need, f"degree: 8 bytes for each of {format_count(graph.num_nodes())} nodes and counters")


def _run_tasks(job: Job, writer: ArtifactWriter, graph: Graph, request: ScoreRequest) -> dict[str, Any]:
    """Cut the sources of ranges of entries by range of nodes (``cut``), then count those of each range (``sum``)."""
    job.expect(3)
    features, types = column_sizes(graph)[0], list(graph.node_types)
    ranges = cut_columns(features.values(), NODE_BYTES, job.grid)
    pieces = cut_columns(map(graph.num_edges, graph.relations), ENTRY_BYTES, job.grid)
    relations = [(f"{relation_folder(r)}/indices", types.index(r[0])) for r in graph.relations]
    params = {"graph": str(graph.path), "relations": relations, "ranges": ranges, "pieces": pieces}
    memory = max((end - begin for _, begin, end in pieces), default=0) * ENTRY_BYTES + 2 * BLOCK_BYTES
    cut = Step("cut", f"{_HERE}:cut", len(pieces), params, memory=memory)
    job.run(cut)
    job.run(Step("sum", f"{_HERE}:sums", len(ranges), params, ("cut",), memory))
    job.release(cut)
    join_columns(job, writer, features, "sum", ranges)
    return {}


def cut(context: TaskContext) -> None:
    """Emit the sources of some entries by range, counted from its begin."""
    params = context.params
    relation, begin, end = params["pieces"][context.index]
    file, number = params["relations"][relation]
    sources = open_manifest(params["graph"]).read(file, begin, end)
    bounds = np.array(range_bounds(params["ranges"], number), np.int64)
    order, counts = native.partition(sources, bounds, context.threads)
    local = sources[order] - np.repeat(bounds[:-1], counts).astype(sources.dtype)
    context.write_all({"source": local.astype(np.uint32, copy=False)}, np.cumsum(counts))


def sums(context: TaskContext) -> None:
    """Write the out-degrees of a range of nodes, as float64."""
    params = context.params
    number, begin, end = params["ranges"][context.index]
    part, counts = range_bounds(params["ranges"], number).index(begin), np.zeros(end - begin, np.int64)
    for task, (relation, _, _) in enumerate(params["pieces"]):
        if params["relations"][relation][1] == number:
            counts += np.bincount(context.read("cut", task, part)["source"], minlength=counts.size)
    context.write(degree=counts.astype(np.float64))


DEGREE = Method("out-degree.", degree, degree_need, tasks=_run_tasks)
