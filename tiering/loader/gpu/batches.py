"""What the loader runs on a GPU: sampling and gathering on streams of their own, ahead of training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.loader.background import Stage
from tiering.loader.batches import Batch, sampled_batch
from tiering.loader.gather import Gatherable
from tiering.loader.gpu.device import Device, check_process
from tiering.loader.gpu.gather import GpuFeatures
from tiering.loader.gpu.sampler import GpuSampler
from tiering.sampling import EpochPlan, Sampler

if TYPE_CHECKING:
    import torch

Labels = npt.NDArray[np.int64]


class GpuBatches:
    """Makes batches that arrive on a GPU, as `tiering.loader.batches.HostBatches` does for the host.

    Where the host samples, by `workers` threads, what it samples is copied; so are rows of tables that are not of this
    GPU. `labels` are those of the seeds' type, by rank.
    """

    def __init__(
        self,
        device: Device,
        sampler: GpuSampler | Sampler,
        features: Mapping[str, Gatherable],
        labels: Labels | None,
        seed_type: str,
        workers: int,
    ) -> None:
        self.device, self.sampler = device, sampler
        self._features, self._labels, self._seed_type, self._workers = features, labels, seed_type, workers
        self._stream = cuda.Stream(device.index)
        self._process = os.getpid()

    def stages(self, plan: EpochPlan, epoch: int) -> list[Stage]:
        """Sampling (one batch at a time on the GPU, `workers` on the host), then extraction."""
        check_process(self._process)
        sampler = self.sampler

        def sample(index: int) -> tuple[dict[str, Labels], Any]:
            seeds = plan[index]
            return seeds, sampler.sample(seeds, epoch=epoch, batch=index)

        workers = 1 if isinstance(sampler, GpuSampler) else self._workers
        return [Stage("sampling", sample, workers), Stage("extraction", self._extract)]

    def receive(self, ready: tuple[Batch, cuda.Event]) -> Batch:
        """Hand a batch to the caller's stream, which waits until it is complete; the host does not."""
        batch, complete = ready
        self.device.wait(complete)
        self.device.keep(batch.tensors())
        return batch

    def _extract(self, given: tuple[dict[str, Labels], Any]) -> tuple[Batch, cuda.Event]:
        seeds, sampled = given
        stream = self._stream
        with self.device.on(stream):
            if isinstance(self.sampler, Sampler):
                batch = sampled_batch(sampled, self._seed_type, self.sampler.frontier, self.device.send)
            else:
                batch, ready = sampled
                cuda.wait_event(stream.handle, ready)
                self.device.keep(batch.tensors(), stream)
            features = {t: self._rows(source, batch.nodes[t]) for t, source in self._features.items()}
            y = self._labels_of(seeds[self._seed_type], batch.num_nodes[0][self._seed_type])
        complete = cuda.Event(self.device.index)
        complete.record(stream.handle)
        return replace(batch, features=features, y=y), complete

    def _rows(self, source: Gatherable, nodes: torch.Tensor) -> torch.Tensor:
        import torch

        if not isinstance(source, GpuFeatures):
            rows = source.gather(nodes.cpu())
            return rows if self.device.has(rows) else self.device.send(rows)
        out = self.device.empty((len(nodes), source.dim), getattr(torch, source.dtype))
        source.gather_into(nodes.data_ptr(), len(nodes), out.data_ptr(), self._stream.handle)
        return out

    def _labels_of(self, seeds: Labels, unique: int) -> torch.Tensor | None:
        if self._labels is None:
            return None
        if unique != seeds.size:  # a seed that came twice counts once, where it came first
            seeds = seeds[np.sort(np.unique(seeds, return_index=True)[1])]
        return self.device.upload(np.asarray(self._labels[seeds]))
