"""Pre-sampling: run the training sampler for some epochs and count (PreSC of GNNLab, Yang et al., EuroSys'22).

The sampler is deterministic, so with the seed and the epochs of a run the counts are that run's own accesses: the exact
future, which no score beats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.formats.graph import Graph
from tiering.progress import progress
from tiering.sampling import AccessCounts, Sampler, make_sampler
from tiering.scores.request import ScoreColumns, ScoreRequest


@dataclass(frozen=True)
class Tally:
    """Counts of some epochs."""

    total: AccessCounts
    """Sum over the epochs."""
    squares: AccessCounts | None
    """Sum over the epochs of the squared count of one epoch, if asked for."""
    epochs: int
    """Number of epochs."""
    batches: int
    """Batches of all epochs."""

    @property
    def reached(self) -> dict[str, Any]:
        """For the record: batches and accesses counted."""
        return {"batches": self.batches, "accesses": self.total.total}


def presample(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``presample``: mean accesses per epoch of feature rows and of adjacency lists.

    Notes
    -----
    Cost: the sampling of `epochs` epochs. Memory: 16 bytes per node, and 16 per node and relation into its type,
    beside the sampler.
    """
    tally = count_request(graph, request)
    return ScoreColumns(
        {node_type: counts / tally.epochs for node_type, counts in tally.total.features.items()},
        {relation: counts / tally.epochs for relation, counts in tally.total.adjacency.items()},
        tally.reached,
    )


def count_request(graph: Graph, request: ScoreRequest, *, squares: bool = False) -> Tally:
    """Count the epochs that a request names.

    Notes
    -----
    Memory: 8 bytes per node, and per node and relation into its type; 24 with `squares`.
    """
    first = request.options.first_epoch
    sampling = request.sampled
    return tally_epochs(
        make_sampler(graph, sampling), request.train, sampling.batch_size,
        range(first, first + request.options.epochs), request.threads, squares=squares,
    )  # fmt: skip


def tally_epochs(
    sampler: Sampler,
    train: Mapping[str, npt.ArrayLike],
    batch_size: int,
    epochs: Sequence[int],
    threads: int,
    *,
    squares: bool = False,
) -> Tally:
    """Count the accesses of whole epochs, with a progress bar; the result does not depend on `threads`."""
    total = AccessCounts.zeros(sampler.graph)
    square_sums = AccessCounts.zeros(sampler.graph) if squares else None
    one = AccessCounts.zeros(sampler.graph) if squares else total
    size = sum(np.asarray(ids).size for ids in train.values())
    per_epoch = -(-size // batch_size)
    step = max(8 * threads, per_epoch // 50)
    with progress(per_epoch * len(epochs), "sampling", "batch") as bar:
        for epoch in epochs:
            plan = sampler.batches(train, batch_size, epoch)
            for first in range(0, len(plan), step):
                last = min(first + step, len(plan))
                sampler.count_accesses(plan, one, first=first, last=last, threads=threads)
                bar.update(last - first)
            if square_sums is not None:
                _add_epoch(one, total, square_sums)
    return Tally(total, square_sums, len(epochs), per_epoch * len(epochs))


def _add_epoch(one: AccessCounts, total: AccessCounts, squares: AccessCounts) -> None:
    """Add the counts of one epoch to both sums, and clear them."""
    for counts, added, squared in zip(_arrays(one), _arrays(total), _arrays(squares), strict=True):
        added += counts
        counts *= counts
        squared += counts
        counts.fill(0)


def _arrays(counts: AccessCounts) -> Iterator[npt.NDArray[np.int64]]:
    yield from counts.features.values()
    yield from counts.adjacency.values()
