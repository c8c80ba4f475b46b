"""Columns of a score that tasks make; counts of accesses and their sums over epochs, whole numbers whoever counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.files import JoinedFile, PartitionRange, join_step, make_files
from tiering.run.grid import Int64Array
from tiering.run.job import Job
from tiering.run.pieces import TaskRecord
from tiering.run.step import Step, TaskContext
from tiering.sampling import AccessCounts
from tiering.scores.request import Float64Array, ScoreRequest, TrainSet

_HERE = "tiering.scores.counts"
CHUNK = 1 << 20  # counts converted together
SUM_BYTES = 40  # bytes of a task of ``sum`` for each node of its range
Range = Sequence[int]
"""Number of a column, type or relation; the first of its nodes in a task, and the one behind the last."""


def column_sizes(graph: SizedGraph) -> tuple[dict[str, int], dict[str, int]]:
    """Return the nodes of the columns of features and of adjacency lists, by the files of the artifact."""
    return (
        {f"nodes/{node_type}/feature": graph.num_nodes(node_type) for node_type in graph.node_types},
        {f"{relation_folder(relation)}/adjacency": graph.num_nodes(relation[2]) for relation in graph.relations},
    )


def join_columns(
    job: Job, writer: ArtifactWriter, columns: dict[str, int], step: str, ranges: Sequence[Range], *,
    places: Sequence[tuple[int, int]] | None = None, divisor: float | None = None, name: str = "files",
) -> None:  # fmt: skip
    """Write columns from the tasks of a step: one for each of `ranges`, front to back.

    `places` of the columns: their numbers in `ranges`, and their partitions; by default in order, and the first.
    """
    files = []
    for number, (file, size) in enumerate(columns.items()):
        own, partition = (number, 0) if places is None else places[number]
        tasks = [task for task, (column, _, _) in enumerate(ranges) if column == own]
        parts = [PartitionRange(step, tasks[0], tasks[-1] + 1, partition)] if tasks else []
        rows = [end - begin for column, begin, end in ranges if column == own]
        files.append(JoinedFile(file, "float64", (size,), parts, rows, divided_by=divisor))
    make_files(job, writer, join_step(name, writer.path, files))


@dataclass(frozen=True)
class AccessSums:
    """Sums over epochs of the counts of one epoch and, if requested, of their squares."""

    total: AccessCounts
    squares: AccessCounts | None

    @property
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return sum(array.nbytes for counts in (self.total, self.squares) if counts for array in count_arrays(counts))


@dataclass(frozen=True)
class TaskCounts:
    """Epochs counted by tasks of the step ``sum``: partition 0 has sums, 1 sums of squares, if requested."""

    ranges: Sequence[Range]  # range of each task; columns are those of features, then those of adjacency lists
    records: Sequence[TaskRecord]


def reached(request: ScoreRequest, accesses: int) -> dict[str, Any]:
    """Return the record of a method that counts: batches and accesses to features, over all epochs."""
    return {"batches": request.options.epochs * request.epoch_batches, "accesses": accesses}


def count_arrays(counts: AccessCounts) -> Iterator[Int64Array]:
    """Yield the counts of features, then the counts of adjacency lists."""
    yield from counts.features.values()
    yield from counts.adjacency.values()


def in_place(counts: Int64Array, epochs: int) -> Float64Array:
    """Return counts per epoch, float64, in the memory of `counts`, which are gone then."""
    per_epoch = counts.view(np.float64)
    for begin in range(0, counts.size, CHUNK):
        per_epoch[begin : begin + CHUNK] = counts[begin : begin + CHUNK] / epochs
    return per_epoch


def broadcast_train(job: Job, train: TrainSet, seed_time: Mapping[str, Any] | None = None) -> dict[str, int]:
    """Give tasks the training nodes and their times; return their number by type, the parameter ``train`` of tasks."""
    times = {"times": np.concatenate([seed_time[t] for t in train])} if seed_time else {}
    job.broadcast("train", {"ids": np.concatenate(list(train.values())), **times})
    return {name: int(ids.size) for name, ids in train.items()}


def read_train(context: TaskContext, key: str = "ids") -> TrainSet:
    """Return the training nodes by type, or their ``times``."""
    sizes = context.params["train"]
    ids = np.split(context.read("train", 0)[key], np.cumsum(list(sizes.values()))[:-1])
    return dict(zip(sizes, ids, strict=True))


def write_counts(context: TaskContext, counts: Int64Array) -> None:
    """Write the counts of a range of nodes that are not 0."""
    nodes = np.flatnonzero(counts != 0)  # of a mask: several times as fast
    context.write(node=nodes.astype(np.uint32), count=counts[nodes])


def sum_counts(
    job: Job, steps: Mapping[str, Sequence[int]], ranges: Sequence[Range], epochs: int, each: int, squares: bool,
    tasks: Sequence[Sequence[int]] | None = None, partition: int | None = None,
) -> TaskCounts:  # fmt: skip
    """Sum the counts that tasks wrote by `write_counts`, for each range; a step has `each` tasks for an epoch.

    `steps`: how often the counts of a step count, by column. `tasks` of an epoch, by default all, have the range in
    `partition`, by default its number.
    """
    largest = max((end - begin for _, begin, end in ranges), default=0)
    params = {
        "steps": dict(steps), "ranges": ranges, "epochs": epochs, "each": each, "squares": squares, "tasks": tasks,
        "partition": partition,
    }  # fmt: skip
    step = Step("sum", f"{_HERE}:sums", len(ranges), params, tuple(steps), largest * SUM_BYTES)
    return TaskCounts(ranges, job.run(step))


def sums(context: TaskContext) -> dict[str, int]:
    """Write the sum of the counts of epochs and the sum of their squares; return the sum over all nodes."""
    params, index = context.params, context.index
    column, begin, end = params["ranges"][index]
    own = range(params["each"]) if params["tasks"] is None else params["tasks"][index]
    partition = index if params["partition"] is None else params["partition"]
    total, squares = (np.zeros(end - begin, np.int64) for _ in range(2))
    for epoch in range(params["epochs"]):
        counts = np.zeros(end - begin, np.int64)
        for step, times in params["steps"].items():
            for task in own if times[column] else ():
                part = context.read(step, epoch * params["each"] + task, partition)
                counts[part["node"]] += times[column] * part["count"]
        total += counts
        if params["squares"]:
            counts *= counts
            squares += counts
    context.write(total=total)
    if params["squares"]:
        context.write(squares=squares)
    return {"accesses": int(total.sum())}


def read_sums(job: Job, graph: Graph, counted: TaskCounts, squares: bool) -> AccessSums:
    """Return the sums of tasks in the driver's memory."""

    def read(key: str, partition: int) -> AccessCounts:
        counts = AccessCounts.zeros(graph)
        columns = list(count_arrays(counts))
        for task, (column, begin, end) in enumerate(counted.ranges):
            columns[column][begin:end] = job.read("sum", task, partition)[key]
        return counts

    return AccessSums(read("total", 0), read("squares", 1) if squares else None)
