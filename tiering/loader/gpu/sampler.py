"""Neighbour sampling by the GPU: the batches of the CPU's sampler, bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import DeviceError
from tiering.formats.layout import Layout
from tiering.loader.batches import Batch
from tiering.loader.gpu.adjacency import load_adjacency
from tiering.loader.gpu.device import Device, pinned
from tiering.loader.gpu.peers import PeerGroup
from tiering.sampling import NeighborSampler

if TYPE_CHECKING:
    import torch

Ids = npt.NDArray[np.int64]


class GpuSampler:
    """Samples the batches of a `NeighborSampler` on a GPU.

    The layout's plan says which lists lie in the memory of the GPU; the others are read from host memory as they are
    needed, of which `group` holds one copy, and `cache_bytes` of the next in rank on each of its GPUs. `sampler` is the
    CPU's: rule, fanouts, frontier and seed are taken from it, and it explains what is wrong with seeds or adjacency.

    One batch at a time: threads take turns. The host waits once per batch, for its sizes; with fanout -1, or hops of
    more than 2^24 edges, once more for each such hop. See ``ext/cuda/include/tiering/cuda/sampler.hpp`` for memory and
    approach.
    """

    def __init__(
        self,
        layout: Layout,
        sampler: NeighborSampler,
        device: Device,
        group: PeerGroup | None = None,
        cache_bytes: int = 0,
    ) -> None:
        self.device, self.host = device, sampler
        self.stream = cuda.Stream(device.index)
        """The stream that batches are sampled on."""
        self._path = layout.path
        self._group = group if cache_bytes else None
        self._adjacency = load_adjacency(layout, device, sampler.rule == "weighted", group, cache_bytes)
        self.columns, self.peer_columns = self._adjacency.columns, self._adjacency.peer_columns
        """Per relation, how many columns lie in the memory of the GPU, and how many of the next in that of peers."""
        with cuda.device_errors(f"{layout.path}: sampling on {device.name}"):
            self._native = cuda.Sampler(
                device.index,
                [layout.graph.num_nodes(t) for t in sampler.node_types],
                self._adjacency.relations,
                sampler.fanouts,
                sampler.frontier == "new",
                sampler.rule,
                self._adjacency.keys,
                sampler.seed,
            )
        self._seeds: dict[str, tuple[Ids, int]] = {}
        self._lock = threading.Lock()

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU for batches in the making."""
        return int(self._native.device_bytes)

    def sample(self, seeds: Mapping[str, Ids], *, epoch: int = 0, batch: int = 0) -> tuple[Batch, cuda.Event]:
        """Sample one batch, as `tiering.sampling.base.Sampler.sample` does.

        Returns nodes and edges in the memory of the GPU, and when they are complete.
        """
        advice = "use smaller batches or fanouts, or make the layout's gpu tier smaller"
        what = f"{self._path}: sampling batch {batch} on {self.device.name}"
        with self._lock:
            if self._group is not None:
                self._group.check()
            with cuda.device_errors(what, advice):
                return self._sample(seeds, epoch, batch)

    def _sample(self, seeds: Mapping[str, Ids], epoch: int, batch: int) -> tuple[Batch, cuda.Event]:
        try:
            given = [self._upload(t, seeds.get(t)) for t in self.host.node_types]
            self._native.start(given, epoch, batch, self.stream.handle)
            nodes, edges = self._native.finish()
        except ValueError as error:
            self.host.sample(dict(seeds), epoch=epoch, batch=batch)  # says what is wrong, which entry and what it holds
            raise DeviceError(
                f"{self._path}: the GPU found something unsound ({error}) where the host's copy of the graph is sound; "
                f"is {self.device.name} damaged, or was its memory overwritten?"
            ) from None
        seed_type = next((t for t, ids in seeds.items() if ids.size), self.host.node_types[0])
        return self._write(nodes, edges, Batch(epoch, batch, seed_type, {}, [], [], frontier=self.host.frontier))

    def _upload(self, node_type: str, seeds: Ids | None) -> tuple[int, int]:
        """Seeds where the GPU reads them: a batch is finished before the next overwrites them."""
        if seeds is None or not seeds.size:
            return 0, 0
        memory, address = self._seeds.get(node_type, (np.empty(0, np.int64), 0))
        if memory.size < seeds.size:
            memory, address = pinned(seeds.size, np.int64, f"seeds of type {node_type!r}")
            self._seeds[node_type] = (memory, address)
        memory[: seeds.size] = seeds
        return address, seeds.size

    def _write(self, nodes: list[list[int]], edges: list[list[int]], batch: Batch) -> tuple[Batch, cuda.Event]:
        import torch

        host, handle = self.host, self.stream.handle
        ids: dict[str, torch.Tensor] = {}
        hops: list[dict[Relation, torch.Tensor]] = []
        with self.device.on(self.stream):
            for place, node_type in enumerate(host.node_types):
                ids[node_type] = self.device.empty((nodes[-1][place],), torch.int64)
                self._native.write_nodes(place, ids[node_type].data_ptr(), handle)
            for hop, counts in enumerate(edges):
                hops.append({})
                for place, relation in enumerate(host.relations):
                    hops[hop][relation] = self.device.empty((2, counts[place]), torch.int64)
                    self._native.write_edges(hop, place, hops[hop][relation].data_ptr(), handle)
        ready = cuda.Event(self.device.index)
        ready.record(handle)
        known = [dict(zip(host.node_types, counts, strict=True)) for counts in nodes]
        return replace(batch, nodes=ids, num_nodes=known, hops=hops, weights=[{} for _ in edges]), ready
