"""Samplers on the GPU to compare ours with: one in torch operations, and one by reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.reference import Reference
from benchmarks.harness import Csc, Ids
from tiering.loader.gpu.device import Device
from tiering.sampling import Fanout


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
        """Return nodes, seeds first, and per hop edges of shape (2, edges) in local ids."""
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
        """Return the ids of the sources and places of the destinations of one hop's edges."""
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
        """Draw `fanout` distinct positions below each degree by Floyd's algorithm, all sets equally likely."""
        chosen = torch.full((len(degrees), fanout), -1, dtype=torch.int64, device=degrees.device)
        size = (len(degrees), fanout)
        shares = torch.rand(size, generator=self._generator, device=degrees.device, dtype=torch.float64)
        for k in range(fanout):
            last = degrees - fanout + k
            drawn = (shares[:, k] * (last + 1)).long()
            again = (chosen[:, :k] == drawn.unsqueeze(1)).any(dim=1)
            chosen[:, k] = torch.where(again, last, drawn)
        return chosen


class ReferenceSampler(TorchSampler):
    """`TorchSampler` whose neighbors are drawn by the reference kernels: random keys, sorted list by list.

    They read the lists where they lie: ``indptr`` (int64) and ``indices`` at two addresses, in the memory of the GPU or
    pinned in that of the host.
    """

    def __init__(
        self, device: Device, kernels: Reference, lists: tuple[int, int, int], nodes: int, fanouts: Sequence[Fanout],
        seed: int,
    ) -> None:  # fmt: skip
        none = np.zeros(1, np.int64)
        super().__init__(device, (none, none), fanouts, seed)
        self._local = torch.full((nodes,), -1, dtype=torch.int64, device=device.torch_device)
        self._device, self._kernels, self._lists = device, kernels, lists
        self._seed, self._drawn = seed, 0

    def _draw(self, nodes: Tensor, fanout: int) -> tuple[Tensor, Tensor]:
        self._drawn += 1
        return self._kernels.draw(*self._lists, nodes, fanout, self._seed + self._drawn, self._device.current())


def sampled_edges(sampler: TorchSampler, batches: Sequence[Tensor]) -> int:
    """Sample batch after batch; edges of all."""
    return sum(int(edges.shape[1]) for seeds in batches for edges in sampler.sample(seeds)[1])


def wrong_draw(csc: tuple[Ids, Ids], nodes: Ids, fanout: int, sources: Ids, destinations: Ids) -> str:
    """Return the error in neighbors drawn without replacement; empty if there is none.

    Every node gets as many as its list has, `fanout` at most; each of them as often as it stands in the list at most.
    """
    indptr, indices = csc
    for k, node in enumerate(nodes):
        drawn = sources[destinations == k]
        neighbors = indices[indptr[node] : indptr[node + 1]]
        if drawn.size != min(fanout, neighbors.size):
            return f"node {node}: expected {min(fanout, neighbors.size)} neighbors, found {drawn.size}"
        known, most = np.unique(neighbors, return_counts=True)
        found, often = np.unique(drawn, return_counts=True)
        if not np.isin(found, known).all() or (often > most[np.searchsorted(known, found)]).any():
            return f"node {node}: a neighbor that its list does not have, or has less often"
    return ""
