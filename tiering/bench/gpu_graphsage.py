"""GraphSAGE in plain torch on batches of one node type: what trains in the benchmarks of whole epochs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tiering.loader.batch import Batch

HIDDEN = 256


class SageLayer(nn.Module):
    """out(v) = W x(v) + V mean x(u) over edges u -> v; V is applied before the mean, because it narrows the rows."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, out)
        self.neighbour = nn.Linear(width, out, bias=False)

    def forward(self, x: Tensor, edges: Tensor, num_dst: int) -> Tensor:
        src, dst = edges
        rows = self.neighbour(x)
        total = rows.new_zeros((num_dst, rows.shape[1])).index_add_(0, dst, rows.index_select(0, src))
        count = rows.new_zeros(num_dst).index_add_(0, dst, rows.new_ones(len(dst))).clamp_(min=1)
        found: Tensor = self.own(x[:num_dst]) + total / count.unsqueeze(1)
        return found


class GraphSage(nn.Module):
    """One `SageLayer` per hop; the last gives class scores of the seeds."""

    def __init__(self, width: int, hops: int, classes: int) -> None:
        super().__init__()
        widths = [width, *[HIDDEN] * (hops - 1), classes]
        self.layers = nn.ModuleList(SageLayer(*each) for each in pairwise(widths))

    def forward(self, batch: Batch) -> Tensor:
        x = next(iter(batch.features.values())).float()
        for layer, block in zip(self.layers, batch.blocks(), strict=True):
            (edges,), (num_src,), (num_dst,) = (
                tuple(each.values()) for each in (block.edge_index, block.num_src, block.num_dst)
            )
            x = layer(x[:num_src] if layer is self.layers[0] else x.relu()[:num_src], edges, num_dst)
        return x


class Trainer:
    """A model and its optimiser on one device.

    Parameters
    ----------
    where
        A ``torch.device``.
    """

    def __init__(self, where: torch.device, width: int, hops: int, classes: int) -> None:
        torch.manual_seed(0)
        self._model = GraphSage(width, hops, classes).to(where)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.003)

    def epoch(self, batches: Iterable[Batch]) -> None:
        """Train on all batches, without waiting for the GPU."""
        for batch in batches:
            self._optimizer.zero_grad()
            assert batch.y is not None
            functional.cross_entropy(self._model(batch), batch.y, ignore_index=-1).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
