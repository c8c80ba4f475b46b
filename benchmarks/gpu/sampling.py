"""Neighbor sampling by the GPU with a part of the lists in its memory, against our CPU sampler and others on the GPU.

The GPU's batches are those of our CPU sampler, bit for bit, which is looked at before anything is timed. The sampler in
torch draws the same number of edges; its graph lies in the memory of the GPU whole. That of the reference kernels does
where all of ours does, and else in host memory. Where lists lie there, the floor is a copy of the sectors of 32 bytes
that a batch touches, each counted once: what a GPU reads over the link at least.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from benchmarks.gpu.host_memory import LinkCopy, PinnedArray
from benchmarks.gpu.peer_samplers import ReferenceSampler, TorchSampler, sampled_edges, wrong_draw
from benchmarks.gpu.reference import load
from benchmarks.gpu.side import GpuSide, Layouts, layouts
from benchmarks.harness import Comparison, Sizes, Work, expect
from benchmarks.sampling import FANOUTS, SamplingTask, draw_seeds, expect_as_many
from tiering.artifacts.manifest import Relation
from tiering.errors import TieringError
from tiering.formats.adjacency_prefix import INDPTR_BYTES, AdjacencyPrefix, ListBytes
from tiering.formats.layout import Layout
from tiering.loader.gpu.batches import GpuSampler
from tiering.sampling import NeighborSampler, SampledBatch, SamplingOptions
from tiering.text.units import format_bytes

SHARES = (0.0, 0.1, 1.0)
"""Fractions of the adjacency's bytes in the memory of the GPU."""
CPU, TORCH = "our sampler on the CPU", "plain torch on the GPU, graph in its memory"
REFERENCE = "reference kernels: random keys sorted list by list (as cuGraph, GraphBolt)"
SECTORS = "sectors of 32 bytes that lists in host memory touch, copied"
_SECTOR = 32
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
        """Return as many columns from rank 0 on as fit into the share."""
        indptr, _ = self.graph.csc(relation)
        size = ListBytes.of_graph(self.graph, self.graph.relation(relation), weights=False)
        nbytes = size.prefix_bytes(np.arange(indptr.size), indptr)
        columns = max(0, int(np.searchsorted(nbytes, self.share * nbytes[-1], side="right")) - 1)
        return AdjacencyPrefix.of(columns, int(indptr[columns]), size)


class OnGpu:
    """Our sampler on the GPU with a share of the lists in its memory, and what it samples."""

    def __init__(self, gpu: GpuSide, path: Path, share: float, task: SamplingTask) -> None:
        layout = CachedLists.of(path, share)
        self.host = NeighborSampler(layout.graph, task.options.fanouts, seed=task.options.seed)
        """The CPU's, of the same batches."""
        lists = {relation: layout.adjacency_prefix(relation) for relation in layout.graph.relations}
        self._sampler = GpuSampler(layout.graph, lists, self.host, gpu.device)
        resident = {relation: prefix.columns for relation, prefix in lists.items()}
        expect("sampling on the GPU", self._sampler.columns == resident, "lists in the memory of the GPU")
        self._task, self._layout = task, layout

    def bytes_over_link(self) -> int:
        """Return the bytes of the sectors in host memory that the batches touch."""
        (relation,) = self._layout.graph.relations
        columns, size = self._sampler.columns[relation], ListBytes.of_graph(self._layout.graph, relation, False)
        indptr, _ = self._layout.graph.csc(relation)
        batches = (self.host.sample(seeds, batch=b, positions=True) for b, seeds in enumerate(self._task.seeds))
        return _SECTOR * sum(touched_sectors(batch, columns, int(indptr[columns]), size) for batch in batches)

    def run(self) -> tuple[int, int]:
        """Sample all batches and wait for them; lists read and edges drawn."""
        lists = edges = 0
        for b, seeds in enumerate(self._task.seeds):
            sample, _ = self._sampler.sample({"node": seeds}, batch=b)
            lists += sum(known["node"] for known in sample.num_nodes[:-1])
            edges += sum(int(drawn.shape[1]) for hop in sample.hops for drawn in hop.values())
        self._sampler.stream.synchronize()
        return lists, edges


def touched_sectors(sample: SampledBatch, columns: int, edges: int, size: ListBytes) -> int:
    """Return the sectors of host memory that a batch reads of lists.

    `columns` of them with `edges` entries lie in the memory of the GPU. Read are begins and ends of lists, keys of
    those that sample, and the entries drawn.
    """
    lists = sample.nodes["node"][: sample.num_nodes[-2]["node"]]
    lists = lists[lists >= columns]
    positions = [drawn.positions for hop in sample.hops for drawn in hop.values() if drawn.positions is not None]
    entries = np.concatenate(positions)
    entries = entries[entries >= edges]
    return sum(
        _sectors(items * width, length)
        for items, width, length in (
            (lists, INDPTR_BYTES, 2 * INDPTR_BYTES),
            (lists, size.key, size.key),
            (entries, size.index, size.index),
        )
        if length
    )


