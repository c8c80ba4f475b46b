"""Sums over out-edges by tasks: each sums the values that the lists of all tasks pass along, and leaves its own.

The edges of a range of lists lie by kind of column (high in-degree, others), then by bin of sources. One task sums a
bin in the order and with the kernel of one process (``binned_edges.hpp``): sums are the same bytes for any ranges.
Edges stay in the memory of the process that sums them as far as its tasks promise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Relation
from tiering.artifacts.storage import AnyArray
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Int64Array, balanced_bounds
from tiering.run.job import Job
from tiering.run.pieces import Columns
from tiering.run.resident import resident
from tiering.run.step import Step, TaskContext
from tiering.scores.counts import Range
from tiering.scores.request import Float64Array, TrainSet, list_nodes

_HERE = "tiering.scores.blocks"
EDGE_BYTES = 20  # memory of a task for each edge of its lists
LIST_BYTES = 40  # memory of a task for each of its lists
NODE_BYTES = 64  # memory of a task for each node of its range
KINDS = ("high", "low")  # columns of high in-degree, and the others


@dataclass(frozen=True)
class Blocks:
    """Edges that are in blocks, ready for sweeps."""

    params: dict[str, Any]  # ranges of the tasks, ``nodes``, and what sums need
    memory: int  # peak memory of a task in bytes
    resident: int  # bytes of it that may stay for the next sweep

    def make_step(self, name: str, function: str, before: str = "", **params: Any) -> Step:
        """Return a step with a task for each range of nodes, which sums what the tasks of `before` have left."""
        reads = ("chosen", "bins", "blocks", *[before] * bool(before))
        params = {**self.params, **params, "before": before}
        return Step(name, function, len(params["nodes"]), params, reads, self.memory, self.resident)


def task_bytes(graph: SizedGraph) -> int:
    """Return the bytes of a task that had all edges and nodes."""
    return graph.num_edges() * EDGE_BYTES + LIST_BYTES * list_nodes(graph) + NODE_BYTES * graph.num_nodes()


def balanced_lists(count: int, list_bytes: int, lists: Sequence[tuple[AnyArray, int]], parts: int) -> list[int]:
    """Return the bounds of at most `parts` ranges of like size in bytes; `lists`: ``indptr``, and bytes of an edge."""

    def before(node: int) -> int:
        return list_bytes * node + sum(edge_bytes * int(indptr[node]) for indptr, edge_bytes in lists)

    inner = (bisect_left(range(count), before(count) * part // parts, key=before) for part in range(1, parts))
    return sorted({0, count, *inner})


def map_offsets(graph: Graph, relation: Relation) -> AnyArray:
    """Return the ``indptr`` of a relation, mapped, whose content nobody verifies."""
    return open_manifest(graph.path).array(f"{relation_folder(relation)}/indptr")


def range_bounds(ranges: Sequence[Range], number: int) -> list[int]:
    """Return where the ranges of a column begin, and where the last one ends."""
    return [0, *(end for column, _, end in ranges if column == number)]


def make_blocks(job: Job, graph: Graph, train: TrainSet, states: int = 0) -> Blocks:
    """Have the edges of all relations brought into blocks; `train` are the nodes that `chosen_values` knows.

    A task of a sweep writes one partition and `states` for each relation into its type, then what lists pass along.
    """
    types, lists, most = list(graph.node_types), [], 0
    sizes = [graph.num_nodes(name) for name in types]
    params: dict[str, Any] = {
        "graph": str(graph.path), "sizes": sizes, "shifts": [native.source_bin_shift(max(1, n)) for n in sizes],
        "relations": [
            {
                "folder": relation_folder(r), "src": types.index(r[0]), "dst": types.index(r[2]),
                "high": native.high_column_degree(graph.num_nodes(r[2]), max(1, graph.num_nodes(r[0]))),
            }
            for r in graph.relations
        ],
    }  # fmt: skip
    for number, relation in enumerate(graph.relations):
        indptr, columns = map_offsets(graph, relation), graph.num_nodes(relation[2])
        parts = job.grid.parts(graph.num_edges(relation) * EDGE_BYTES + LIST_BYTES * columns)
        for begin, end in pairwise(balanced_lists(columns, LIST_BYTES, [(indptr, EDGE_BYTES)], parts)):
            lists.append([number, begin, end])
            most = max(most, int(indptr[end] - indptr[begin]) * EDGE_BYTES + LIST_BYTES * (end - begin))
    params["lists"], most, most_csc = lists, most + 2 * BLOCK_BYTES, 2 * most // 5
    job.run(Step("count", f"{_HERE}:count", len(lists), params, (), most, most_csc))
    bins = [np.zeros(_bin_at(n, shift), np.int64) for n, shift in zip(sizes, params["shifts"], strict=True)]
    for task, (number, _, _) in enumerate(lists):
        bins[params["relations"][number]["src"]] += job.read("count", task)["edges"]
    nodes = [bounds for number, edges in enumerate(bins) for bounds in _cut_nodes(job, params, number, edges)]
    params |= {"nodes": nodes, "all_edges": sum(int(edges.sum()) for edges in bins)}
    job.broadcast("bins", {"edges": np.concatenate(bins)})
    job.run(Step("blocks", f"{_HERE}:blocks", len(lists), params, ("count",), most, most_csc))
    _broadcast_chosen(job, graph, nodes, train)
    params["pieces"] = _find_pieces(params, states)
    kept = max((_resident_bytes(params, bounds, bins[bounds[0]]) for bounds in nodes), default=0)
    widest, most_nodes = (max((end - begin for _, begin, end in ranges), default=0) for ranges in (lists, nodes))
    memory = kept + (2 * NODE_BYTES + 8 * len(graph.relations)) * most_nodes + 24 * widest + 2 * BLOCK_BYTES
    return Blocks(params, memory, kept)


def _find_pieces(params: dict[str, Any], states: int) -> list[list[list[int]]]:
    """Return who has the columns of each range of lists: tasks of a sweep, and the first partition of their values."""
    into = [relation["dst"] for relation in params["relations"]]
    ends = [1 + states * into.count(node_type) for node_type, _, _ in params["nodes"]]
    pieces = []
    for number, low, high in params["lists"]:
        own = []
        for task, (node_type, begin, end) in enumerate(params["nodes"]):
            if node_type == params["relations"][number]["dst"] and begin < high and low < end:
                own.append([task, ends[task]])
                ends[task] += len(KINDS)
        pieces.append(own)
    return pieces


def _resident_bytes(params: dict[str, Any], bounds: Range, bins: Int64Array) -> int:
    """Return the bytes of a task's edges, where blocks begin, degrees, and two sweeps' values."""
    node_type, begin, end = bounds
    own = bins[_bin_at(begin, params["shifts"][node_type]) : _bin_at(end, params["shifts"][node_type])]
    blocks = sum(len(KINDS) * (((high - low) >> 16) + 2) for _, low, high in params["lists"])
    into = [relation["dst"] for relation in params["relations"]].count(node_type)
    nbytes: int = 4 * int(own.sum()) + 8 * own.size * blocks + (48 + 32 * into) * (end - begin)
    return nbytes


def _cut_nodes(job: Job, params: dict[str, Any], number: int, edges: Int64Array) -> list[Range]:
    """Return the ranges of the nodes of a type: whole bins, with about the same number of out-edges."""
    count, shift = params["sizes"][number], params["shifts"][number]
    parts = job.grid.parts(count * NODE_BYTES + int(edges.sum()) * 8)
    bounds = sorted({min(count, b << shift) for b in balanced_bounds(edges * 8 + (NODE_BYTES << shift), parts)})
    return [[number, begin, end] for begin, end in pairwise(bounds)]


def _broadcast_chosen(job: Job, graph: Graph, nodes: Sequence[Range], chosen: TrainSet) -> None:
    """Give each task its chosen nodes, ascending."""
    ids = [np.sort(chosen.get(name, np.empty(0, np.int64))) for name in graph.node_types]
    firsts = np.cumsum([0, *(a.size for a in ids)])
    ends = [int(firsts[number] + np.searchsorted(ids[number], end)) for number, _, end in nodes]
    job.broadcast("chosen", {"ids": np.concatenate(ids)}, [0, *ends])


def count(context: TaskContext) -> None:
    """Count the edges of a range of lists by bin of their source."""
    relation, indptr, sources = _own_lists(context)
    context.write(edges=native.count_by_bin(indptr, sources, context.params["sizes"][relation["src"]], context.threads))


def blocks(context: TaskContext) -> None:
    """Emit the edges of a range of lists: of each kind of column, by range of sources, edges and where blocks begin."""
    relation, indptr, sources = _own_lists(context)
    size, shift = context.params["sizes"][relation["src"]], context.params["shifts"][relation["src"]]
    bounds = [_bin_at(node, shift) for node in range_bounds(context.params["nodes"], relation["src"])]
    edges, *kinds = native.bin_edges(indptr, sources, size, relation["high"], context.threads)
    for starts in kinds if size else ():
        starts = starts.reshape(-1, bounds[-1])
        for first, stop in pairwise(bounds):
            begin, end = int(starts[0, first]), int(starts[-1, stop - 1])
            context.write(edge=edges[begin:end])
            context.write(start=starts[:, first:stop] - begin)


def _bin_at(node: int, shift: int) -> int:
    """Return the bin that begins with a node; behind the last node, the number of bins."""
    return -(-node // (1 << shift))


def _own_lists(context: TaskContext) -> tuple[dict[str, Any], Int64Array, AnyArray]:
    """Return the relation of a task's lists, their offsets, and their entries."""
    number, begin, end = context.params["lists"][context.index]
    relation = context.params["relations"][number]

    def make() -> Columns:
        indptr, sources, _ = read_csc(context, relation["folder"], begin, end)
        return {"indptr": indptr, "sources": sources}

    lists = resident.get(("count", "lists", context.index), make)
    return relation, lists["indptr"], lists["sources"]


