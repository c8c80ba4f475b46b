"""A plain GPU sampler in torch operations, as one would write it on a CSC that fits: the peer of ours.

Uniform without replacement, frontier ``all``. Whole graph in the memory of the GPU; a map from nodes to their local ids
is kept there, too, 8 bytes per node.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tiering.bench.sizes import Csc
from tiering.loader.gpu.device import Device


class TorchSampler:
    """Samples on the stream that torch works on.

    Parameters
    ----------
    csc
        ``(indptr, indices)`` in host memory; copied.
    fanouts
        By hop from the seeds.
    seed
        Of torch's generator for the GPU.
    """

    def __init__(self, device: Device, csc: Csc, fanouts: Sequence[int], seed: int) -> None:
        indptr, indices = csc
        self._indptr, self._indices = device.upload(indptr.copy()), device.upload(indices.copy())
        where = self._indptr.device
        self._fanouts = list(fanouts)
        self._local = torch.full((indptr.size - 1,), -1, dtype=torch.int64, device=where)
        self._generator = torch.Generator(where).manual_seed(seed)

    def sample(self, seeds: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
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

    def _draw(self, nodes: torch.Tensor, fanout: int) -> tuple[torch.Tensor, torch.Tensor]:
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

    def _subsets(self, degrees: torch.Tensor, fanout: int) -> torch.Tensor:
        """Floyd's algorithm, a column per draw: `fanout` distinct places below each degree, all sets equally likely."""
        chosen = torch.full((len(degrees), fanout), -1, dtype=torch.int64, device=degrees.device)
        shares = torch.rand(
            (len(degrees), fanout), generator=self._generator, device=degrees.device, dtype=torch.float64
        )
        for k in range(fanout):
            last = degrees - fanout + k
            drawn = (shares[:, k] * (last + 1)).long()
            again = (chosen[:, :k] == drawn.unsqueeze(1)).any(dim=1)
            chosen[:, k] = torch.where(again, last, drawn)
        return chosen
