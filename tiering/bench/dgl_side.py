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
    peer = _graph(dgl, torch, task)
    fanouts = list(task.fanouts)[::-1]
    prob = None if task.weights is None else "weight"
    samplers = [dgl.dataloading.NeighborSampler(fanouts, prob=prob, replace=task.replace) for _ in range(task.threads)]
    lists = [torch.from_numpy(batch) for batch in task.seeds]

    def sample(sampler: Any, batch: Any) -> int:
        return sum(int(block.num_edges()) for block in sampler.sample_blocks(peer, batch)[2])

    for sampler in samplers:
        sample(sampler, lists[0])  # makes its tables on first use
    before = torch.get_num_threads()

    def in_one_batch() -> int:
        torch.set_num_threads(task.threads)
        return sum(sample(samplers[0], batch) for batch in lists)

    def share(t: int) -> int:
        torch.set_num_threads(1)
        return sum(sample(samplers[t], batch) for batch in lists[t :: task.threads])

    with ThreadPoolExecutor(task.threads) as pool:

        def side_by_side() -> int:
            return sum(pool.map(share, range(task.threads)))

        # The table of the fused step is only made when that step runs.
        name = f"dgl {dgl.__version__} NeighborSampler ({'fused' if samplers[0].mapping else 'not fused'})"
        try:
            yield {name: in_one_batch, f"{name}, batches side by side": side_by_side}
        finally:
            torch.set_num_threads(before)


def _graph(dgl: Any, torch: Any, task: SamplingTask) -> Any:
    indptr, indices = task.csc
    edge_ids = torch.empty(0, dtype=torch.int64)  # none given: edge e is entry e
    arrays = (torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64)), edge_ids)
    graph = dgl.graph(("csc", arrays))
    if task.weights is not None:
        graph.edata["weight"] = torch.from_numpy(task.weights)
    return graph
