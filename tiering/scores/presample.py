"""Pre-sampling: run the training sampler for some epochs and count (PreSC of GNNLab, Yang et al., EuroSys'22).

The sampler is deterministic, so with the seed and the epochs of a run the counts are that run's own accesses: the exact
future, which no score beats.
"""

from __future__ import annotations

import json
from itertools import pairwise

from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Grid, equal_bounds
from tiering.run.job import Job
from tiering.run.pieces import canonical
from tiering.run.step import Step, TaskContext
from tiering.sampling import AccessCounts, Sampler, SamplingOptions, make_sampler, runs_of_batches
from tiering.sampling.lists import WINDOW_BATCHES, window_lists
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.sampling.plan import batches
from tiering.scores import counts as counting
from tiering.scores import hops
from tiering.scores.options import SAMPLING
from tiering.scores.request import SLACK, MemoryNeed, Method, ScoreColumns, ScoreRequest, list_nodes
from tiering.text.units import format_count

COUNTING = (*SAMPLING, "epochs", "first_epoch")  # options of methods that count
EPOCH_TASKS = 16  # tasks for each epoch: each reads the whole adjacency, and writes all that it has counted


def presample(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``presample``: mean accesses per epoch of feature rows and of adjacency lists."""
    total, epochs = count_epochs(graph, request).total, request.options.epochs
    facts = counting.reached(request, total.total)  # before the counts are gone
    return ScoreColumns(
        {node_type: counting.in_place(counts, epochs) for node_type, counts in total.features.items()},
        {relation: counting.in_place(counts, epochs) for relation, counts in total.adjacency.items()},
        facts,
    )


def presample_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 (N + D) for counters, 24 T for an epoch's order, 8 E with edge weights, a batch per thread or one.

    Times of seeds take 16 T more.
    """
    own = 8 * (graph.num_nodes() + list_nodes(graph)) + request.order_bytes + sums_bytes(graph, request.sampled) + SLACK
    batch = batch_bytes(graph, request.sampled)
    what = f"presample: counters of {format_count(graph.num_nodes())} nodes and their lists, and a batch"
    return MemoryNeed(own + batch, own + request.threads * batch, what)


def count_epochs(graph: Graph, request: ScoreRequest, *, squares: bool = False) -> counting.AccessSums:
    """Count the accesses of the epochs that a request names; the result does not depend on the threads."""
    options, sampling, train = request.options, request.sampled, request.train
    sampler = make_sampler(graph, sampling)
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    fixed = vectors * (3 if squares else 1) + request.order_bytes + sums_bytes(graph, sampling)
    threads = max(1, min(request.threads, (request.budget.left() - fixed) // max(1, batch_bytes(graph, sampling))))
    total = AccessCounts.zeros(graph)
    square_sums = AccessCounts.zeros(graph) if squares else None
    one = AccessCounts.zeros(graph) if squares else total
    epochs = range(options.first_epoch, options.first_epoch + options.epochs)
    size, seed, times = sampling.batch_size, sampling.seed, request.seed_time
    lists = window_lists(sampler, request.budget.left() - fixed - batch_bytes(graph, sampling))
    at_least = 8 if lists is None else WINDOW_BATCHES
    for plan, first, last in runs_of_batches(train, size, seed, epochs, threads, "sampling", times, at_least):
        sampler.count_accesses(plan, one, first=first, last=last, threads=threads, lists=lists)
        if square_sums is not None and last == len(plan):
            for counts, added, squared in zip(*map(counting.count_arrays, (one, total, square_sums)), strict=True):
                added += counts
                counts *= counts
                squared += counts
                counts.fill(0)
    return counting.AccessSums(total, square_sums)


def sampling_runs(request: ScoreRequest, grid: Grid, squares: bool) -> list[list[tuple[int, int, int]]]:
    """Return the batches of each task, by epoch their first and end; of one epoch alone where `squares` need that."""
    options, count = request.options, request.epoch_batches
    epochs = range(options.first_epoch, options.first_epoch + options.epochs)
    parts = grid.shards or EPOCH_TASKS * (1 if squares else options.epochs)
    cuts = list(pairwise(equal_bounds(count, min(count, parts))))
    if squares:
        return [[(epoch, *cut)] for epoch in epochs for cut in cuts]
    return [[(epoch, *cut) for epoch in epochs] for cut in cuts]


def count_by_tasks(job: Job, graph: Graph, request: ScoreRequest, squares: bool) -> counting.TaskCounts:
    """Count epochs by tasks: hop by hop where the adjacency does not fit a task, else by batches."""
    memory = presample_need(graph, request).minimum
    if hops.hop_synchronous(graph, request, memory, job.grid):
        return hops.count_epochs(job, graph, request, squares)
    job.expect(2)
    features, lists = counting.column_sizes(graph)
    sizes = list((features | lists).values())
    parts, total = job.grid.parts(sum(sizes) * counting.SUM_BYTES), max(1, sum(sizes))
    ranges = [
        (number, begin, end)
        for number, size in enumerate(sizes)
        for begin, end in pairwise(equal_bounds(size, max(1, -(-parts * size // total))))
        if begin < end
    ]
    runs = sampling_runs(request, job.grid, squares)
    params = {
        "graph": str(graph.path), "sampling": request.sampled.to_json(), "runs": runs, "ranges": ranges,
        "train": counting.broadcast_train(job, request.train, request.seed_time),
    }  # fmt: skip
    sample = Step("sample", "tiering.scores.presample:sample", len(runs), params, ("train",), memory)
    job.run(sample)
    epochs, columns = request.options.epochs if squares else 1, len(features) + len(lists)
    counted = counting.sum_counts(job, {"sample": [1] * columns}, ranges, epochs, len(runs) // epochs, squares)
    job.release(sample)
    return counted


def sample(context: TaskContext) -> None:
    """Count the rows and lists that a task's batches read; verify the graph where it is read."""
    params = context.params
    graph, sampler = context.share(_open_sampler, params["graph"], canonical(params["sampling"]))
    options, counts = SamplingOptions(**params["sampling"]), AccessCounts.zeros(graph)
    train, times = counting.read_train(context), counting.read_train(context, "times") if options.time else None
    for epoch, first, last in params["runs"][context.index]:
        plan = batches(train, options.batch_size, epoch, seed=options.seed, seed_time=times)
        sampler.count_accesses(plan, counts, first=first, last=last, threads=context.threads)
    graph.finish_reads()
    columns = list(counting.count_arrays(counts))
    for column, begin, end in params["ranges"]:
        counting.write_counts(context, columns[column][begin:end])


def _open_sampler(path: str, sampling: bytes) -> tuple[Graph, Sampler]:
    """Return a graph whose content is verified where it is read, and its sampler; options in JSON."""
    graph = Graph.open(path)
    graph.verify_reads()
    return graph, make_sampler(graph, SamplingOptions(**json.loads(sampling)))


def _run_tasks(job: Job, writer: ArtifactWriter, graph: Graph, request: ScoreRequest) -> ScoreColumns:
    job.expect(1)
    counted, (features, lists) = count_by_tasks(job, graph, request, squares=False), counting.column_sizes(graph)
    counting.join_columns(job, writer, features | lists, "sum", counted.ranges, divisor=request.options.epochs)
    tasks = zip(counted.ranges, counted.records, strict=True)
    accesses = sum(record["facts"]["accesses"] for (column, _, _), record in tasks if column < len(features))
    return ScoreColumns({}, reached=counting.reached(request, accesses))


PRESAMPLE = Method(presample, presample_need, COUNTING, _run_tasks, needs_train=True, counts=True)
