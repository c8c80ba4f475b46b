"""Reverse PageRank in tasks: the formula is that of `tiering.scores.pagerank`, the bytes are those of one process.

``start``            the scores before the first sweep.
``edge-values-k``    what each list passes along in sweep k: its node's score by its length.
``sweep-k``          the scores of a range of nodes after it, and by how much those of each bin changed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext
from tiering.scores.pagerank import MAX_SWEEPS
from tiering.scores.plan import ScorePlan
from tiering.scores.tasks.sweeps import (
    Ranges,
    bin_sums,
    chosen_values,
    degrees_of,
    emit_values,
    give_chosen,
    make_blocks,
    sum_out_edges,
)

_HERE = "tiering.scores.tasks.pagerank"


def write_ranks(job: Job, writer: ArtifactWriter, graph: SizedGraph, plan: ScorePlan) -> dict[str, Any]:
    """Have the columns of ``rpr`` or ``wrpr`` made and put in their place; what the method says of itself."""
    options, train, weighted = plan.request.options, plan.request.train, plan.name == "wrpr"
    nodes, mass = max(1, graph.num_nodes()), 1.0 - options.damping
    damping, most, tolerance = options.damping, options.sweeps, 0.0
    if not weighted:
        into = Counter(destination for _, _, destination in graph.relations)
        damping, most, tolerance = damping / max(into.values(), default=1), MAX_SWEEPS, options.tolerance
    restart = (mass / nodes, mass / nodes) if options.teleport != "train" else (mass / plan.request.train_size, 0.0)
    job.expect(5 + 2 * most)
    sweeps = make_blocks(job, graph)
    params = {
        **sweeps.params, "damping": damping, "restart": restart, "chosen": give_chosen(job, graph, sweeps, train),
        "start": (1.0 / plan.request.train_size if weighted else 0.0, 1.0 / nodes),
    }  # fmt: skip
    tasks, lists = len(sweeps.ranges.node_tasks), len(sweeps.ranges.list_tasks)
    last = Step("start", f"{_HERE}:start", tasks, params, tuple(params["chosen"]), sweeps.node_memory)
    job.run(last)
    done, residual = 0, 0.0
    changes: list[float] = []
    while done < most:
        done += 1
        reads, of = (last.name, *params["chosen"]), {**params, "scores": last.name}
        handed = Step(f"edge-values-{done}", f"{_HERE}:edge_values", lists, of, reads, sweeps.list_memory)
        job.run(handed)
        of, reads = {**of, "handed": handed.name}, (*reads, handed.name, params["bins"], params["blocks"])
        before, last = last, Step(f"sweep-{done}", f"{_HERE}:sweep", tasks, of, reads, sweeps.node_memory)
        changes = [change for record in job.run(last) for change in record["facts"]["changes"]]
        job.release(before, handed)
        residual = float(np.cumsum(changes)[-1]) if changes else 0.0
        if tolerance > 0 and residual <= tolerance:
            break
    make_files(job, writer, join_columns("files", writer, graph, last, sweeps.ranges))
    return {"sweeps": done, "residual": residual, "damping": damping}


def join_columns(
    name: str, writer: ArtifactWriter, graph: SizedGraph, step: Step, ranges: Ranges, divided_by: float | None = None
) -> Step:
    """Return a step that writes the scores of the features from tasks with nodes, part 0 of each."""
    files, first, largest = [], 0, 0
    for number, node_type in enumerate(graph.node_types):
        bounds = ranges.params["nodes"][number]
        count, largest = graph.num_nodes(node_type), max(largest, *np.diff(bounds).tolist(), 0)
        parts = [PartitionRange(step.name, first, first + len(bounds) - 1)]
        files.append(JoinedFile(f"nodes/{node_type}/feature", "float64", (count,), parts, divided_by=divided_by))
        first += len(bounds) - 1
    return join_step(name, writer.path, files, 8 * largest)


def start(context: TaskContext) -> None:
    """Write the scores of a range of nodes before the first sweep."""
    context.write(score=chosen_values(context, *context.params["start"]))


def edge_values(context: TaskContext) -> None:
    """Emit what a range of lists passes along: the node's score by the length of its list; 0 for an empty one."""
    ranges = Ranges(context.params)
    relation, begin, end = ranges.lists(context.index)
    scores = ranges.read_nodes(context, context.params["scores"], relation["dst"], begin, end)["score"]
    degrees = degrees_of(context, relation, begin, end)
    emit_values(context, np.divide(scores, degrees, out=np.zeros(end - begin), where=degrees > 0), degrees, relation)


def sweep(context: TaskContext) -> dict[str, list[float]]:
    """Write the scores of a range of nodes after a sweep; as facts, by how much those of each bin changed."""
    params, ranges = context.params, Ranges(context.params)
    node_type, _, _ = ranges.nodes(context.index)
    sums = sum_out_edges(context, params["handed"], [True] * len(ranges.relations))
    after = chosen_values(context, *params["restart"]) + params["damping"] * sums
    before = context.read(params["scores"], context.index)["score"]
    context.write(score=after)
    return {"changes": bin_sums(np.abs(after - before), params["shifts"][node_type]).tolist()}
