"""Neighbour sampling by the GPU with a part of the lists in its memory, beside our CPU sampler and one in torch.

The GPU's batches are those of our CPU sampler, bit for bit, which is looked at before anything is timed. The sampler in
torch draws the same number of edges; its graph lies in the memory of the GPU whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.side import GpuSide, Layouts, layouts
from benchmarks.harness import Comparison, Csc, Sizes, expect
from benchmarks.sampling import FANOUTS, SamplingTask, draw_seeds, expect_as_many
from tiering.artifacts.manifest import Relation
from tiering.formats.adjacency_prefix import AdjacencyPrefix, ListBytes
from tiering.formats.layout import Layout
from tiering.loader.gpu.batches import GpuSampler
from tiering.loader.gpu.device import Device
from tiering.sampling import Fanout, NeighborSampler, SamplingOptions

SHARES = (0.0, 0.1, 1.0)
"""Of the bytes of the adjacency: those in the memory of the GPU."""
CPU, TORCH = "our sampler on the CPU", "plain torch on the GPU, graph in its memory"
_BATCHES = 40


class CachedLists(Layout):
    """A layout whose hottest adjacency lists lie in the memory of the GPU, up to a share of all their bytes.

    What the layout says about lists itself does not count.
    """

    share = 0.0

    @classmethod
    def of(cls, path: Path, share: float) -> CachedLists:
        """Open a layout."""
        layout = cls.open(path)
        layout.share = share
        return layout

    @property
    def digest(self) -> str:
        """Another for each share: lists of one digest are loaded once."""
        return f"{super().digest}, {self.share} of the lists"

    def adjacency_prefix(self, relation: Relation | str | None = None) -> AdjacencyPrefix:
        """As many columns from rank 0 on as fit into the share."""
        indptr, _ = self.graph.csc(relation)
        size = ListBytes.of_graph(self.graph, self.graph.relation(relation), weights=False)
        nbytes = size.taken(np.arange(indptr.size), indptr)
        columns = max(0, int(np.searchsorted(nbytes, self.share * nbytes[-1], side="right")) - 1)
        return AdjacencyPrefix.of(columns, int(indptr[columns]), size)


class OnGpu:
    """Our sampler on the GPU with a share of the lists in its memory, and what it samples."""

    def __init__(self, gpu: GpuSide, path: Path, share: float, task: SamplingTask) -> None:
        layout = CachedLists.of(path, share)
        self.host = NeighborSampler(layout.graph, task.options.fanouts, seed=task.options.seed)
        """The CPU's, of the same batches."""
        self._sampler = GpuSampler(layout, self.host, gpu.device)
        resident = {relation: layout.adjacency_prefix(relation).columns for relation in layout.graph.relations}
        expect("sampling on the GPU", self._sampler.columns == resident, "lists in the memory of the GPU")
        self._task = task

    def run(self) -> tuple[int, int]:
        """Sample all batches and wait for them; lists read and edges drawn."""
        lists = edges = 0
        for b, seeds in enumerate(self._task.seeds):
            sample, _ = self._sampler.sample({"node": seeds}, batch=b)
            lists += sum(known["node"] for known in sample.num_nodes[:-1])
            edges += sum(int(drawn.shape[1]) for hop in sample.hops for drawn in hop.values())
        self._sampler.stream.synchronize()
        return lists, edges


def sampling_task(made: Layouts, path: Path, fanouts: tuple[int, ...] = FANOUTS) -> SamplingTask:
    """Up to 40 batches of random nodes of a layout's graph."""
    sizes, graph = made.sizes, CachedLists.open(path).graph
    seeds = draw_seeds(np.random.default_rng(sizes.seed), graph.num_nodes("node"), _BATCHES, made.batch_size)
    options = SamplingOptions(fanouts, made.batch_size, seed=sizes.seed)
    return SamplingTask(graph.csc(graph.relations[0]), seeds, options, sizes.threads)


def sampling(sizes: Sizes) -> list[Comparison]:
    """Fanouts 10,10,10 and batches of 1000, with none, a tenth and all of the adjacency in the memory of the GPU."""
    gpu = GpuSide(sizes)
    with layouts(sizes, with_rows=False) as made:
        path = made.make("layout", "--cpu", "100%")
        task = sampling_task(made, path)
        return [_sampling(gpu, made, path, share, task) for share in SHARES]


