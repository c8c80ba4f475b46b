"""What the loader runs where batches arrive in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.loader.batch import Batch, make_batch
from tiering.loader.pipeline import Stage
from tiering.loader.rows import Gatherable
from tiering.sampling import EpochPlan, SampledBatch, Sampler

if TYPE_CHECKING:
    import torch


class HostBatches:
    """Stages of the loader whose batches arrive in host memory.

    Parameters
    ----------
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
        return make_batch(sampled, self._seed_type, self._sampler.frontier, rows, self._labels_of(sampled))

    def _labels_of(self, sampled: SampledBatch) -> torch.Tensor | None:
        import torch

        if self._labels is None:
            return None
        return torch.from_numpy(np.asarray(self._labels[sampled.seeds[self._seed_type]]))
