"""Where batches come from: what a loader runs in the background, and the one that works in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tiering.loader.batch import Batch, sampled_batch
from tiering.loader.pipeline import Stage
from tiering.loader.rows import Gatherable
from tiering.sampling import EpochPlan, SampledBatch, Sampler

if TYPE_CHECKING:
    import torch


class BatchSource(Protocol):
    """Makes the batches of an epoch."""

    def stages(self, plan: EpochPlan, epoch: int) -> list[Stage]:
        """Steps in the background, for batch numbers."""

    def receive(self, ready: Any) -> Batch:
        """What the last step made, handed to the consumer in its own thread."""


class HostBatches:
    """Batches that arrive in host memory.

    Parameters
    ----------
    features
        Per node type: where rows come from.
    labels
        Of the seeds' type, by rank; ``None`` for none.
    workers
        Threads that sample.
    """

    def __init__(
        self,
        sampler: Sampler,
        features: Mapping[str, Gatherable],
        labels: np.ndarray[Any, Any] | None,
        seed_type: str,
        workers: int,
    ) -> None:
        self._sampler, self._features, self._labels = sampler, features, labels
        self._seed_type, self._workers = seed_type, workers

    def stages(self, plan: EpochPlan, epoch: int) -> list[Stage]:
        """Sampling, several batches side by side, then extraction."""
        return [
            Stage("sampling", lambda b: self._sampler.sample(plan[b], epoch=epoch, batch=b), self._workers),
            Stage("extraction", self._extract),
        ]

    def receive(self, ready: Batch) -> Batch:
        """Nothing is left to do."""
        return ready

    def _extract(self, sampled: SampledBatch) -> Batch:
        rows = {t: source.gather(sampled.nodes[t]) for t, source in self._features.items()}
        batch = sampled_batch(sampled, self._seed_type, self._sampler.frontier)
        return replace(batch, features=rows, y=self._labels_of(sampled))

    def _labels_of(self, sampled: SampledBatch) -> torch.Tensor | None:
        import torch

        if self._labels is None:
            return None
        return torch.from_numpy(np.asarray(self._labels[sampled.seeds[self._seed_type]]))
