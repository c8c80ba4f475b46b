"""Out-degrees, in tasks.

``cut``  the sources of a range of entries of a relation by range of nodes.
``sum``  how often each node of a range is there, over all relations.

Memory: `ENTRY_BYTES` for each entry of a range, 16 for each node of one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import equal_bounds
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

_HERE = "tiering.scores.tasks.degree"
ENTRY_BYTES = 32


def write_degrees(job: Job, writer: ArtifactWriter, graph: SizedGraph) -> dict[str, Any]:
    """Have the columns of ``degree`` made and put in their place."""
    job.expect(2 * len(graph.node_types) + 1)
    files, memory = [], 0
    for number, node_type in enumerate(graph.node_types):
        count = graph.num_nodes(node_type)
        ranges = job.grid.parts(16 * count) if count else 0
        pieces: list[tuple[str, int, int]] = []
        for relation in graph.relations:
            edges = graph.num_edges(relation)
            if relation[0] == node_type and edges:
                cuts = equal_bounds(edges, job.grid.parts(edges * ENTRY_BYTES))
                pieces += [(relation_folder(relation), begin, end) for begin, end in pairwise(cuts)]
        params = {"graph": str(graph.path), "num_nodes": count, "ranges": ranges, "pieces": pieces}
        most = max((end - begin for _, begin, end in pieces), default=0) * ENTRY_BYTES + 2 * BLOCK_BYTES
        cut = Step(f"type-{number}.cut", f"{_HERE}:cut", len(pieces), params, memory=most)
        params = {**params, "from": cut.name}
        summed = Step(f"type-{number}.sum", f"{_HERE}:sums", ranges, params, (cut.name,), most)
        job.run(cut)
        job.run(summed)
        job.release(cut)
        memory = max(memory, 8 * -(-count // max(1, ranges)))
        files.append(
            JoinedFile(f"nodes/{node_type}/feature", "float64", (count,), [PartitionRange(summed.name, 0, ranges)])
        )
    make_files(job, writer, join_step("files", writer.path, files, memory))
    return {}


def cut(context: TaskContext) -> None:
    """Emit the sources of some entries by range, counted from its begin."""
    params = context.params
    folder, begin, end = params["pieces"][context.index]
    sources = open_manifest(params["graph"]).read(f"{folder}/indices", begin, end)
    bounds = np.array(equal_bounds(params["num_nodes"], params["ranges"]), np.int64)
    order, counts = native.partition(sources, bounds, context.threads)
    local = sources[order] - np.repeat(bounds[:-1], counts).astype(sources.dtype)
    context.write_all({"source": local.astype(np.uint32, copy=False)}, np.cumsum(counts))


def sums(context: TaskContext) -> None:
    """Write the out-degrees of a range of nodes, as float64."""
    params = context.params
    bounds = equal_bounds(params["num_nodes"], params["ranges"])
    size = bounds[context.index + 1] - bounds[context.index]
    counts = np.zeros(size, np.int64)
    for task in range(len(params["pieces"])):
        counts += np.bincount(context.read(params["from"], task, context.index)["source"], minlength=size)
    context.write(degree=counts.astype(np.float64))
