"""DGL's NeighborSampler as a side of the sampling benchmarks.

DGL 1.1 samples a hop and numbers its nodes in one fused step where graph and seeds lie on the CPU, the backend is
torch, and nobody asked otherwise (``NeighborSampler(fused=True)``, the default); the peer's name says whether it did.
Ids are int64: with int32 ids the fused step of 1.1.3 returns only about half the edges.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiering.bench.sampling_task import SamplingTask, Sides


@contextmanager
def dgl_sides(task: SamplingTask) -> Iterator[Sides]:
    """DGL with all its threads in one batch, and with batches side by side."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        torch, dgl = importlib.import_module("torch"), importlib.import_module("dgl")
    except Exception as error:  # DGL fails in many ways beside ImportError
        yield {"dgl": f"not installed or not loadable ({type(error).__name__}: {error})"}
        return
    if task.options.sampler not in _SIDES:
        yield {"dgl": f"has no sampler {task.options.sampler!r}"}
        return
    kind, layout = _SIDES[task.options.sampler]
    graph = _graph(dgl, torch, task, layout)
    samplers = [kind(dgl, graph, task) for _ in range(task.threads)]
    lists = [torch.from_numpy(batch) for batch in task.seeds]
    for sampler in samplers:
        sampler.sample(lists[0])  # makes its tables on first use
    before = torch.get_num_threads()

    def in_one_batch() -> int:
        torch.set_num_threads(task.threads)
        return sum(samplers[0].sample(batch) for batch in lists)

    def share(t: int) -> int:
        torch.set_num_threads(1)
        return sum(samplers[t].sample(batch) for batch in lists[t :: task.threads])

    with ThreadPoolExecutor(task.threads) as pool:

        def side_by_side() -> int:
            return sum(pool.map(share, range(task.threads)))

        name = f"dgl {dgl.__version__} {samplers[0].name}"
        try:
            yield {name: in_one_batch, f"{name}, batches side by side": side_by_side}
        finally:
            torch.set_num_threads(before)


class _Neighbours:
    """NeighborSampler."""

    def __init__(self, dgl: Any, graph: Any, task: SamplingTask) -> None:
        self._graph = graph
        prob = None if task.weights is None else "weight"
        self._sampler = dgl.dataloading.NeighborSampler(task.fanouts[::-1], prob=prob, replace=task.replace)

    @property
    def name(self) -> str:
        """What ran: the table of the fused step is only made when that step runs."""
        return f"NeighborSampler ({'fused' if self._sampler.mapping else 'not fused'})"

    def sample(self, seeds: Any) -> int:
        """Edges of one batch."""
        return sum(int(block.num_edges()) for block in self._sampler.sample_blocks(self._graph, seeds)[2])


class _Walks:
    """RandomWalkNeighborSampler, hop by hop. It walks along the edges: of the reversed graph, as ours is defined."""

    name = "RandomWalkNeighborSampler"

    def __init__(self, dgl: Any, graph: Any, task: SamplingTask) -> None:
        self._dgl = dgl
        how = task.options
        self._hops = [
            dgl.sampling.RandomWalkNeighborSampler(graph, how.walk_length, how.restart, how.num_walks, fanout)
            for fanout in task.fanouts
        ]

    def sample(self, seeds: Any) -> int:
        """Edges of one batch."""
        edges = 0
        for hop in self._hops:
            block = self._dgl.to_block(hop(seeds), seeds)
            edges += int(block.num_edges())
            seeds = block.srcdata[self._dgl.NID]
        return edges


_SIDES: dict[str, tuple[Any, str]] = {
    "uniform": (_Neighbours, "csc"),
    "replacement": (_Neighbours, "csc"),
    "weighted": (_Neighbours, "csc"),
    "pinsage": (_Walks, "csr"),
}
"""Per sampler DGL's, and the layout of `_graph` that it wants."""


def _graph(dgl: Any, torch: Any, task: SamplingTask, layout: str) -> Any:
    """The graph (``csc``), or the reversed graph, whose CSR is the graph's CSC (``csr``)."""
    indptr, indices = task.csc
    edge_ids = torch.empty(0, dtype=torch.int64)  # none given: edge e is entry e
    graph = dgl.graph((layout, (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), edge_ids)))
    if task.weights is not None:
        graph.edata["weight"] = torch.from_numpy(task.weights)
    return graph
