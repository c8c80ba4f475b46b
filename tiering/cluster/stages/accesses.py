"""Accesses counted in sampled epochs, in tasks, each of which has the whole adjacency.

``sample``  the batches of a part of an epoch: how often each node was read, as pairs (node, count), by range.
``sum``     the counts of a range of nodes over all tasks, per epoch: a mean, and if asked for sums of both powers.

Counts are whole numbers: their sums do not depend on who counted what. Memory: ``sample`` takes what the method takes
in one process (`tiering.scores.presample.presample_need`), with a thread for each of the task's; ``sum`` 40 bytes for
each node of a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.writer import ArtifactWriter
from tiering.cluster.files import JoinedFile, Parts, join_stage, place_files
from tiering.cluster.grid import Grid, even_bounds
from tiering.cluster.manifests import Manifest
from tiering.cluster.running import Job
from tiering.cluster.tasks import Stage, TaskContext
from tiering.formats.graph import Graph, relation_folder
from tiering.sampling import AccessCounts, SamplingOptions, make_sampler
from tiering.sampling.plan import batches
from tiering.scores.plan import ScorePlan
from tiering.scores.presample import Tally

_HERE = "tiering.cluster.stages.accesses"
_TASKS = 16
"""Of an epoch: each reads the adjacency, and leaves as much as it has counted."""
_SUM_BYTES = 40


@dataclass(frozen=True)
class CountedColumn:
    """What is counted: reads of the features of a type, or of the lists of a relation."""

    file: str
    """Of the scores."""
    size: int


@dataclass(frozen=True)
class Counted:
    """Epochs that were counted: the stage ``sum``, what each of its tasks is about, and its manifests."""

    stage: Stage
    columns: list[CountedColumn]
    begins: list[int]
    """The first task of each column, and the end."""
    manifests: list[Manifest]

    def parts(self, column: int, part: int = 0) -> Parts:
        """A column, front to back: 0 the means, 1 sums and sums of squares."""
        return Parts(self.stage.name, self.begins[column], self.begins[column + 1], part)


def columns_of(graph: Graph) -> list[CountedColumn]:
    """All that is counted, in the order of the scores' files."""
    features = [CountedColumn(f"nodes/{name}/feature", graph.num_nodes(name)) for name in graph.node_types]
    lists = [
        CountedColumn(f"{relation_folder(relation)}/adjacency", graph.num_nodes(relation[2]))
        for relation in graph.relations
    ]
    return features + lists


