"""Accesses counted in sampled epochs, in tasks, each of which has the whole adjacency.

Where there is no room for it, `tiering.scores.tasks.hops` counts.

``sample``  the batches of a part of an epoch: how often each node was read, as pairs (node, count), by range.
``sum``     the counts of a range of nodes over all tasks, per epoch: a mean, and if asked for sums of both powers.

Counts are whole numbers: their sums do not depend on who counted what. Memory: ``sample`` takes what the method takes
in one process (`tiering.scores.presample.presample_need`), with a thread for each of the task's; ``sum`` 40 bytes for
each node of a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import equal_bounds
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import Step, TaskContext
from tiering.sampling import AccessCounts, EpochPlan, Sampler, SamplingOptions, make_sampler
from tiering.sampling.plan import batches
from tiering.scores.plan import ScorePlan
from tiering.scores.presample import AccessSums

_HERE = "tiering.scores.tasks.presample"
SUM_BYTES = 40
"""Bytes of a task of ``sum`` for each node of its range."""


@dataclass(frozen=True)
class CountedColumn:
    """Counted accesses: reads of the features of a type, or of the lists of a relation."""

    file: str
    """Name of the column in the scores."""
    size: int


@dataclass(frozen=True)
class EpochCounts:
    """Epochs that were counted: the step ``sum``, what each of its tasks is about, and its records."""

    step: Step
    columns: list[CountedColumn]
    begins: list[int]
    """The first task of each column, and the end."""
    records: list[TaskRecord]

    def parts(self, column: int, part: int = 0) -> PartitionRange:
        """Return a column, front to back: 0 the means, 1 sums and sums of squares."""
        return PartitionRange(self.step.name, self.begins[column], self.begins[column + 1], part)


def columns_of(graph: SizedGraph) -> list[CountedColumn]:
    """Return the columns of counts, in the order of the scores' files."""
    features = [CountedColumn(f"nodes/{name}/feature", graph.num_nodes(name)) for name in graph.node_types]
    lists = [
        CountedColumn(f"{relation_folder(relation)}/adjacency", graph.num_nodes(relation[2]))
        for relation in graph.relations
    ]
    return features + lists


