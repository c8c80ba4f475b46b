"""Sums over out-edges, in tasks, for scores that sweep over the edges.

``histogram``  how many edges the lists of runs of nodes have.
``count``      how many edges of a range of lists have their source in each bin.
``blocks``     the edges of a range of lists by range of sources: those of columns of high in-degree, numbered among
               themselves, then the others; in each by bin, in a bin in their own order.

What a method sums, it hands over by range of lists (a value for each list), and gets by range of sources. A bin is
summed by one task, in the order in which one process sums it (``out_edge_sums.hpp``): relations in list order, columns
of high degree first, columns ascending, in pieces that the graph alone decides. The sums are the same bytes for any
ranges. Memory: `EDGE_BYTES` for each edge of a range of lists and 40 for each of its nodes; `NODE_BYTES` for each node
of a range of sources and 8 for each list of the largest range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Manifest
from tiering.formats.graph import relation_folder
from tiering.formats.shape import SizedGraph
from tiering.run.grid import Grid, balanced_bounds, equal_bounds, run_shift
from tiering.run.job import Job
from tiering.run.step import Step, TaskContext

AnyArray = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
_HERE = "tiering.scores.tasks.sweeps"
EDGE_BYTES, NODE_BYTES = 56, 64
KINDS = 2
"""Columns of high in-degree, and the others."""


class Ranges:
    """How the lists of all relations and the nodes of all types are cut, as tasks see it: the params of a step."""

    def __init__(self, params: Any) -> None:
        self.params = params
        self.relations: list[dict[str, Any]] = params["relations"]
        self.num_nodes: list[int] = params["num_nodes"]

    @cached_property
    def list_tasks(self) -> list[tuple[int, int]]:
        """Relation and range of each task that has lists."""
        return [(r, i) for r, bounds in enumerate(self.params["lists"]) for i in range(len(bounds) - 1)]

    @cached_property
    def node_tasks(self) -> list[tuple[int, int]]:
        """Type and range of each task that has nodes."""
        return [(t, j) for t, bounds in enumerate(self.params["nodes"]) for j in range(len(bounds) - 1)]

    def lists(self, index: int) -> tuple[dict[str, Any], int, int]:
        """Return the relation of a task, and its lists: the first, and the one behind the last."""
        relation, part = self.list_tasks[index]
        begin, end = self.params["lists"][relation][part : part + 2]
        return self.relations[relation], begin, end

    def nodes(self, index: int) -> tuple[int, int, int]:
        """Return the type of a task, and its nodes."""
        node_type, part = self.node_tasks[index]
        begin, end = self.params["nodes"][node_type][part : part + 2]
        return node_type, begin, end

    def read_nodes(self, context: TaskContext, step: str, node_type: int, begin: int, end: int) -> dict[str, AnyArray]:
        """Return the columns of nodes [begin, end) of a type, which tasks with nodes have left as their part 0."""
        parts = []
        for task, low in self._with_some(node_type, begin, end):
            columns = context.read(step, task)
            parts.append({key: a[max(0, begin - low) : max(0, end - low)] for key, a in columns.items()})
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _with_some(self, node_type: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield tasks that have some of nodes [begin, end) of a type, and their first node; one for none of them."""
        for task, (of_type, part) in enumerate(self.node_tasks):
            low, high = self.params["nodes"][of_type][part : part + 2]
            if of_type == node_type and ((low < end and begin < high) or low <= begin == end < high):
                yield task, low


@dataclass(frozen=True)
class Sweeps:
    """Edges that are in blocks, ready for sweeps."""

    params: dict[str, Any]
    """For steps that take part: `Ranges` of the tasks, and what sums need."""
    list_memory: int
    node_memory: int

    @property
    def ranges(self) -> Ranges:
        """Ranges of nodes and of lists that tasks divide the graph into."""
        return Ranges(self.params)


def task_bytes(graph: SizedGraph) -> int:
    """Return the bytes of a task that had all edges and nodes."""
    lists = sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    return graph.num_edges() * EDGE_BYTES + 40 * lists + NODE_BYTES * graph.num_nodes()


