"""Mini-batches made in host memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering.loader.batches.batch import Batch, EdgeRows, about_targets, rows_of_edges, sampled_batch
from tiering.loader.batches.lookahead import Lookahead
from tiering.loader.batches.pipeline import PipelineStage
from tiering.loader.batches.prefetch import PrefetchSampler, SampledT
from tiering.loader.batches.targets import Plan
from tiering.loader.options import FeatureSource
from tiering.loader.tables.gather import HostRows
from tiering.loader.tables.output_pool import OutputPool
from tiering.sampling import SampledBatch, Sampler

if TYPE_CHECKING:
    from tiering.loader.adapters import Adapter


@contextmanager
def sampling_stage(
    lookahead: Lookahead | None,
    epoch: int,
    order: Sequence[int],
    whole: int,
    draw: Callable[[int], SampledT],
    workers: int,
) -> Iterator[tuple[PipelineStage, PrefetchSampler[SampledT] | None]]:
    """Begin an epoch: yield the stage that samples the batches of `order` among the `whole`, and what samples ahead.

    `draw` makes a batch by its number; the stage returns its place in `order` and the sampled batch.
    """
    with nullcontext() if lookahead is None else lookahead.epoch(epoch, order, whole, draw) as ahead:
        if ahead is None:
            yield PipelineStage("sampling", lambda place: (place, draw(order[place])), workers), None
        else:
            yield PipelineStage("sampling", lambda place: (place, ahead.sample(place)), workers, ahead.abort), ahead


@dataclass(frozen=True)
class HostBatches:
    """A source of batches in host memory."""

    sampler: Sampler
    features: Mapping[str, FeatureSource]
    """Source of rows by node type."""
    labels: npt.NDArray[np.int64] | None
    """Labels of the seeds' type by rank; ``None`` for none."""
    seed_type: str
    workers: int
    """Threads that sample."""
    lookahead: Lookahead | None = None
    """Reads rows of the ssd tier ahead of the batches; ``None``: each batch reads its own."""
    in_order: bool = True
    """Whether one batch is extracted after the other; else, without lookahead, as many at a time as are sampled."""
    edge_positions: bool = False
    """Whether batches hold the positions of their edges."""
    adapter: Adapter | None = None
    """Converts each batch for the consumer."""
    edge_rows: EdgeRows = field(default_factory=dict)
    """Sources of `Batch.edge_features`."""
    outputs: OutputPool = field(default_factory=OutputPool)
    """Memory for features of nodes."""

    @contextmanager
    def stages(self, plan: Plan, epoch: int, order: Sequence[int]) -> Iterator[list[PipelineStage]]:
        """Begin an epoch: yield the background stages for places in `order`, numbers of the plan's batches."""
        import torch

        def draw(batch: int) -> SampledBatch:
            return self.sampler.sample(plan[batch], epoch=epoch, batch=batch, positions=self.edge_positions)

        def extract(numbered: tuple[int, SampledBatch]) -> Batch:
            return about_targets(plan, self._extract(*numbered, ahead), torch.from_numpy)

        conversion = [] if self.adapter is None else [PipelineStage("conversion", self.adapter.adapt)]
        with sampling_stage(self.lookahead, epoch, order, len(plan), draw, self.workers) as (sampling, ahead):
            side_by_side = 1 if self.in_order or ahead is not None else self.workers
            yield [sampling, PipelineStage("extraction", extract, side_by_side), *conversion]

    def receive(self, ready: Any) -> Any:
        """Return a batch of the last stage to the consumer, in its thread."""
        return ready

    def _extract(self, place: int, sampled: SampledBatch, ahead: PrefetchSampler[SampledBatch] | None) -> Batch:
        import torch

        rows = {t: self._empty(source, sampled.nodes[t].size) for t, source in self.features.items()}
        together: list[str] = []
        if self.lookahead is not None and ahead is not None:
            together = self.lookahead.tables.types
            outs = {t: rows[t].view(torch.uint8).numpy() for t in together}
            self.lookahead.gather(place, {t: sampled.nodes[t] for t in together}, outs)
        for t, source in self.features.items():
            if t not in together:
                rows[t] = source.gather(sampled.nodes[t], **({} if rows[t] is None else {"out": rows[t]}))
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
        return torch.from_numpy(self.outputs.take(count * source.row_bytes)).view(dtype).view(count, source.dim)