def count_epochs(job: Job, graph: Graph, plan: ScorePlan, grid: Grid) -> Counted:
    """Have the epochs of a score counted."""
    request, options, sampling = plan.request, plan.request.options, plan.request.sampled
    train = job.give("train", {"ids": np.concatenate(list(request.train.values()))})
    per_epoch = -(-request.train_size // sampling.batch_size)
    tasks = min(per_epoch, grid.shards or _TASKS)
    cuts = even_bounds(per_epoch, tasks)
    runs = [
        [epoch, cuts[task], cuts[task + 1]]
        for epoch in range(options.first_epoch, options.first_epoch + options.epochs)
        for task in range(tasks)
    ]
    columns = columns_of(graph)
    parts = [grid.parts(column.size * _SUM_BYTES) if column.size else 0 for column in columns]
    params: dict[str, Any] = {
        "graph": str(graph.path), "sampling": sampling.to_json(), "runs": runs, "epochs": options.epochs,
        "train": {name: int(ids.size) for name, ids in request.train.items()}, "given": train.name,
        "sizes": [column.size for column in columns], "parts": parts,
    }  # fmt: skip
    sample = Stage("sample", f"{_HERE}:sample", len(runs), params, (train.name,), plan.need.minimum)
    job.run(sample)
    largest = max((-(-c.size // p) for c, p in zip(columns, parts, strict=True) if p), default=0)
    summed = Stage("sum", f"{_HERE}:sums", sum(parts), {**params, "from": "sample"}, ("sample",), largest * _SUM_BYTES)
    return Counted(summed, columns, [0, *np.cumsum(parts).tolist()], job.run(summed))


def write_presample(job: Job, writer: ArtifactWriter, graph: Graph, plan: ScorePlan, grid: Grid) -> dict[str, Any]:
    """Have the columns of ``presample`` made and put in their place; what the method says of itself."""
    counted = count_epochs(job, graph, plan, grid)
    files = [
        JoinedFile(column.file, "float64", (column.size,), [counted.parts(number)])
        for number, column in enumerate(counted.columns)
    ]
    place_files(writer, job.run(join_stage("files", writer.path, files, counted.stage.memory)))
    of_features = counted.manifests[: counted.begins[len(graph.node_types)]]
    accesses = sum(manifest["facts"]["accesses"] for manifest in of_features)
    batches_run = plan.request.options.epochs * -(-plan.request.train_size // plan.request.sampled.batch_size)
    return {"batches": batches_run, "accesses": accesses}


def read_tally(job: Job, graph: Graph, plan: ScorePlan, grid: Grid, *, squares: bool) -> Tally:
    """The counts of all epochs in the memory of who leads the job."""
    counted = count_epochs(job, graph, plan, grid)
    arrays: list[dict[str, npt.NDArray[np.int64]]] = []
    for number, column in enumerate(counted.columns):
        parts = counted.parts(number)
        read = [job.read(parts.stage, task, 1) for task in range(parts.first, parts.end)]
        none = np.zeros(0, np.int64)
        arrays.append({key: np.concatenate([none, *(part[key] for part in read)]) for key in ("total", "squares")})
        if not read:
            arrays[-1] = {key: np.zeros(column.size, np.int64) for key in ("total", "squares")}

    def of(key: str) -> AccessCounts:
        types, values = list(graph.node_types), [one[key] for one in arrays]
        return AccessCounts(
            dict(zip(types, values, strict=False)), dict(zip(graph.relations, values[len(types) :], strict=True))
        )

    epochs = plan.request.options.epochs
    per_epoch = -(-plan.request.train_size // plan.request.sampled.batch_size)
    return Tally(of("total"), of("squares") if squares else None, epochs, epochs * per_epoch)


def sample(context: TaskContext) -> None:
    """Count what some batches of an epoch read: of each range of each column, the nodes that were and how often."""
    params = context.params
    epoch, first, last = params["runs"][context.index]
    ids, begin = context.part(params["given"], 0)["ids"], 0
    train = {}
    for name, size in params["train"].items():
        train[name], begin = ids[begin : begin + size], begin + size
    options = SamplingOptions(**params["sampling"])
    with_lists = Graph.open(params["graph"])
    with_lists.verify_reads()
    plan = batches(train, options.batch_size, epoch, seed=options.seed)
    counts = AccessCounts.zeros(with_lists)
    make_sampler(with_lists, options).count_accesses(plan, counts, first=first, last=last, threads=context.threads)
    with_lists.finish_reads()
    for column, parts in zip((*counts.features.values(), *counts.adjacency.values()), params["parts"], strict=True):
        nodes = np.flatnonzero(column)
        bounds = even_bounds(column.size, parts) if parts else []
        ends = np.searchsorted(nodes, bounds)
        for part in range(parts):
            own = nodes[ends[part] : ends[part + 1]]
            context.add(node=(own - bounds[part]).astype(np.uint32), count=column[own])


def sums(context: TaskContext) -> dict[str, int]:
    """Counts of a range of a column: mean per epoch, sum, sum of squares of epochs; the sum of all, as a fact."""
    params = context.params
    total, squares = (np.zeros(_size(context), np.int64) for _ in range(2))
    for epoch in _by_epoch(context):
        total += epoch
        epoch *= epoch
        squares += epoch
    context.add(mean=total / params["epochs"])
    context.add(total=total, squares=squares)
    return {"accesses": int(total.sum())}


def _size(context: TaskContext) -> int:
    """Nodes of the range of a task of ``sum``."""
    index = context.index
    for size, parts in zip(context.params["sizes"], context.params["parts"], strict=True):
        if index < parts:
            bounds = even_bounds(size, parts)
            return bounds[index + 1] - bounds[index]
        index -= parts
    return 0


def _by_epoch(context: TaskContext) -> Iterator[npt.NDArray[np.int64]]:
    """Counts of the range in one epoch after the other."""
    params, size = context.params, _size(context)
    per_epoch = len(params["runs"]) // params["epochs"]
    for epoch in range(params["epochs"]):
        counts = np.zeros(size, np.int64)
        for task in range(epoch * per_epoch, (epoch + 1) * per_epoch):
            part = context.part(params["from"], task, context.index)
            counts[part["node"]] += part["count"]
        yield counts