def make_blocks(job: Job, graph: SizedGraph) -> Sweeps:
    """Have the edges of all relations brought into blocks."""
    types = list(graph.node_types)
    params: dict[str, Any] = {
        "graph": str(graph.path),
        "num_nodes": [graph.num_nodes(name) for name in types],
        "shifts": [native.source_bin_shift(max(1, graph.num_nodes(name))) for name in types],
        "relations": [
            {
                "folder": relation_folder(r), "src": types.index(r[0]), "dst": types.index(r[2]),
                "edges": graph.num_edges(r), "columns": graph.num_nodes(r[2]),
                "high": native.high_column_degree(graph.num_nodes(r[2]), max(1, graph.num_nodes(r[0]))),
            }
            for r in graph.relations
        ],
    }  # fmt: skip
    params["lists"], most = _cut_lists(job, params)
    list_tasks = len(Ranges({**params, "nodes": []}).list_tasks)
    count = Step("count", f"{_HERE}:count", list_tasks, {**params, "nodes": []}, memory=most)
    job.run(count)
    bins = [np.zeros(_bins(params, t), np.int64) for t in range(len(types))]
    for task, (relation, _) in enumerate(Ranges({**params, "nodes": []}).list_tasks):
        bins[params["relations"][relation]["src"]] += job.read("count", task)["edges"]
    params["nodes"] = [_cut_nodes(params, t, edges, job.grid) for t, edges in enumerate(bins)]
    params["all_edges"] = sum(int(edges.sum()) for edges in bins)
    params["bins"] = job.broadcast("bins", {"edges": np.concatenate([*bins, np.empty(0, np.int64)])}).name
    blocks = Step("blocks", f"{_HERE}:blocks", list_tasks, params, memory=most)
    job.run(blocks)
    params["blocks"] = blocks.name
    ranges = Ranges(params)
    widest = max((end - begin for t in range(list_tasks) for _, begin, end in [ranges.lists(t)]), default=0)
    nodes = max((end - begin for k in range(len(ranges.node_tasks)) for _, begin, end in [ranges.nodes(k)]), default=0)
    return Sweeps(params, 64 * widest + 2 * BLOCK_BYTES, NODE_BYTES * nodes + 8 * widest + most // 4)


def _bins(params: Any, node_type: int) -> int:
    """Return the bins of the sources of a type."""
    return _bin_at(params["num_nodes"][node_type], params["shifts"][node_type])


def _cut_lists(job: Job, params: dict[str, Any]) -> tuple[list[list[int]], int]:
    """Return ranges of the lists of each relation, of about the same number of edges, and what the largest takes."""
    parts = [
        job.grid.parts(r["edges"] * EDGE_BYTES + 40 * r["columns"]) if r["columns"] else 0 for r in params["relations"]
    ]
    shifts = [run_shift(r["columns"]) for r in params["relations"]]
    even = [equal_bounds(r["columns"], p) if p else [0] for r, p in zip(params["relations"], parts, strict=True)]
    own = {**params, "nodes": [], "lists": even, "runs": shifts}
    largest = max((-(-r["columns"] // p) for r, p in zip(params["relations"], parts, strict=True) if p), default=0)
    sizes = [((r["columns"] - 1) >> shift) + 1 for r, shift in zip(params["relations"], shifts, strict=True)]
    histogram = Step("histogram", f"{_HERE}:histogram", sum(parts), own, memory=16 * largest + 2 * BLOCK_BYTES)
    job.run(histogram)
    cuts, most, task = [], 0, 0
    for relation, count, shift, size in zip(params["relations"], parts, shifts, sizes, strict=True):
        if not count:
            cuts.append([0])
            continue
        edges = sum((job.read("histogram", task + part)["edges"] for part in range(count)), np.zeros(size, np.int64))
        task += count
        columns = np.minimum(1 << shift, relation["columns"] - (np.arange(edges.size) << shift))
        runs = balanced_bounds(edges * EDGE_BYTES + columns * 40, count)
        cuts.append([min(run << shift, relation["columns"]) for run in runs])
        for low, high in pairwise(runs):
            most = max(most, int(edges[low:high].sum()) * EDGE_BYTES + (high - low << shift) * 40)
    return cuts, most + 2 * BLOCK_BYTES


def _cut_nodes(params: dict[str, Any], node_type: int, edges: AnyArray, grid: Grid) -> list[int]:
    """Return the ranges of the nodes of a type: whole bins, with about the same number of out-edges."""
    count, shift = params["num_nodes"][node_type], params["shifts"][node_type]
    if not count:
        return [0]
    parts = grid.parts(count * NODE_BYTES + int(edges.sum()) * 8)
    bins = balanced_bounds(edges * 8 + (NODE_BYTES << shift), parts)
    return sorted({min(count, b << shift) for b in bins})


def histogram(context: TaskContext) -> None:
    """Count the edges of the lists of a range, by run."""
    relation, begin, end = Ranges(context.params).lists(context.index)
    shift = context.params["runs"][context.params["relations"].index(relation)]
    indptr = _offsets(open_manifest(context.params["graph"]), relation, begin, end)
    native.check_indptr(indptr - indptr[0], int(indptr[-1] - indptr[0]), context.threads)
    edges = np.zeros(((relation["columns"] - 1) >> shift) + 1, np.int64)
    np.add.at(edges, np.arange(begin, end) >> shift, np.diff(indptr))
    context.write(edges=edges)


def count(context: TaskContext) -> None:
    """Count the edges of a range of lists by bin of their source."""
    relation, begin, end = Ranges(context.params).lists(context.index)
    _, sources = _entries(context, relation, begin, end)
    bins = sources >> context.params["shifts"][relation["src"]]
    context.write(edges=np.bincount(bins, minlength=_bins(context.params, relation["src"])).astype(np.int64))


def blocks(context: TaskContext) -> None:
    """Emit the edges of a range of lists: of each kind of column, by range of sources."""
    params, ranges = context.params, Ranges(context.params)
    relation, begin, end = ranges.lists(context.index)
    degrees, sources = _entries(context, relation, begin, end)
    shift, bins, cuts = params["shifts"][relation["src"]], _bins(params, relation["src"]), params["nodes"]
    high = degrees >= relation["high"]
    numbers = np.where(high, np.cumsum(high) - 1, np.arange(end - begin)).astype(np.uint32)
    low = np.repeat(~high, degrees)
    order, counts = native.partition((sources >> shift) + low * bins, np.arange(KINDS * bins + 1), context.threads)
    columns = np.repeat(numbers, degrees)[order]
    sources = sources[order]
    ends = np.concatenate([[0], np.cumsum(counts)])
    for kind in range(KINDS):
        for first, stop in pairwise(cuts[relation["src"]]):
            a, b = (int(ends[kind * bins + _bin_at(node, shift)]) for node in (first, stop))
            context.write(source=(sources[a:b] - first).astype(np.uint32), column=columns[a:b])


def emit_values(context: TaskContext, values: Doubles, degrees: AnyArray, relation: Mapping[str, Any]) -> None:
    """Leave the values of a range of lists as the first parts: those of columns of high degree, then of all."""
    context.write(value=values[degrees >= relation["high"]])
    context.write(value=values)


def _bin_at(node: int, shift: int) -> int:
    """Return the bin that begins with a node; behind the last node, the number of bins."""
    return -(-node // (1 << shift))


def _offsets(graph: Manifest, relation: dict[str, Any], begin: int, end: int) -> AnyArray:
    return graph.read(f"{relation['folder']}/indptr", begin, end + 1)


def _entries(context: TaskContext, relation: dict[str, Any], begin: int, end: int) -> tuple[AnyArray, AnyArray]:
    """Return the in-degrees of lists [begin, end), and their entries."""
    graph = open_manifest(context.params["graph"])
    indptr = _offsets(graph, relation, begin, end)
    first, last = int(indptr[0]), int(indptr[-1])
    sources = graph.read(f"{relation['folder']}/indices", first, last)
    native.check_csc(indptr - first, sources, context.params["num_nodes"][relation["src"]], context.threads)
    return np.diff(indptr), sources


def degrees_of(context: TaskContext, relation: dict[str, Any], begin: int, end: int) -> npt.NDArray[np.int64]:
    """Return the in-degrees of lists [begin, end)."""
    return np.diff(_offsets(open_manifest(context.params["graph"]), relation, begin, end))


def sum_out_edges(context: TaskContext, values: str, active: Sequence[bool]) -> Doubles:
    """Sum what step `values` has for lists over the out-edges of a task's nodes, by `emit_values`.

    `active`: relations that add anything.
    """
    params, ranges = context.params, Ranges(context.params)
    node_type, begin, end = ranges.nodes(context.index)
    shift, before = params["shifts"][node_type], sum(_bins(params, t) for t in range(node_type))
    edges = context.read(params["bins"], 0)["edges"][before : before + _bins(params, node_type)]
    own = np.ascontiguousarray(edges[_bin_at(begin, shift) : _bin_at(end, shift)])
    sums = native.BlockSums(end - begin, shift, own, params["all_edges"])
    cuts = len(params["nodes"][node_type]) - 1
    part = ranges.node_tasks[context.index][1]
    for number, relation in enumerate(ranges.relations):
        if relation["src"] != node_type:
            continue
        tasks = [task for task, (r, _) in enumerate(ranges.list_tasks) if r == number]
        for kind in range(KINDS):
            for task in tasks:
                block = context.read(params["blocks"], task, kind * cuts + part)
                if block["source"].size:
                    value = context.read(values, task, kind)["value"] if active[number] else None
                    sums.add(block["source"], block["column"], value, context.threads)
    return sums.take()


def bin_sums(values: Doubles, shift: int) -> Doubles:
    """Return the sums of the values of each bin, one after the other."""
    return np.array([values[at : at + (1 << shift)].cumsum()[-1] for at in range(0, values.size, 1 << shift)])


def give_chosen(job: Job, graph: SizedGraph, sweeps: Sweeps, chosen: Mapping[str, npt.NDArray[np.int64]]) -> list[str]:
    """Hand nodes over by type and range, ascending: the steps that `chosen_values` reads."""
    none, steps = np.empty(0, np.int64), []
    for number, name in enumerate(graph.node_types):
        ids = np.sort(chosen.get(name, none))
        ends = np.searchsorted(ids, sweeps.params["nodes"][number]).tolist()
        steps.append(job.broadcast(f"chosen-{number}", {"ids": ids}, ends).name)
    return steps


def chosen_values(context: TaskContext, value: float, rest: float) -> Doubles:
    """Return `value` for those nodes of a task that were chosen, `rest` for the others."""
    ranges = Ranges(context.params)
    node_type, begin, end = ranges.nodes(context.index)
    ids = context.read(context.params["chosen"][node_type], 0, ranges.node_tasks[context.index][1])["ids"]
    values = np.full(end - begin, rest)
    values[ids - begin] = value
    return values
