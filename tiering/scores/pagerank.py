"""Reverse PageRank, plain and weighted by the training set (Min et al., KDD'22, Algorithm 1).

A node u is read whenever an out-neighbor v is sampled and picks u out of its in-neighbors. With N nodes of all types,
``s'(u) = (1 - d) / N + d * (sum over relations, over edges u -> v of s(v) / indeg(v))``, the in-degree within the
relation: `rpr` until nothing changes, `wrpr` a few times, with the weight on the training nodes at first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tiering import native
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.run.job import Job
from tiering.run.step import TaskContext
from tiering.scores.blocks import chosen_ids, chosen_values, emit_values, make_blocks, sum_out_edges
from tiering.scores.counts import column_sizes, join_columns
from tiering.scores.request import HUGE_PAGE, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest
from tiering.scores.sweeps import node_values, sweep_arguments, sweep_need
from tiering.text.units import format_count

MAX_SWEEPS = 200  # `rpr` stops here even if it has not converged; at d = 0.85 the change has then shrunk by 1e-14
_HERE = "tiering.scores.pagerank"


class _Iteration(NamedTuple):
    """The formula of a method: values are of training nodes, and of the others."""

    damping: float
    sweeps: int
    tolerance: float
    start: tuple[float, float]
    restart: tuple[float, float]


def _restart(graph: SizedGraph, request: ScoreRequest) -> tuple[float, float]:
    """Return the mass of random restarts, shared equally by all nodes or by the training nodes."""
    mass, nodes = 1.0 - request.options.damping, max(1, graph.num_nodes())
    return (mass / request.train_size, 0.0) if request.options.teleport == "train" else (mass / nodes, mass / nodes)


def _rpr(graph: SizedGraph, request: ScoreRequest) -> _Iteration:
    """Return ``rpr``: from 1/N everywhere until changes are below the tolerance (at most `MAX_SWEEPS` passes).

    Nodes of a type that is the destination of R > 1 relations pass their score along R times: here only, all is
    divided by the largest R, so that the iteration contracts; restarts stay (1 - d), scores sum to at most 1.
    """
    into, start = Counter(r[2] for r in graph.relations), 1.0 / max(1, graph.num_nodes())
    damping = request.options.damping / max(into.values(), default=1)
    return _Iteration(damping, MAX_SWEEPS, request.options.tolerance, (start, start), _restart(graph, request))


def _wrpr(graph: SizedGraph, request: ScoreRequest) -> _Iteration:
    """Return ``wrpr``: so many passes from 1/N, training nodes (of all types) times N / |train|."""
    start, options = (1.0 / request.train_size, 1.0 / max(1, graph.num_nodes())), request.options
    return _Iteration(options.damping, options.sweeps, 0.0, start, _restart(graph, request))


_Formula: TypeAlias = Callable[[SizedGraph, ScoreRequest], _Iteration]


def _compute(formula: _Formula, graph: Graph, request: ScoreRequest) -> ScoreColumns:
    iteration = formula(graph, request)
    values, done, residual = native.reverse_pagerank(
        start=node_values(graph, request.train, *iteration.start),
        teleport=node_values(graph, request.train, *iteration.restart),
        damping=iteration.damping,
        max_sweeps=iteration.sweeps,
        tolerance=iteration.tolerance,
        **sweep_arguments(graph, request, wrpr_need(graph, request)),
    )
    reached = {"sweeps": done, "residual": residual, "damping": iteration.damping}
    return ScoreColumns(dict(zip(graph.node_types, values, strict=True)), reached=reached)


wrpr = partial(_compute, _wrpr)  # compute ``wrpr`` in this process


def wrpr_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 N for the scores, 8 T for the training nodes in order, and sweeps."""
    what = f"reverse PageRank: {format_count(graph.num_nodes())} nodes, their columns and one piece of the edges"
    own = 8 * graph.num_nodes() + 8 * request.train_size + len(graph.node_types) * HUGE_PAGE
    return sweep_need(graph, request.threads, request.options.sweeps).plus(own, what)


def _rpr_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    options = request.options
    sweeps = math.ceil(math.log(options.tolerance) / math.log(options.damping)) if options.damping else 1
    return replace(wrpr_need(graph, request), sweeps=sweeps)


def _run_tasks(
    formula: _Formula, job: Job, writer: ArtifactWriter, graph: Graph, request: ScoreRequest
) -> ScoreColumns:
    """Run the sweeps as tasks, to the bytes of one process: each has the scores, and what lists pass to the next."""
    iteration = formula(graph, request)
    job.expect(4 + iteration.sweeps)
    blocks = make_blocks(job, graph, request.train)
    last = blocks.make_step("start", f"{_HERE}:start", start=iteration.start)
    job.run(last)
    done, residual = 0, math.inf
    params: dict[str, Any] = {"damping": iteration.damping, "restart": iteration.restart}
    while done < iteration.sweeps and (residual > iteration.tolerance or not iteration.tolerance):
        done += 1
        params["last"] = done == iteration.sweeps
        before, last = last, blocks.make_step(f"sweep-{done}", f"{_HERE}:sweep", last.name, **params)
        changes = [change for record in job.run(last) for change in record["facts"]["changes"]]
        job.release(before)
        residual = float(np.cumsum([0.0, *changes])[-1])
    join_columns(job, writer, column_sizes(graph)[0], last.name, blocks.params["nodes"])
    return ScoreColumns({}, reached={"sweeps": done, "residual": residual, "damping": iteration.damping})


def start(context: TaskContext) -> None:
    """Write the scores of a range of nodes before the first sweep."""
    _write(context, chosen_values(context, *context.params["start"]))


def sweep(context: TaskContext) -> dict[str, list[float]]:
    """Write the scores of a range of nodes after a sweep; as facts, by how much the scores of each bin changed."""
    params, (value, rest) = context.params, context.params["restart"]
    scores = context.read(params["before"], context.index)["score"].copy()
    shift = params["shifts"][params["nodes"][context.index][0]]
    ids = chosen_ids(context)
    changes = native.update_scores(sum_out_edges(context), (rest, value), ids, params["damping"], shift, scores)
    _write(context, scores, last=params["last"])
    return {"changes": changes}


def _write(context: TaskContext, scores: Float64Array, *, last: bool = False) -> None:
    """Write scores, and what lists pass to the next sweep: a node's score by the length of its list."""
    context.write(score=scores)
    if not last:
        emit_values(context, lambda _, lists, columns: scores[columns] / lists["degrees"][columns])


RPR = Method(partial(_compute, _rpr), _rpr_need, ("damping", "teleport", "tolerance"), partial(_run_tasks, _rpr))
WRPR = Method(wrpr, wrpr_need, ("damping", "teleport", "sweeps"), partial(_run_tasks, _wrpr), needs_train=True)
