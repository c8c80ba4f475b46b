"""What the loader runs on a GPU: sampling and gathering on streams of their own, ahead of training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.loader.batch import Batch, edge_array
from tiering.loader.gpu.device import Device, check_process
from tiering.loader.gpu.features import GpuFeatures
from tiering.loader.gpu.sampler import DeviceSample, GpuSampler
from tiering.loader.pipeline import Stage
from tiering.loader.rows import Gatherable
from tiering.sampling import EpochPlan, SampledBatch, Sampler

if TYPE_CHECKING:
    import torch

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Ready:
    """A batch on the GPU, and when it is complete."""

    batch: Batch
    event: cuda.Event


class GpuBatches:
    """Stages of the loader whose batches arrive on a GPU.

    Parameters
    ----------
    sampler
        By the GPU, or by the host: then what it samples is copied.
    features
        Per node type: tables of this GPU, or any others, whose rows are copied.
    labels
        Of the seeds' type, by rank; ``None`` for none.
    workers
        Threads that sample, where the host does.
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

    @property
    def host_sampler(self) -> Sampler:
        """The sampler that says what a batch is, whoever draws it."""
        return self.sampler.host if isinstance(self.sampler, GpuSampler) else self.sampler

    def stages(self, plan: EpochPlan, epoch: int) -> list[Stage]:
        """Sampling (one batch at a time on the GPU, `workers` on the host), then extraction."""
        check_process(self._process)
        sampler = self.sampler
        on_gpu = isinstance(sampler, GpuSampler)

        def sample(index: int) -> tuple[dict[str, Labels], Any]:
            seeds = plan[index]
            return seeds, sampler.sample(seeds, epoch=epoch, batch=index)

        return [Stage("sampling", sample, 1 if on_gpu else self._workers), Stage("extraction", self._extract)]

    def receive(self, ready: _Ready) -> Batch:
        """Hand a batch to the caller's stream, which waits for it; the host does not."""
        self.device.wait(ready.event)
        self.device.keep(tensors_of(ready.batch))
        return ready.batch

    def _extract(self, given: tuple[dict[str, Labels], Any]) -> _Ready:
        seeds, sampled = given
        stream = self._stream
        with self.device.on(stream):
            if isinstance(sampled, SampledBatch):
                sample = self._copied(sampled)
            else:
                sample = sampled
                sample.ready.hold(stream.handle)
                self.device.keep(sample.tensors(), stream)
            features = {t: self._rows(source, sample.nodes[t]) for t, source in self._features.items()}
            y = self._labels_of(seeds[self._seed_type], sample.num_nodes[0][self._seed_type])
        event = cuda.Event(self.device.index)
        event.record(stream.handle)
        batch = Batch(
            epoch=sample.epoch,
            index=sample.batch,
            seed_type=self._seed_type,
            nodes=sample.nodes,
            num_nodes=sample.num_nodes,
            hops=sample.hops,
            features=features,
            y=y,
            frontier=self.host_sampler.frontier,
            weights=sample.weights,
        )
        return _Ready(batch, event)

    def _rows(self, source: Gatherable, nodes: torch.Tensor) -> torch.Tensor:
        import torch

        if not isinstance(source, GpuFeatures):
            rows = source.gather(nodes.cpu())
            return rows if self.device.holds(rows) else self.device.send(rows)
        out = self.device.empty((len(nodes), source.dim), getattr(torch, source.dtype))
        source.gather_into(nodes.data_ptr(), len(nodes), out.data_ptr(), self._stream.handle)
        return out

    def _labels_of(self, seeds: Labels, unique: int) -> torch.Tensor | None:
        if self._labels is None:
            return None
        if unique != seeds.size:  # a seed that came twice counts once, where it came first
            seeds = seeds[np.sort(np.unique(seeds, return_index=True)[1])]
        return self.device.upload(np.asarray(self._labels[seeds]))

    def _copied(self, sampled: SampledBatch) -> DeviceSample:
        """What the host sampled, on the GPU."""
        put: Callable[[Any], torch.Tensor] = self.device.upload
        hops: list[dict[Relation, torch.Tensor]] = []
        weights: list[dict[Relation, torch.Tensor]] = []
        for hop in sampled.hops:
            hops.append({relation: put(edge_array(edges.src, edges.dst)) for relation, edges in hop.items()})
            given = {relation: edges.weights for relation, edges in hop.items()}
            weights.append({relation: put(each) for relation, each in given.items() if each is not None})
        nodes = {node_type: put(ids) for node_type, ids in sampled.nodes.items()}
        ready = cuda.Event(self.device.index)
        return DeviceSample(nodes, sampled.num_nodes, hops, sampled.epoch, sampled.batch, ready, weights)


def tensors_of(batch: Batch) -> list[torch.Tensor]:
    """Every tensor of a batch."""
    edges = [each for hop in (*batch.hops, *batch.weights) for each in hop.values()]
    labels = [] if batch.y is None else [batch.y]
    return [*batch.nodes.values(), *edges, *batch.features.values(), *labels]