def read_csc(context: TaskContext, folder: str, begin: int, end: int) -> tuple[Int64Array, AnyArray, int]:
    """Return the offsets of lists [begin, end) in their entries, the entries, and the place of the first."""
    graph = context.share(open_manifest, context.params["graph"])
    indptr = graph.read(f"{folder}/indptr", begin, end + 1)
    first, last = int(indptr[0]), int(indptr[-1])
    indptr = indptr - first
    native.check_indptr(indptr, last - first, context.threads)
    return indptr, graph.read(f"{folder}/indices", first, last), first


def own_lists(context: TaskContext, number: int) -> Columns:
    """Return the in-degrees of a task's nodes in a relation, and the positions of high ones and of others above 0."""

    def make() -> Columns:
        relation, (_, begin, end) = context.params["relations"][number], context.params["nodes"][context.index]
        graph = context.share(open_manifest, context.params["graph"])
        degrees = np.diff(graph.read(f"{relation['folder']}/indptr", begin, end + 1))
        high = degrees >= relation["high"]
        return {"degrees": degrees, "high": np.flatnonzero(high), "low": np.flatnonzero((degrees > 0) & ~high)}

    return resident.get(("blocks", "lists", number, context.index), make)


def emit_values(context: TaskContext, values: Callable[[int, Columns, AnyArray], Float64Array]) -> None:
    """Leave the values of a task's nodes for the next sweep; `values` returns them by relation, lists and positions."""
    params, (_, first, _) = context.params, context.params["nodes"][context.index]
    for number in range(len(params["relations"])):
        ranges = [
            bounds for (of, *bounds), pieces in zip(params["lists"], params["pieces"], strict=True)
            if of == number and any(task == context.index for task, _ in pieces)
        ]  # fmt: skip
        lists = own_lists(context, number) if ranges else {}
        kinds = [(lists[kind], values(number, lists, lists[kind])) for kind in KINDS if ranges]
        for bounds in ranges:
            for columns, passed in kinds:
                begin, end = np.searchsorted(columns, [bound - first for bound in bounds])
                context.write(value=passed[begin:end])