def summing(params: dict[str, Any]) -> Step:
    """Return the step ``sum`` of the counts that the step ``sample`` of these params leaves."""
    largest = max((-(-size // p) for size, p in zip(params["sizes"], params["parts"], strict=True) if p), default=0)
    params = {**params, "from": "sample"}
    return Step("sum", f"{_HERE}:sums", sum(params["parts"]), params, ("sample",), largest * SUM_BYTES)


def count_epochs(job: Job, graph: SizedGraph, plan: ScorePlan) -> EpochCounts:
    """Have the epochs of a score counted."""
    job.expect(2)
    request, options, sampling = plan.request, plan.request.options, plan.request.sampled
    train = job.broadcast("train", {"ids": np.concatenate(list(request.train.values()))})
    runs = plan.runs(job.grid)
    columns = columns_of(graph)
    parts = [job.grid.parts(column.size * SUM_BYTES) if column.size else 0 for column in columns]
    params: dict[str, Any] = {
        "graph": str(graph.path), "sampling": sampling.to_json(), "runs": runs, "epochs": options.epochs,
        "train": {name: int(ids.size) for name, ids in request.train.items()}, "given": train.name,
        "sizes": [column.size for column in columns], "parts": parts,
    }  # fmt: skip
    sample = Step("sample", f"{_HERE}:sample", len(runs), params, (train.name,), plan.need.minimum)
    job.run(sample)
    summed = summing(params)
    records = job.run(summed)
    job.release(sample)
    return EpochCounts(summed, columns, [0, *np.cumsum(parts).tolist()], records)


def write_presample(
    job: Job, writer: ArtifactWriter, graph: SizedGraph, plan: ScorePlan, counted: EpochCounts
) -> dict[str, Any]:
    """Have the columns of ``presample`` put in their place; what the method says of itself."""
    files = [
        JoinedFile(column.file, "float64", (column.size,), [counted.parts(number)])
        for number, column in enumerate(counted.columns)
    ]
    make_files(job, writer, join_step("files", writer.path, files, counted.step.memory))
    of_features = counted.records[: counted.begins[len(graph.node_types)]]
    accesses = sum(record["facts"]["accesses"] for record in of_features)
    batches_run = plan.request.options.epochs * -(-plan.request.train_size // plan.request.sampled.batch_size)
    return {"batches": batches_run, "accesses": accesses}


def read_access_sums(job: Job, graph: Graph, plan: ScorePlan, counted: EpochCounts, *, squares: bool) -> AccessSums:
    """Return the counts of all epochs in the driver's memory."""
    total, squared = read_sums(job, graph, counted)
    epochs = plan.request.options.epochs
    per_epoch = -(-plan.request.train_size // plan.request.sampled.batch_size)
    return AccessSums(total, squared if squares else None, epochs, epochs * per_epoch)


def read_sums(job: Job, graph: Graph, counted: EpochCounts) -> tuple[AccessCounts, AccessCounts]:
    """Return counts over all epochs, and sums of the squares of those of each, in the driver's memory."""
    arrays: list[dict[str, npt.NDArray[np.int64]]] = []
    for number, column in enumerate(counted.columns):
        parts = counted.parts(number)
        read = [job.read(parts.step, task, 1) for task in range(parts.first, parts.end)]
        none = np.zeros(0, np.int64)
        arrays.append({key: np.concatenate([none, *(part[key] for part in read)]) for key in ("total", "squares")})
        if not read:
            arrays[-1] = {key: np.zeros(column.size, np.int64) for key in ("total", "squares")}

    def of(key: str) -> AccessCounts:
        types, values = list(graph.node_types), [one[key] for one in arrays]
        return AccessCounts(
            dict(zip(types, values, strict=False)), dict(zip(graph.relations, values[len(types) :], strict=True))
        )

    return of("total"), of("squares")


def sample(context: TaskContext) -> None:
    """Count what some batches of an epoch read: of each range of each column, the nodes that were and how often."""
    _, first, last = context.params["runs"][context.index]
    with sampled_epoch(context) as (graph, sampler, plan):
        counts = AccessCounts.zeros(graph)
        sampler.count_accesses(plan, counts, first=first, last=last, threads=context.threads)
    add_counts(context, counts)


@contextmanager
def sampled_epoch(context: TaskContext) -> Iterator[tuple[Graph, Sampler, EpochPlan]]:
    """Open the graph, verified where it is read, its sampler, and the epoch's batches, some of which the task takes."""
    params = context.params
    ids, begin = context.read(params["given"], 0)["ids"], 0
    train = {}
    for name, size in params["train"].items():
        train[name], begin = ids[begin : begin + size], begin + size
    options = SamplingOptions(**params["sampling"])
    graph = Graph.open(params["graph"])
    graph.verify_reads()
    plan = batches(train, options.batch_size, params["runs"][context.index][0], seed=options.seed)
    yield graph, make_sampler(graph, options), plan
    graph.finish_reads()


def add_counts(context: TaskContext, counts: AccessCounts) -> None:
    """Leave counts, each range of each column as a part."""
    columns = (*counts.features.values(), *counts.adjacency.values())
    for column, parts in zip(columns, context.params["parts"], strict=True):
        nodes = np.flatnonzero(column)
        bounds = equal_bounds(column.size, parts) if parts else []
        ends = np.searchsorted(nodes, bounds)
        for part in range(parts):
            own = nodes[ends[part] : ends[part + 1]]
            context.write(node=(own - bounds[part]).astype(np.uint32), count=column[own])


def sums(context: TaskContext) -> dict[str, int]:
    """Sum the counts of a range of a column by `add_epochs`."""
    return add_epochs(context, _size(context), _by_epoch(context), context.params["epochs"])


def add_epochs(context: TaskContext, size: int, counts: Iterator[npt.NDArray[np.int64]], epochs: int) -> dict[str, int]:
    """Leave the mean over the epochs of the counts of `size` nodes, their sum and sum of squares; the sum of all."""
    total, squares = (np.zeros(size, np.int64) for _ in range(2))
    for epoch in counts:
        total += epoch
        epoch *= epoch
        squares += epoch
    context.write(mean=total / epochs)
    context.write(total=total, squares=squares)
    return {"accesses": int(total.sum())}


def _size(context: TaskContext) -> int:
    """Return the nodes of the range of a task of ``sum``."""
    index = context.index
    for size, parts in zip(context.params["sizes"], context.params["parts"], strict=True):
        if index < parts:
            bounds = equal_bounds(size, parts)
            return bounds[index + 1] - bounds[index]
        index -= parts
    return 0


def _by_epoch(context: TaskContext) -> Iterator[npt.NDArray[np.int64]]:
    """Yield counts of the range in one epoch after the other."""
    params, size = context.params, _size(context)
    per_epoch = len(params["runs"]) // params["epochs"]
    for epoch in range(params["epochs"]):
        counts = np.zeros(size, np.int64)
        for task in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            part = context.read(params["from"], task, context.index)
            counts[part["node"]] += part["count"]
        yield counts
