"""Neighbour sampling by the GPU: the batches of the CPU's sampler, bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import DeviceError
from tiering.formats.layout import Layout
from tiering.loader.gpu.adjacency import Spread, load_adjacency
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.locked import pinned
from tiering.loader.gpu.peers import PeerGroup
from tiering.sampling import NeighborSampler

if TYPE_CHECKING:
    import torch

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeviceSample:
    """A sampled batch in the memory of a GPU; complete once `ready` has come."""

    nodes: dict[str, torch.Tensor] = field(repr=False)
    """Per node type: int64 ids in order of discovery."""
    num_nodes: list[dict[str, int]]
    """Nodes known after 0, 1, ... hops."""
    hops: list[dict[Relation, torch.Tensor]] = field(repr=False)
    """Per hop and relation: int64, shape (2, edges), local ids."""
    epoch: int
    batch: int
    ready: cuda.Event = field(repr=False)
    weights: list[dict[Relation, torch.Tensor]] = field(default_factory=list, repr=False)
    """Weights of the edges, where the sampler gives some."""

    def tensors(self) -> list[torch.Tensor]:
        """All of them."""
        edges = [each for hop in (*self.hops, *self.weights) for each in hop.values()]
        return [*self.nodes.values(), *edges]


class GpuSampler:
    """Samples the batches of a `NeighborSampler` on a GPU.

    Parameters
    ----------
    layout
        Whose graph is sampled: its plan says which lists lie in the memory of the GPU; the others are read from host
        memory as they are needed.
    sampler
        The CPU's sampler: rule, fanouts, frontier and seed are taken from it, and it explains what is wrong with seeds
        or adjacency.
    group
        Processes that hold one copy of the graph in host memory.
    peer_lists
        Bytes on each of their GPUs for lists that they share: those next in rank after the ones that each holds.

    Raises
    ------
    BudgetError
        If memory of the GPU, or host memory to lock, does not suffice.

    Notes
    -----
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
        peer_lists: int = 0,
    ) -> None:
        self.device, self.host = device, sampler
        self.stream = cuda.Stream(device.index)
        """The stream that batches are sampled on."""
        self._path = layout.path
        self._group = group if peer_lists else None
        self._adjacency = load_adjacency(layout, device, Spread(sampler.rule == "weighted", group, peer_lists))
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
    def columns(self) -> dict[Relation, int]:
        """Per relation, how many columns' lists lie in the memory of the GPU."""
        return dict(self._adjacency.columns)

    @property
    def peer_columns(self) -> dict[Relation, int]:
        """Per relation, how many of the next columns' lists lie in the memory of peers."""
        return dict(self._adjacency.peer_columns)

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU for batches in the making."""
        return int(self._native.device_bytes)

    def sample(self, seeds: Mapping[str, Ids], *, epoch: int = 0, batch: int = 0) -> DeviceSample:
        """Sample one batch; see `tiering.sampling.base.Sampler.sample`.

        Raises
        ------
        InputError
            If a seed is no node of the graph, or the adjacency is not sound.
        BudgetError
            If memory of the GPU does not suffice for the batch; the next may be smaller.
        DeviceError
            If a process that shares lists has ended.
        """
        with self._lock:
            if self._group is not None:
                self._group.check()
            return self._sample(seeds, epoch, batch)

    def _sample(self, seeds: Mapping[str, Ids], epoch: int, batch: int) -> DeviceSample:
        advice = "use smaller batches or fanouts, or make the layout's gpu tier smaller"
        with cuda.device_errors(f"{self._path}: sampling batch {batch} on {self.device.name}", advice):
            try:
                given = [self._upload(t, seeds.get(t)) for t in self.host.node_types]
                self._native.start(given, epoch, batch, self.stream.handle)
                nodes, edges = self._native.finish()
            except ValueError as error:
                self._explain(seeds, epoch, batch, error)
            return self._write(nodes, edges, epoch, batch)

    def _upload(self, node_type: str, seeds: Ids | None) -> tuple[int, int]:
        """Seeds where the GPU reads them: a batch is finished before the next overwrites them."""
        if seeds is None or not seeds.size:
            return 0, 0
        there, address = self._seeds.get(node_type, (np.empty(0, np.int64), 0))
        if there.size < seeds.size:
            there, address = pinned(seeds.size, np.int64, f"seeds of type {node_type!r}")
            self._seeds[node_type] = (there, address)
        there[: seeds.size] = seeds
        return address, seeds.size

    def _write(self, nodes: list[list[int]], edges: list[list[int]], epoch: int, batch: int) -> DeviceSample:
        import torch

        host, handle = self.host, self.stream.handle
        lists: dict[str, torch.Tensor] = {}
        hops: list[dict[Relation, torch.Tensor]] = []
        with self.device.on(self.stream):
            for place, node_type in enumerate(host.node_types):
                lists[node_type] = self.device.empty((nodes[-1][place],), torch.int64)
                self._native.write_nodes(place, lists[node_type].data_ptr(), handle)
            for hop, counts in enumerate(edges):
                hops.append({})
                for place, relation in enumerate(host.relations):
                    hops[hop][relation] = self.device.empty((2, counts[place]), torch.int64)
                    self._native.write_edges(hop, place, hops[hop][relation].data_ptr(), handle)
        ready = cuda.Event(self.device.index)
        ready.record(handle)
        known = [dict(zip(host.node_types, counts, strict=True)) for counts in nodes]
        return DeviceSample(lists, known, hops, epoch, batch, ready, [{} for _ in edges])

    def _explain(self, seeds: Mapping[str, Ids], epoch: int, batch: int, error: ValueError) -> None:
        """Say what is wrong in the CPU sampler's words, which name the entry and what it holds."""
        self.host.sample(dict(seeds), epoch=epoch, batch=batch)
        raise DeviceError(
            f"{self._path}: the GPU found something unsound ({error}) where the host's copy of the graph is sound; is "
            f"{self.device.name} damaged, or was its memory overwritten?"
        ) from None