def sum_out_edges(context: TaskContext, active: Sequence[bool] | None = None) -> Float64Array:
    """Sum the values that the step before has left, over the out-edges of a task's nodes in `active` relations."""
    params, shifts = context.params, context.params["shifts"]
    node_type, begin, end = params["nodes"][context.index]
    shift, bounds = shifts[node_type], range_bounds(params["nodes"], node_type)
    before = sum(map(_bin_at, params["sizes"][:node_type], shifts))
    edges = context.read("bins", 0)["edges"]
    own = np.ascontiguousarray(edges[before + _bin_at(begin, shift) : before + _bin_at(end, shift)])
    sums = native.BinSums(end - begin, shift, own, params["all_edges"])
    part, cuts = bounds.index(begin), len(bounds) - 1
    for number, relation in enumerate(params["relations"]):
        tasks = [task for task, (of, _, _) in enumerate(params["lists"]) if of == number]
        for kind in range(len(KINDS) if relation["src"] == node_type else 0):
            for task in tasks:
                at = 2 * (kind * cuts + part)
                edges = context.read("blocks", task, at)["edge"]
                if edges.size:
                    starts = context.read("blocks", task, at + 1)["start"]
                    value = _read_values(context, task, kind) if active is None or active[number] else None
                    sums.add(edges, starts.reshape(-1), value, context.threads)
    return sums.take()


def _read_values(context: TaskContext, task: int, kind: int) -> list[Float64Array]:
    """Return the values of the columns of a kind in a range of lists, in pieces."""
    pieces, before = context.params["pieces"][task], context.params["before"]
    return [context.read(before, owner, first + kind)["value"] for owner, first in pieces]


def chosen_ids(context: TaskContext) -> Int64Array:
    """Return the nodes of a task that were chosen, counted from its first."""
    ids: Int64Array = context.read("chosen", 0, context.index)["ids"] - context.params["nodes"][context.index][1]
    return ids


def chosen_values(context: TaskContext, value: float, rest: float) -> Float64Array:
    """Return `value` for those nodes of a task that were chosen, `rest` for the others."""
    _, begin, end = context.params["nodes"][context.index]
    values = np.full(end - begin, rest)
    values[chosen_ids(context)] = value
    return values
