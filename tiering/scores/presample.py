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
from tiering.sampling.memory import counting_threads, sums_bytes
from tiering.scores.request import Float64Array, ScoreColumns, ScoreRequest

CHUNK = 1 << 20
"""Counts converted together."""


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
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return sum(array.nbytes for counts in (self.total, self.squares) if counts for array in _arrays(counts))

    @property
    def reached(self) -> dict[str, Any]:
        """For the record: batches and accesses counted."""
        return {"batches": self.batches, "accesses": self.total.total}


def presample(graph: Graph, request: ScoreRequest) -> ScoreColumns:
    """Method ``presample``: mean accesses per epoch of feature rows and of adjacency lists.

    Notes
    -----
    Cost: the sampling of `epochs` epochs. Memory: `tiering.scores.memory.presample_need`.
    """
    tally = count_request(graph, request)
    reached = tally.reached
    return ScoreColumns(
        {node_type: in_place(counts, tally.epochs) for node_type, counts in tally.total.features.items()},
        {relation: in_place(counts, tally.epochs) for relation, counts in tally.total.adjacency.items()},
        reached,
    )


def count_request(graph: Graph, request: ScoreRequest, *, squares: bool = False) -> Tally:
    """Count the epochs that a request names.

    Notes
    -----
    Memory: 8 bytes per node, and per node and relation into its type; 24 with `squares`.
    """
    first = request.options.first_epoch
    sampling = request.sampled
    sampler, threads = make_sampler(graph, sampling), request.threads
    if request.budget is not None:
        types = [*graph.node_types, *(relation[2] for relation in graph.relations)]
        vectors = 8 * sum(graph.num_nodes(node_type) for node_type in types)
        room = (
            request.budget.left()
            - vectors * (3 if squares else 1)
            - 24 * request.train_size
            - sums_bytes(graph, sampling)
        )
        threads = counting_threads(graph, sampling, threads, room)
    epochs = range(first, first + request.options.epochs)
    return tally_epochs(sampler, request.train, sampling.batch_size, epochs, threads, squares=squares)


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


def in_place(counts: npt.NDArray[np.int64], epochs: int) -> Float64Array:
    """Counts per epoch, float64, in the memory of `counts`, which are gone then."""
    found = counts.view(np.float64)
    for begin in range(0, counts.size, CHUNK):
        part = counts[begin : begin + CHUNK] / epochs
        found[begin : begin + CHUNK] = part
    return found


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
