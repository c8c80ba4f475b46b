"""Vertex inclusion probability in tasks: the recursion is that of ``inclusion.cpp``, the bytes those of one process.

``start``    the probability of each node to be a seed.
``draw-h``   the lists of a range draw in hop h: their output, and their state.
``find-h``   the probability that a batch has found each node of a range by hop h, and in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext
from tiering.sampling import resolve_fanouts
from tiering.scores.plan import ScorePlan
from tiering.scores.request import ScoreColumns
from tiering.scores.tasks.pagerank import join_columns
from tiering.scores.tasks.sweeps import (
    Ranges,
    Sweeps,
    chosen_values,
    degrees_of,
    emit_values,
    give_chosen,
    make_blocks,
    sum_out_edges,
)

_HERE = "tiering.scores.tasks.vip"


@dataclass(frozen=True)
class InclusionColumns:
    """The columns of ``vip``, as the last hop wrote them."""

    sweeps: Sweeps
    found: Step
    drawn: Step | None
    """``None`` without hops."""
    share: float
    """Probability of a training node to be in a batch: what is found is divided by it, for an epoch."""


def write_inclusion(job: Job, writer: ArtifactWriter, graph: SizedGraph, plan: ScorePlan) -> dict[str, Any]:
    """Have the columns of ``vip`` made and put in their place."""
    job.expect(6 + 2 * len(plan.request.sampled.fanouts))
    made = include(job, graph, plan)
    make_files(job, writer, join_columns("nodes.files", writer, graph, made.found, made.sweeps.ranges, made.share))
    make_files(job, writer, _join_reads(writer, graph, made.drawn, made.sweeps, made.share))
    return {}


def include(job: Job, graph: SizedGraph, plan: ScorePlan) -> InclusionColumns:
    """Have all hops made."""
    sampling = plan.request.sampled
    share = min(1.0, sampling.batch_size / plan.request.train_size)
    sweeps = make_blocks(job, graph)
    fanouts = resolve_fanouts(graph.relations, sampling.fanouts)
    params = {
        **sweeps.params, "chosen": give_chosen(job, graph, sweeps, plan.request.train), "seed": share,
        "only_new": sampling.frontier == "new", "replacement": sampling.sampler == "replacement",
    }  # fmt: skip
    tasks, lists = len(sweeps.ranges.node_tasks), len(sweeps.ranges.list_tasks)
    found = Step("start", f"{_HERE}:start", tasks, params, tuple(params["chosen"]), sweeps.node_memory)
    job.run(found)
    drawn: Step | None = None
    before: list[Step] = []
    for hop, numbers in enumerate(fanouts, 1):
        active = [any(earlier[r] for earlier in fanouts[:hop]) for r in range(len(graph.relations))]
        of = {**params, "found": found.name, "drawn": drawn and drawn.name, "fanouts": list(numbers), "active": active}
        reads = (found.name, *params["chosen"], *([drawn.name] if drawn else []))
        memory = 2 * sweeps.list_memory  # of a list: its output, and its state, as it was and as it is
        drawn = Step(f"draw-{hop}", f"{_HERE}:draw", lists, of, reads, memory)
        job.run(drawn)
        of, reads = {**of, "drawn": drawn.name}, (*reads, drawn.name, params["bins"], params["blocks"])
        found = Step(f"find-{hop}", f"{_HERE}:find", tasks, of, reads, sweeps.node_memory)
        job.run(found)
        job.release(*before)
        before = [drawn, found]
    return InclusionColumns(sweeps, found, drawn, share)


def read_inclusion(job: Job, graph: SizedGraph, plan: ScorePlan) -> ScoreColumns:
    """Return the columns of ``vip`` in the driver's memory."""
    made = include(job, graph, plan)
    ranges, none = made.sweeps.ranges, np.zeros(0)
    nodes = [job.read(made.found.name, task)["found"] for task in range(len(ranges.node_tasks))]
    lists = [
        job.read(made.drawn.name, k, 3)["reads"] if made.drawn else np.zeros(ranges.lists(k)[2] - ranges.lists(k)[1])
        for k in range(len(ranges.list_tasks))
    ]
    feature = {
        name: np.concatenate([none, *(v for v, (t, _) in zip(nodes, ranges.node_tasks, strict=True) if t == number)])
        for number, name in enumerate(graph.node_types)
    }
    adjacency = {
        relation: np.concatenate([none, *(v for v, (r, _) in zip(lists, ranges.list_tasks, strict=True) if r == n)])
        for n, relation in enumerate(graph.relations)
    }
    for values in (*feature.values(), *adjacency.values()):
        values /= made.share
    return ScoreColumns(feature, adjacency)


def _join_reads(writer: ArtifactWriter, graph: SizedGraph, drawn: Step | None, sweeps: Sweeps, share: float) -> Step:
    """Return a step that writes the expected reads of lists."""
    files, task = [], 0
    for number, relation in enumerate(graph.relations):
        ranges, count = len(sweeps.params["lists"][number]) - 1, graph.num_nodes(relation[2])
        parts = [PartitionRange(drawn.name, task, task + ranges, 3)] if drawn is not None and ranges else []
        task += ranges
        files.append(JoinedFile(f"{relation_folder(relation)}/adjacency", "float64", (count,), parts, divided_by=share))
    return join_step("lists.files", writer.path, files, sweeps.list_memory)


def start(context: TaskContext) -> None:
    """Write the probability of each node to be a seed."""
    seeds = chosen_values(context, context.params["seed"], 0.0)
    context.write(found=seeds, fresh=seeds)


def draw(context: TaskContext) -> None:
    """Let the lists of a range draw: their output, drawn and waiting, reads so far."""
    params, ranges = context.params, Ranges(context.params)
    relation, begin, end = ranges.lists(context.index)
    fanout = params["fanouts"][ranges.list_tasks[context.index][0]]
    nodes = ranges.read_nodes(context, params["found"], relation["dst"], begin, end)
    drawn, waiting, reads = (np.zeros(end - begin) for _ in range(3))
    if params["drawn"]:
        state = context.read(params["drawn"], context.index, 2)
        drawn, waiting = (state[name].copy() for name in ("drawn", "waiting"))
        reads = np.ascontiguousarray(context.read(params["drawn"], context.index, 3)["reads"])
    if fanout != 0:
        reads = reads + nodes["fresh" if params["only_new"] else "found"]
    logs, degrees = np.zeros(end - begin), degrees_of(context, relation, begin, end)
    native.draw_lists(
        np.ascontiguousarray(nodes["fresh"]), degrees, drawn,
        None if params["only_new"] else waiting, fanout, params["replacement"], logs,
    )  # fmt: skip
    emit_values(context, logs, degrees, relation)
    context.write(drawn=drawn, waiting=waiting)
    context.write(reads=reads)


def find(context: TaskContext) -> None:
    """Write the probability that each node of a range is found by this hop, and that it is found in it."""
    params = context.params
    sums = sum_out_edges(context, params["drawn"], params["active"])
    before = np.ascontiguousarray(context.read(params["found"], context.index)["found"])
    found = before.copy()
    native.find_nodes(chosen_values(context, params["seed"], 0.0), np.asarray(sums), found)
    context.write(found=found, fresh=found - before)