def _sectors(begins: npt.NDArray[np.int64], length: int) -> int:
    """Return different sectors under items of `length` bytes, at most a sector's, at these places."""
    return int(np.unique(np.concatenate([begins // _SECTOR, (begins + length - 1) // _SECTOR])).size)


def sampling_task(made: Layouts, path: Path, fanouts: tuple[int, ...] = FANOUTS) -> SamplingTask:
    """Return up to 40 batches of random nodes of a layout's graph."""
    sizes, graph = made.sizes, CachedLists.open(path).graph
    seeds = draw_seeds(np.random.default_rng(sizes.seed), graph.num_nodes("node"), _BATCHES, made.batch_size)
    options = SamplingOptions(fanouts, made.batch_size, seed=sizes.seed)
    return SamplingTask(graph.csc(graph.relations[0]), seeds, options, sizes.threads)


def sampling(sizes: Sizes) -> list[Comparison]:
    """Measure fanouts 10,10,10, batches of 1000, with none, a tenth and all of the adjacency in the GPU's memory."""
    gpu = GpuSide(sizes)
    with layouts(sizes, with_rows=False) as made:
        path = made.make("layout", "--cpu", "100%")
        task = sampling_task(made, path)
        return [_sampling(gpu, made, path, share, task) for share in SHARES]


def _sampling(gpu: GpuSide, made: Layouts, path: Path, share: float, task: SamplingTask) -> Comparison:
    ours = OnGpu(gpu, path, share, task)
    plain = TorchSampler(gpu.device, task.csc(), task.options.fanouts, made.sizes.seed)
    seeds = [gpu.device.upload(batch) for batch in task.seeds]
    touched = ours.bytes_over_link()

    def by_torch() -> int:
        return sampled_edges(plain, seeds)

    with ThreadPoolExecutor(task.threads) as pool:

        def by_cpu() -> int:
            return sum(pool.map(lambda b: ours.host.sample(task.seeds[b], batch=b).num_edges, range(len(seeds))))

        edges = ours.run()[1]
        expect("gpu-sampling", by_cpu() == edges, "number of edges")
        expect_as_many("gpu-sampling", TORCH, edges, by_torch())
        peers: dict[str, Work | str] = {CPU: by_cpu, TORCH: by_torch}
        peers[REFERENCE] = _reference(gpu, task, seeds, share == 1, edges)
        floor: list[tuple[Work, float]] = [(LinkCopy(gpu.device, touched).run, 1.0)] if touched else []
        return gpu.compare(
            "gpu-sampling", ours.run, peers, amount=edges, unit="edges", floor=floor, floor_name=SECTORS,
            targets={CPU: 15.0, REFERENCE: 1.0} if share == 1 else {SECTORS: 1 / 1.3}, **made.about(),
            batches=len(seeds), adjacency_on_gpu=share, over_link=format_bytes(touched), threads=task.threads,
        )  # fmt: skip


def _reference(gpu: GpuSide, task: SamplingTask, seeds: list[Tensor], local: bool, edges: int) -> Work | str:
    """Return a pass by the reference kernels, all lists in the memory of the GPU or of the host; else why not."""
    kernels = load(gpu)
    if isinstance(kernels, str):
        return kernels
    indptr, indices = task.csc()
    held: list[Any] = [(gpu.device.upload if local else partial(PinnedArray, gpu.device))(a) for a in (indptr, indices)]
    begins, ids = (array.data_ptr() if local else array.address for array in held)
    lists, fanouts = (begins, ids, indices.itemsize), task.options.fanouts
    sampler = ReferenceSampler(gpu.device, kernels, lists, indptr.size - 1, fanouts, task.options.seed)

    def run() -> int:
        return sampled_edges(sampler, seeds) if held else 0  # holds the arrays, of which it knows the addresses alone

    try:
        nodes, hops = sampler.sample(seeds[0])
        known, (sources, destinations) = nodes.cpu().numpy(), hops[0].cpu().numpy()
        fanout = next(fanout for fanout in fanouts if isinstance(fanout, int))
        wrong = wrong_draw((indptr, indices), task.seeds[0], fanout, known[sources], destinations)
        if not wrong:
            expect_as_many("gpu-sampling", REFERENCE, edges, run())
    except (TieringError, RuntimeError) as error:  # torch's own, where memory of the GPU is short
        wrong = str(error).splitlines()[0]
    return f"not measured: {wrong}" if wrong else run
