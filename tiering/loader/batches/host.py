"""Mini-batches made in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.loader.adapters import Adapter
from tiering.loader.batches.batch import Batch, EdgeRows, about_targets, rows_of_edges, sampled_batch
from tiering.loader.batches.lookahead import Lookahead, PrefetchSampler, sampling_stage
from tiering.loader.batches.pipeline import PipelineStage, StageTimes
from tiering.loader.batches.windows import ListWindows, WindowedBatches
from tiering.loader.options import FeatureSource
from tiering.loader.tables.gather import HostRows
from tiering.loader.tables.resident import OutputPool
from tiering.loader.targets import Plan
from tiering.sampling import SampledBatch


@dataclass
class BatchMaker:
    """The common parts of what makes a loader's batches, on the host or on a GPU."""

    sampler: Any
    features: Mapping[str, FeatureSource]
    labels: npt.NDArray[np.int64] | None  # of the seeds' type, by rank
    seed_type: str
    workers: int  # threads that sample on the host
    lookahead: Lookahead | None  # None: each batch reads its own rows of the ssd tier
    windows: ListWindows | None  # None: neighbor lists are read from the mapped graph
    edge_positions: bool
    adapter: Adapter | None
    edge_rows: EdgeRows  # sources of `Batch.edge_features`
    times: StageTimes

    def sample(self, plan: Plan, epoch: int, batch: int) -> SampledBatch:
        """Sample a batch of the plan on the host."""
        with self.times.work("sampling"):
            options = {"epoch": epoch, "batch": batch, "positions": self.edge_positions}
            seeds, times = plan.seeds_of(batch)
            return self.sampler.sample(seeds, seed_time=times, **options)  # type: ignore[no-any-return]

    @contextmanager
    def sampling(self, plan: Plan, epoch: int, order: Sequence[int]) -> Iterator[Callable[[int], SampledBatch]]:
        """Yield a function that samples a batch on the host: by itself, or in windows of batches in `order`."""
        windows = self.windows
        if windows is None:
            yield partial(self.sample, plan, epoch)
            return

        def sample(batches: Sequence[int], size: int) -> tuple[list[SampledBatch], int]:
            with self.times.work("sampling"):
                seeds = [plan.seeds_of(batch) for batch in batches]
                key = {"epoch": epoch, "positions": self.edge_positions}
                return windows.sample(self.sampler, seeds, batches, size, **key)

        with closing(WindowedBatches(sample, order)) as draw:
            yield draw


@dataclass
class HostBatches(BatchMaker):
    """A source of batches in host memory."""

    in_order: bool = True  # else as many are extracted and converted at a time as sampled

    def __post_init__(self) -> None:
        self._outputs = OutputPool()

    @contextmanager
    def stages(self, plan: Plan, epoch: int, order: Sequence[int]) -> Iterator[list[PipelineStage]]:
        """Begin an epoch: yield the background stages for places in `order`, numbers of the plan's batches."""
        import torch

        def extract(numbered: tuple[int, SampledBatch]) -> Batch:
            return about_targets(plan, self._extract(*numbered, ahead), torch.from_numpy)

        with (
            self.sampling(plan, epoch, order) as draw,
            sampling_stage(self.lookahead, epoch, order, len(plan), draw, self.workers) as (sampling, ahead),
        ):
            side_by_side, adapter = 1 if self.in_order else self.workers, self.adapter
            in_turn = ahead is not None and self.lookahead is not None and self.lookahead.in_turn
            conversion = [] if adapter is None else [PipelineStage("conversion", adapter.adapt, side_by_side)]
            yield [sampling, PipelineStage("extraction", extract, 1 if in_turn else side_by_side), *conversion]

    def receive(self, ready: Any) -> Any:
        """Return a batch of the last stage to the consumer, in its thread."""
        return ready

    def _extract(self, place: int, sampled: SampledBatch, ahead: PrefetchSampler | None) -> Batch:
        import torch

        unique = sampled.unique_nodes
        rows = {t: self._empty(source, unique[t].size) for t, source in self.features.items()}
        together: list[str] = []
        if self.lookahead is not None and ahead is not None:
            together = self.lookahead.tables.types
            outs = {t: rows[t].view(torch.uint8).numpy() for t in together}
            self.lookahead.gather(place, {t: unique[t] for t in together}, outs)
        for t, source in self.features.items():
            if t not in together:
                rows[t] = source.gather(unique[t], **({} if rows[t] is None else {"out": rows[t]}))
            if sampled.instances:
                rows[t] = rows[t].index_select(0, torch.from_numpy(sampled.rows[t][1]))
        batch, y = sampled_batch(sampled, self.seed_type, self.sampler.frontier), None
        if self.labels is not None:
            y = torch.from_numpy(np.asarray(self.labels[sampled.seeds[self.seed_type]]))
        of_edges = rows_of_edges(batch, self.edge_rows, lambda source, positions: source.gather(positions))
        return replace(batch, features=rows, y=y, edge_features=of_edges)

    def _empty(self, source: FeatureSource, count: int) -> Any:
        """Return a tensor for `count` rows; ``None`` where the source makes its own."""
        import torch

        if not isinstance(source, HostRows):
            return None
        dtype = getattr(torch, source.dtype)
        if not count:
            return torch.empty((0, source.dim), dtype=dtype)
        return torch.from_numpy(self._outputs.take(count * source.out_bytes)).view(dtype).view(count, source.dim)
