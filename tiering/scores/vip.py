"""Vertex inclusion probability: expected accesses per epoch, from fanouts and degrees alone.

After SALIENT++ (Kaler et al., MLSys'23), sharpened: exact wherever the paths that lead to a node do not share edges (on
in-trees), for both frontier rules, because it follows which slots of a neighbor list have been sampled by hop h instead
of treating the hops as independent. `tiering.native.inclusion_probability` has the recursion.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.run.job import Job
from tiering.run.step import TaskContext
from tiering.sampling import resolve_fanouts
from tiering.scores.blocks import chosen_values, emit_values, make_blocks, own_lists, sum_out_edges
from tiering.scores.counts import column_sizes, join_columns
from tiering.scores.options import SAMPLING
from tiering.scores.request import HUGE_PAGE, Float64Array, MemoryNeed, Method, ScoreColumns, ScoreRequest, list_nodes
from tiering.scores.sweeps import node_values, sweep_arguments, sweep_need
from tiering.text.units import format_count

SAMPLERS = ("uniform", "replacement", "full", "weighted")
"""Samplers the formula knows; ``weighted`` is taken for uniform."""
_HERE = "tiering.scores.vip"


def batch_share(request: ScoreRequest) -> float:
    """Return the probability of a training node to be in a batch; sums over a batch are divided by it, for an epoch."""
    return min(1.0, request.sampled.batch_size / request.train_size)


def vip(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Compute method ``vip``: inclusion probability in a batch times batches per epoch; reads of adjacency likewise.

    A batch holds each training node with probability batch size / training nodes. Cost: a pass over the edges per hop.
    """
    sampling, share = request.sampled, batch_share(request)
    nodes, reads = native.inclusion_probability(
        p0=node_values(graph, request.train, share, 0.0),
        fanouts=resolve_fanouts(graph.relations, sampling.fanouts),
        frontier=sampling.frontier,
        replacement=sampling.sampler == "replacement",
        **sweep_arguments(graph, request, vip_need(graph, request)),
    )
    for values in (*nodes, *reads):
        values /= share
    return ScoreColumns(dict(zip(graph.node_types, nodes, strict=True)), dict(zip(graph.relations, reads, strict=True)))


def vip_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 16 N, 24 D (16 D where only new nodes ask), 8 T, and sweeps."""
    lists = 24 * list_nodes(graph) + 3 * len(graph.relations) * HUGE_PAGE
    own = 16 * graph.num_nodes() + lists + 8 * request.train_size + 2 * len(graph.node_types) * HUGE_PAGE
    what = f"vip: {format_count(graph.num_nodes())} nodes, their lists and columns and one piece of the edges"
    return sweep_need(graph, request.threads, len(request.sampled.fanouts)).plus(own, what)


def _run_tasks(job: Job, writer: ArtifactWriter, graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Run all hops as tasks: each finds nodes, whose lists then draw for the next: see `_draw`."""
    sampling, share = request.sampled, batch_share(request)
    fanouts = resolve_fanouts(graph.relations, sampling.fanouts)
    job.expect(6 + len(fanouts))
    blocks = make_blocks(job, graph, request.train, states=2)
    params: dict[str, Any] = {
        "seed": share, "only_new": sampling.frontier == "new", "replacement": sampling.sampler == "replacement",
    }  # fmt: skip
    found = drawn = blocks.make_step("start", f"{_HERE}:start", fanouts=fanouts[0], **params)
    job.run(found)
    for hop, numbers in enumerate([*fanouts[1:], None], 1):
        params["active"] = [any(earlier[r] for earlier in fanouts[:hop]) for r in range(len(graph.relations))]
        drawn, found = found, blocks.make_step(f"find-{hop}", f"{_HERE}:find", found.name, fanouts=numbers, **params)
        job.run(found)
        if numbers is not None:
            job.release(drawn)
    (features, lists), nodes = column_sizes(graph), blocks.params["nodes"]
    into = [graph.node_types.index(relation[2]) for relation in graph.relations]
    places = [(node_type, 2 + 2 * into[:number].count(node_type)) for number, node_type in enumerate(into)]
    join_columns(job, writer, features, found.name, nodes, divisor=share, name="nodes.files")
    join_columns(job, writer, lists, drawn.name, nodes, places=places, divisor=share, name="lists.files")
    return ScoreColumns({})


def start(context: TaskContext) -> None:
    """Write the probability of each node to be a seed."""
    seeds = chosen_values(context, context.params["seed"], 0.0)
    context.write(found=seeds, fresh=seeds)
    _draw(context, seeds, seeds)


def find(context: TaskContext) -> None:
    """Write the probability that each node of a range is found by this hop, and that it is found in it."""
    params = context.params
    before = np.ascontiguousarray(context.read(params["before"], context.index)["found"])
    found, sums = before.copy(), np.asarray(sum_out_edges(context, params["active"]))
    native.find_nodes(chosen_values(context, params["seed"], 0.0), sums, found)
    context.write(found=found, fresh=found - before)
    if params["fanouts"] is not None:
        _draw(context, found, found - before)


def _draw(context: TaskContext, found: Float64Array, fresh: Float64Array) -> None:
    """Let the lists of a range draw: write drawn and waiting, then reads so far, for each relation; last, logs."""
    params, logs = context.params, dict[int, Float64Array]()
    node_type = params["nodes"][context.index][0]
    for number in [n for n, relation in enumerate(params["relations"]) if relation["dst"] == node_type]:
        fanout, at = params["fanouts"][number], 1 + 2 * len(logs)
        drawn, waiting, reads, logs[number] = (np.zeros(found.size) for _ in range(4))
        if params["before"]:
            state = context.read(params["before"], context.index, at)
            drawn, waiting = (state[name].copy() for name in ("drawn", "waiting"))
            reads = context.read(params["before"], context.index, at + 1)["reads"]
        if fanout != 0:
            reads = reads + (fresh if params["only_new"] else found)
        native.draw_lists(
            fresh, own_lists(context, number)["degrees"], drawn,
            None if params["only_new"] else waiting, fanout, params["replacement"], logs[number],
        )  # fmt: skip
        context.write(drawn=drawn, waiting=waiting)
        context.write(reads=reads)
    emit_values(context, lambda number, _, columns: logs[number][columns])


VIP = Method(vip, vip_need, SAMPLING, _run_tasks, needs_train=True, samplers=SAMPLERS)
