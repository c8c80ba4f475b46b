"""Sweeps over the edges in one process: their memory, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering import native
from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.memory import Budget, available_memory
from tiering.run.grid import Int64Array
from tiering.scores.request import SLACK, MemoryNeed, ScoreRequest, TrainSet

NodeValues: TypeAlias = "tuple[float, float, Int64Array]"
"""Values of the nodes of a type, as the core takes them: of most nodes, of some nodes, and their ascending ids."""
DirectFile: TypeAlias = tuple[str, "Callable[[int, memoryview], None] | None"]

SAMPLED_BLOCKS = 256  # blocks of columns, spread over all, whose degrees are sampled
BLOCK_COLUMNS = 4096  # consecutive columns of a sampled block


def sweep_need(graph: SizedGraph, threads: int, sweeps: int) -> MemoryNeed:
    """Return the memory of sweeps over a graph of these sizes; the core has the formulas (``sum_plan.hpp``)."""
    minimum, recommended, _ = native.plan_sweeps(_sizes(graph, sampled=False), threads)
    return MemoryNeed(minimum + SLACK, recommended + SLACK, "", sweeps=sweeps)


def scratch_bytes(graph: SizedGraph, request: ScoreRequest, need: MemoryNeed) -> int:
    """Return about how many bytes of edges sweeps of this graph keep on disk."""
    files = past_the_cache(4 * graph.num_edges(), request.budget, need)
    memory = request.budget.left() - SLACK // 2 - need.fixed
    return native.plan_sweeps(_sizes(graph, sampled=True), request.threads, memory, files)[2]


def sweep_arguments(graph: Graph, request: ScoreRequest, need: MemoryNeed) -> dict[str, Any]:
    """Return the arguments of the core that all its sweeps take."""
    types = list(graph.node_types)
    return {
        "relations": [(types.index(r[0]), types.index(r[2]), *graph.csc(r)) for r in graph.relations],
        "num_nodes": [graph.num_nodes(node_type) for node_type in types],
        "threads": request.threads,
        "memory": max(0, request.budget.left() - SLACK // 2 - 8 * request.train_size),  # training nodes in order
        "scratch": str(request.scratch),
        "files": _direct_files(graph, request.budget, need),
    }


def node_values(graph: Graph, chosen: TrainSet, value: float, rest: float) -> list[NodeValues]:
    """Return arrays per node type: `value` for the `chosen` nodes, `rest` for the others."""
    return [(rest, value, np.sort(chosen.get(t, np.empty(0, np.int64)))) for t in graph.node_types]


def past_the_cache(nbytes: int, budget: Budget, need: MemoryNeed) -> bool:
    """Return whether so many bytes of indices are more than a method leaves to the page cache."""
    return nbytes > max(0, available_memory() - min(need.recommended, budget.left()))


def _sizes(graph: SizedGraph, *, sampled: bool) -> list[tuple[int, int, int, Int64Array]]:
    """Return for each relation: nodes of both types, edges, and a sample of the in-degrees if it is requested."""
    none = np.empty(0, np.int64)
    return [
        (graph.num_nodes(r[0]), graph.num_nodes(r[2]), graph.num_edges(r), _degrees(graph, r) if sampled else none)
        for r in graph.relations
    ]


def _degrees(graph: SizedGraph, relation: tuple[str, str, str]) -> Int64Array:
    """Return the in-degrees of some nodes; of a graph that is not there yet, as if every column were like any other."""
    count = graph.num_nodes(relation[2])
    if not isinstance(graph, Graph):
        return np.full(1, -(-graph.num_edges(relation) // max(1, count)))
    indptr = graph.csc(relation)[0]
    starts = range(0, max(1, count), max(BLOCK_COLUMNS, count // SAMPLED_BLOCKS))
    return np.concatenate([np.diff(indptr[start : min(count, start + BLOCK_COLUMNS) + 1]) for start in starts])


def _direct_files(graph: Graph, budget: Budget, need: MemoryNeed) -> list[DirectFile]:
    """Return each relation's file of indices, "" where the page cache holds them all, and its verifier, if any."""
    arrays = [graph.csc(relation)[1] for relation in graph.relations]
    large = past_the_cache(sum(indices.nbytes for indices in arrays), budget, need)
    verifiers = [getattr(indices, "verifier", None) for indices in arrays]
    return [
        (_whole_file(indices) if large else "", None if verifier is None else verifier.update)
        for indices, verifier in zip(arrays, verifiers, strict=True)
    ]


def _whole_file(array: np.ndarray[Any, Any]) -> str:
    """Return the file that an array maps from its begin to its end; "" if there is none."""
    if not isinstance(array, np.memmap) or array.filename is None or array.offset != 0:
        return ""
    path = Path(array.filename)
    return str(path) if path.stat().st_size == array.nbytes else ""