def _sampling(gpu: GpuSide, made: Layouts, path: Path, share: float, task: SamplingTask) -> Comparison:
    ours = OnGpu(gpu, path, share, task)
    plain = TorchSampler(gpu.device, task.csc(), task.options.fanouts, made.sizes.seed)
    seeds = [gpu.device.upload(batch) for batch in task.seeds]

    def by_torch() -> int:
        return sum(int(edges.shape[1]) for batch in seeds for edges in plain.sample(batch)[1])

    with ThreadPoolExecutor(task.threads) as pool:

        def by_cpu() -> int:
            return sum(pool.map(lambda b: ours.host.sample(task.seeds[b], batch=b).num_edges, range(len(seeds))))

        edges = ours.run()[1]
        expect("gpu-sampling", by_cpu() == edges, "number of edges")
        expect_as_many("gpu-sampling", TORCH, edges, by_torch())
        return gpu.compare(
            "gpu-sampling", ours.run, {CPU: by_cpu, TORCH: by_torch}, amount=edges, unit="edges",
            **made.about(), batches=len(seeds), adjacency_on_gpu=share, threads=task.threads,
        )  # fmt: skip


class TorchSampler:
    """A plain GPU sampler in torch operations, as one would write it on a CSC that fits; uniform, frontier ``all``.

    It samples on the stream that torch works on. A map from nodes to their local ids is kept in the memory of the GPU,
    too, 8 bytes per node.
    """

    def __init__(self, device: Device, csc: Csc, fanouts: Sequence[Fanout], seed: int) -> None:
        indptr, indices = csc
        self._indptr, self._indices = device.upload(indptr.copy()), device.upload(indices.copy())
        where = self._indptr.device
        self._fanouts = [fanout for fanout in fanouts if isinstance(fanout, int)]
        self._local = torch.full((indptr.size - 1,), -1, dtype=torch.int64, device=where)
        self._generator = torch.Generator(where).manual_seed(seed)

    def sample(self, seeds: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Nodes, seeds first, and per hop edges of shape (2, edges) in local ids."""
        nodes, hops = seeds, []
        self._local[seeds] = torch.arange(len(seeds), device=seeds.device)
        for fanout in self._fanouts:
            src, dst = self._draw(nodes, fanout)
            new = torch.unique(src[self._local[src] < 0])
            self._local[new] = torch.arange(len(nodes), len(nodes) + len(new), device=seeds.device)
            nodes = torch.cat([nodes, new])
            hops.append(torch.stack([self._local[src], dst]))
        self._local[nodes] = -1
        return nodes, hops

    def _draw(self, nodes: Tensor, fanout: int) -> tuple[Tensor, Tensor]:
        """Ids of the sources and places of the destinations of one hop's edges."""
        begins = self._indptr[nodes]
        degrees = self._indptr[nodes + 1] - begins
        taken = torch.arange(fanout, device=nodes.device).expand(len(nodes), fanout)
        many = degrees > fanout
        chosen = torch.where(many.unsqueeze(1), self._subsets(degrees.clamp(min=fanout), fanout), taken)
        real = taken < degrees.unsqueeze(1)
        places = (begins.unsqueeze(1) + chosen)[real]
        destinations = torch.arange(len(nodes), device=nodes.device).unsqueeze(1).expand_as(real)[real]
        return self._indices[places].long(), destinations

    def _subsets(self, degrees: Tensor, fanout: int) -> Tensor:
        """Floyd's algorithm, a column per draw: `fanout` distinct places below each degree, all sets equally likely."""
        chosen = torch.full((len(degrees), fanout), -1, dtype=torch.int64, device=degrees.device)
        size = (len(degrees), fanout)
        shares = torch.rand(size, generator=self._generator, device=degrees.device, dtype=torch.float64)
        for k in range(fanout):
            last = degrees - fanout + k
            drawn = (shares[:, k] * (last + 1)).long()
            again = (chosen[:, :k] == drawn.unsqueeze(1)).any(dim=1)
            chosen[:, k] = torch.where(again, last, drawn)
        return chosen
