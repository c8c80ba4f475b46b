"""What a score will take: memory by the formulas of the methods, and disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiering.formats.graph import Graph
from tiering.formats.shape import EdgeShape, GraphShape, SizedGraph
from tiering.plan import StagePlan, Step, held_memory
from tiering.sampling import resolve_fanouts
from tiering.scores.memory import READ_BYTES, SLACK, Need, dense_degree, most_dense, past_the_cache, sum_bins
from tiering.scores.plan import ScorePlan
from tiering.scores.vip import SAMPLERS

FEWEST_GROUPS, MOST_GROUPS = 4, 1024
CORE_EDGE_SECONDS, CORE_VALUE_RATE, CORE_DISK_RATE = 2.5e-9, 5e9, 1.2e9
"""What the core takes a thread and a disk for when it cuts groups (``sum_plan.cpp``)."""
SAMPLED_BLOCKS, BLOCK_COLUMNS = 256, 4096
"""Columns whose degrees are looked at, spread over all."""


def predict_score(graph: SizedGraph, plan: ScorePlan, shape: GraphShape, out: Path) -> StagePlan:
    """Plan of a score.

    Parameters
    ----------
    graph
        The graph, or what stands for one that does not exist yet.
    plan
        As `tiering.scores.plan_score` resolves the options.
    shape
        Sizes of the graph.

    Raises
    ------
    BudgetError
        Where the score would.
    """
    plan.budget.require(plan.need.least, plan.need.what)
    left = plan.budget.left()
    read, scratch = sum(round(4 * edges.num_edges * edges.uncached) for edges in shape.edges), 0
    if _sweeps(plan):
        direct = past_the_cache(4 * shape.num_edges(), plan.budget, plan.need)
        read *= 2 if direct else 1  # edges are counted, then put in bins
        scratch = _scratch_bytes(graph, shape, plan.need, left, plan.request.threads, direct)
    if plan.name != "degree":
        read += sum(round(8 * (shape.num_nodes(edges.relation[2]) + 1) * edges.uncached) for edges in shape.edges)
    how = "in memory" if not scratch else f"about {scratch / (4 * shape.num_edges()):.0%} of the edges on disk"
    memory = min(plan.need.plenty, max(plan.need.least, left))
    columns = 8 * shape.num_nodes()
    if plan.name in ("presample", "vip", "hybrid"):
        columns += 8 * sum(shape.num_nodes(relation[2]) for relation in shape.relations)
    passing = (1 + _sweeps(plan)) * shape.num_edges() + _sampled_edges(graph, plan)
    steps = (
        Step(plan.name, how, memory, read, 0, scratch, passing, "edge"),
        Step("columns", "in memory", columns, 0, columns, 0, shape.num_nodes(), "node"),
    )
    return StagePlan("score", out, steps, {out: columns}, held_memory(), _notes(plan), plan.request.threads)


def _notes(plan: ScorePlan) -> tuple[str, ...]:
    if plan.name != "rpr":
        return tuple(plan.notes)
    return (*plan.notes, f"at most {_sweeps(plan)} sweeps, fewer where scores stand still before")


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


def _sampled_edges(graph: SizedGraph, plan: ScorePlan) -> int:
    """Edges that the epochs of a method sample at the most: every node of a batch so far asks in every hop."""
    if not plan.method.counts:
        return 0
    sampling, nodes, edges = plan.request.sampled, graph.num_nodes(), graph.num_edges()
    asking, sampled = min(nodes, sampling.batch_size), 0
    for hop in resolve_fanouts(graph.relations, sampling.fanouts):
        drawn = edges if min(hop) < 0 else min(edges, asking * sum(hop))
        sampled, asking = sampled + drawn, min(nodes, asking + drawn)
    return plan.request.options.epochs * -(-plan.request.train_size // sampling.batch_size) * sampled


@dataclass(frozen=True)
class _Columns:
    """The columns of a relation that have edges."""

    filled: int
    sparse: int
    """Of those, the ones whose values are expanded, edge by edge."""
    sparse_edges: int

    @classmethod
    def of(cls, graph: SizedGraph, edges: EdgeShape, shape: GraphShape) -> _Columns:
        """From a sample of the offsets; of a graph that is not there yet, as if every column were like any other."""
        source, _, destination = edges.relation
        count, bins = shape.num_nodes(destination), sum_bins(shape.num_nodes(source))
        dense = dense_degree(bins, count)
        if isinstance(graph, Graph):
            degrees = np.concatenate(list(_sampled_degrees(graph, edges, count)))
            filled = round(count * float((degrees > 0).mean())) if degrees.size else 0
        else:
            degrees = np.full(1, edges.num_edges / max(1, count))
            filled = min(count, edges.num_edges)
        few = (degrees > 0) & (degrees < dense)
        sparse = filled * few.sum() / max(1, (degrees > 0).sum())
        sparse_edges = edges.num_edges * degrees[few].sum() / max(1.0, float(degrees.sum()))
        return cls(filled, round(sparse), round(sparse_edges))


def _sampled_degrees(
    graph: Graph, edges: EdgeShape, count: int
) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    indptr = graph.csc(edges.relation)[0]
    for start in range(0, max(1, count), max(BLOCK_COLUMNS, count // SAMPLED_BLOCKS)):
        yield np.diff(indptr[start : min(count, start + BLOCK_COLUMNS) + 1])


def _scratch_bytes(graph: SizedGraph, shape: GraphShape, need: Need, left: int, threads: int, direct: bool) -> int:
    """Bytes of edges that sweeps keep on disk: what the core will choose (``sum_plan.hpp``), bins assumed even.

    `need` is what holds for any graph of these sizes; what this one takes less is room.
    """
    columns = [_Columns.of(graph, edges, shape) for edges in shape.edges]
    edge_count, values = shape.num_edges(), 8 * sum(each.sparse for each in columns)
    room = left - need.kept + SLACK // 2 + (0 if direct else threads * READ_BYTES)
    for edges, own in zip(shape.edges, columns, strict=True):
        source, destination = shape.num_nodes(edges.relation[0]), shape.num_nodes(edges.relation[2])
        most = most_dense(sum_bins(source), destination, edges.num_edges)
        room += 10 * (min(destination, edges.num_edges) - own.filled) + 6 * (most - own.filled + own.sparse)
    sparse = sum(each.sparse_edges for each in columns)
    chosen, fastest = 4 * edge_count, float("inf")
    groups = FEWEST_GROUPS
    while groups < MOST_GROUPS:
        excess = 4 * edge_count + 8 * sparse // groups - room
        scratch = max(0, round(excess / (1 - 2 / groups)))
        seconds = (edge_count * CORE_EDGE_SECONDS + groups * values / CORE_VALUE_RATE) / threads
        seconds = max(seconds, scratch / CORE_DISK_RATE)
        if scratch <= 4 * edge_count and seconds < fastest:
            chosen, fastest = scratch, seconds
        groups += (groups + 3) // 4
    return chosen
