"""What a score will take: memory by the formulas of the methods, disk, and time by sweeps or by sampling a little."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.execution.costs import kernel_seconds, put_seconds, read_seconds, stage_seconds
from tiering.execution.plan import StagePlan, Step, held_memory
from tiering.execution.rates import Rates
from tiering.formats.graph import Graph
from tiering.formats.shape import FutureGraph, GraphShape
from tiering.sampling import make_sampler, resolve_fanouts
from tiering.scores.memory import past_the_cache
from tiering.scores.plan import ScorePlan
from tiering.scores.predict_sweeps import SweepPlan
from tiering.scores.presample import tally_epochs
from tiering.scores.request import ScoreRequest
from tiering.scores.vip import SAMPLERS

SAMPLED_SECONDS = 0.5
"""At least sampled to learn how long an epoch takes, or the whole epoch."""
SAMPLED_EDGE = 25e-9
"""Seconds per sampled edge and thread where there is no graph to sample from yet; caches decide, so this is rough."""


def predict_score(graph: Graph | FutureGraph, plan: ScorePlan, shape: GraphShape, out: Path, rates: Rates) -> StagePlan:
    """Plan of a score.

    Parameters
    ----------
    graph
        The graph: sampling methods sample some batches to learn how long an epoch takes; or what stands for one.
    plan
        As `tiering.scores.plan_score` resolves the options.

    Raises
    ------
    BudgetError
        Where the score would.
    """
    request, need = plan.request, plan.method.memory(graph, plan.request)  # type: ignore[arg-type]
    left = 1 << 62
    if request.budget is not None:
        request.budget.require(need.least, need.what)
        left = request.budget.left()
    seconds, notes = _seconds(graph, plan, shape, rates)
    read, scratch = sum(round(4 * each.num_edges * each.uncached) for each in shape.edges), 0
    if count := _sweeps(plan):
        direct = request.budget is not None and past_the_cache(4 * shape.num_edges(), request.budget, need)
        sweeps = SweepPlan.choose(graph, shape, need, left, request.threads, direct)
        read *= 2 if direct else 1  # edges are counted, then put in bins
        seconds += sweeps.binning(shape, read, rates) + count * sweeps.sweep(rates)
        scratch = sweeps.scratch
    else:
        seconds += read_seconds(read, rates.source)
    if plan.name != "degree":
        offsets = sum(round(8 * (shape.num_nodes(each.relation[2]) + 1) * each.uncached) for each in shape.edges)
        read, seconds = read + offsets, seconds + read_seconds(offsets, rates.source)
    how = "in memory" if not scratch else f"about {scratch / (4 * shape.num_edges()):.0%} of the edges on disk"
    memory = min(need.plenty, max(need.least, left))
    columns = 8 * shape.num_nodes()
    if plan.name in ("presample", "vip", "hybrid"):
        columns += 8 * sum(shape.num_nodes(relation[2]) for relation in shape.relations)
    files = len(shape.nodes) + (len(shape.edges) if columns > 8 * shape.num_nodes() else 0)
    put = put_seconds(columns, rates, files) + stage_seconds(rates)
    steps = (
        Step(plan.name, how, memory, read, 0, scratch, seconds, shape.num_edges(), "edge"),
        Step("columns", "in memory", columns, 0, columns, 0, put, shape.num_nodes(), "node"),
    )
    return StagePlan("score", out, steps, {out: columns}, held_memory(), tuple(notes))


def _sweeps(plan: ScorePlan) -> int:
    """Passes over the binned edges; 0 for methods that make none."""
    options, request = plan.request.options, plan.request
    if plan.name == "wrpr":
        return options.sweeps
    if plan.name == "rpr":
        return math.ceil(math.log(options.tolerance) / math.log(options.damping)) if options.damping else 1
    if plan.name in ("vip", "hybrid"):
        hops = len(request.sampled.fanouts)
        return hops if request.sampled.sampler in SAMPLERS else 5
    return 0


def _seconds(graph: Graph | FutureGraph, plan: ScorePlan, shape: GraphShape, rates: Rates) -> tuple[float, list[str]]:
    """Seconds of the computation, sweeps apart, and what all of them rest on."""
    notes, seconds = list(plan.notes), 0.0
    if plan.name == "degree":
        for each in shape.edges:
            entries = shape.num_nodes(each.relation[0])
            seconds += kernel_seconds("degree", each.num_edges, rates, entries, 8)
    if plan.name == "rpr":
        notes.append(f"at most {_sweeps(plan)} sweeps, fewer where scores stand still before")
    if plan.method.counts:
        epoch, note = _epoch_seconds(graph, plan.request, rates)
        seconds += epoch * plan.request.options.epochs
        notes.append(note)
    if plan.name == "hybrid":
        seconds += kernel_seconds("rank", shape.num_nodes(), rates, shape.num_nodes())
    return seconds, notes


def _epoch_seconds(graph: Graph | FutureGraph, request: ScoreRequest, rates: Rates) -> tuple[float, str]:
    """Seconds of an epoch of sampling."""
    size, batch = request.train_size, request.sampled.batch_size
    batches = -(-size // batch)
    if isinstance(graph, FutureGraph):
        edges = _sampled_edges(graph, request)
        return batches * edges * SAMPLED_EDGE / rates.threads, "no graph to sample from yet: sampling time is a guess"
    sampler, count = make_sampler(graph, request.sampled), max(4, 2 * request.threads)
    while True:
        part = _part(request.train, min(1.0, count * batch / size))
        begun = time.perf_counter()
        tally = tally_epochs(sampler, part, batch, range(1), request.threads)
        took = time.perf_counter() - begun
        if took >= SAMPLED_SECONDS or tally.batches >= batches:
            return took * batches / tally.batches, f"time of sampling by {tally.batches} of {batches} batches"
        count *= 4


def _part(train: Mapping[str, npt.NDArray[np.int64]], share: float) -> dict[str, npt.NDArray[np.int64]]:
    """The same share of the training nodes of each type, spread over all."""
    return {t: ids[:: max(1, round(1 / share))] for t, ids in train.items()}


def _sampled_edges(graph: FutureGraph, request: ScoreRequest) -> int:
    """Edges that a batch samples at the most: every node found so far asks, as far as there are edges."""
    found = edges = 0
    nodes, most = graph.num_nodes(), graph.num_edges()
    found = min(nodes, request.sampled.batch_size)
    for hop in resolve_fanouts(graph.relations, request.sampled.fanouts):
        drawn = most if min(hop) < 0 else min(most, found * sum(hop))
        edges, found = edges + drawn, min(nodes, found + drawn)
    return edges
