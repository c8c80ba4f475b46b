"""Neighbour sampling by the GPU with a part of the lists in its memory, beside our CPU sampler and one in torch.

The GPU's batches are those of our CPU sampler, bit for bit, which is looked at before anything is timed. The sampler in
torch draws the same number of edges; its graph lies in the memory of the GPU whole.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tiering.bench.gpu_layouts import HeldLists, Layouts, layouts
from tiering.bench.gpu_side import GpuSide
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect
from tiering.bench.sampling import expect_as_many
from tiering.bench.sampling_task import FANOUTS, SamplingTask
from tiering.bench.sizes import Sizes
from tiering.loader.gpu.sampler import GpuSampler
from tiering.sampling import NeighborSampler, SamplingOptions

SHARES = (0.0, 0.1, 1.0)
"""Of the bytes of the adjacency: those in the memory of the GPU."""
CPU, TORCH = "our sampler on the CPU", "plain torch on the GPU, graph in its memory"
_BATCHES = 40


class OnGpu:
    """Our sampler on the GPU with a share of the lists in its memory, and what it samples."""

    def __init__(self, gpu: GpuSide, path: Path, share: float, task: SamplingTask) -> None:
        layout = HeldLists.holding(path, share)
        self.host = NeighborSampler(layout.graph, task.fanouts, seed=task.options.seed)
        """The CPU's, of the same batches."""
        self._sampler = GpuSampler(layout, self.host, gpu.device)
        held = {relation: layout.adjacency_prefix(relation).columns for relation in layout.graph.relations}
        expect("sampling on the GPU", self._sampler.columns == held, "lists in the memory of the GPU")
        self._task = task

    def run(self) -> tuple[int, int]:
        """Sample all batches and wait for them; lists read and edges drawn."""
        lists = edges = 0
        for b, seeds in enumerate(self._task.seeds):
            sample = self._sampler.sample({"node": seeds}, batch=b)
            lists += sum(known["node"] for known in sample.num_nodes[:-1])
            edges += sum(int(each.shape[1]) for hop in sample.hops for each in hop.values())
        self._sampler.stream.synchronize()
        return lists, edges


def sampling_task(made: Layouts, path: Path, fanouts: tuple[int, ...] = FANOUTS) -> SamplingTask:
    """Up to 40 batches of random nodes of a layout's graph."""
    sizes, graph = made.sizes, HeldLists.open(path).graph
    nodes, size = graph.num_nodes("node"), made.batch_size
    batches = min(_BATCHES, nodes // size)
    seeds = np.random.default_rng(sizes.seed).permutation(nodes)[: batches * size].reshape(batches, size)
    options = SamplingOptions(fanouts, size, seed=sizes.seed)
    return SamplingTask(graph.csc(graph.relations[0]), seeds.astype(np.int64), options, sizes.threads)


def bench_gpu_sampling(sizes: Sizes) -> list[Comparison]:
    """Fanouts 10,10,10 and batches of 1000, with none, a tenth and all of the adjacency in the memory of the GPU."""
    gpu = GpuSide(sizes)
    with layouts(sizes, with_rows=False) as made:
        path = made.make("layout", "--cpu", "100%")
        task = sampling_task(made, path)
        return [_sampling(gpu, made, path, share, task) for share in SHARES]


def _sampling(gpu: GpuSide, made: Layouts, path: Path, share: float, task: SamplingTask) -> Comparison:
    from tiering.bench.gpu_torch_sampler import TorchSampler

    ours = OnGpu(gpu, path, share, task)
    plain = TorchSampler(gpu.device, task.csc, task.fanouts, made.sizes.seed)
    seeds = [gpu.device.upload(batch) for batch in task.seeds]

    def by_torch() -> int:
        return sum(int(edges.shape[1]) for batch in seeds for edges in plain.sample(batch)[1])

    with ThreadPoolExecutor(task.threads) as pool:

        def by_cpu() -> int:
            return sum(pool.map(lambda b: ours.host.sample(task.seeds[b], batch=b).num_edges, range(len(seeds))))

        edges = ours.run()[1]
        expect("gpu-sampling", by_cpu() == edges, "number of edges")
        expect_as_many("gpu-sampling", TORCH, edges, by_torch())
        about: dict[str, Any] = {
            **made.about(), "batches": len(seeds), "adjacency_on_gpu": share, "threads": task.threads
        }  # fmt: skip
        return gpu.compare(
            "gpu-sampling", ours.run, {CPU: by_cpu, TORCH: by_torch}, amount=edges, unit="edges", **about
        )
