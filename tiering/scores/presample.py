"""Pre-sampling: run the training sampler for some epochs and count (PreSC of GNNLab, Yang et al., EuroSys'22).

The sampler is deterministic, so with the seed and the epochs of a run the counts are that run's own accesses: the exact
future, which no score beats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.sampling import AccessCounts, make_sampler, runs_of_batches
from tiering.sampling.memory import batch_bytes, counting_threads, sums_bytes
from tiering.scores.request import SLACK, Float64Array, MemoryNeed, ScoreColumns, ScoreRequest, list_nodes
from tiering.units import format_count

CHUNK = 1 << 20
"""Counts converted together."""


@dataclass(frozen=True)
class AccessSums:
    """Counts of some epochs."""

    total: AccessCounts
    """Sum over the epochs."""
    squares: AccessCounts | None
    """Sum over the epochs of the squared count of one epoch, if asked for."""
    epochs: int
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
    """Compute method ``presample``: mean accesses per epoch of feature rows and of adjacency lists."""
    tally = count_epochs(graph, request)
    reached = tally.reached  # before the counts are gone
    return ScoreColumns(
        {node_type: in_place(counts, tally.epochs) for node_type, counts in tally.total.features.items()},
        {relation: in_place(counts, tally.epochs) for relation, counts in tally.total.adjacency.items()},
        reached,
    )


def presample_need(graph: SizedGraph, request: ScoreRequest) -> MemoryNeed:
    """Return 8 (N + D) for counters, 24 T for an epoch's order, 8 E with edge weights, a batch per thread or one."""
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    own = vectors + 24 * request.train_size + sums_bytes(graph, request.sampled) + SLACK
    batch = batch_bytes(graph, request.sampled)
    what = f"presample: counters of {format_count(graph.num_nodes())} nodes and their lists, and a batch"
    return MemoryNeed(own + batch, own + request.threads * batch, what)


def count_epochs(graph: Graph, request: ScoreRequest, *, squares: bool = False) -> AccessSums:
    """Count the accesses of the epochs that a request names; the result does not depend on the threads."""
    options, sampling, train = request.options, request.sampled, request.train
    sampler = make_sampler(graph, sampling)
    vectors = 8 * (graph.num_nodes() + list_nodes(graph))
    beside = vectors * (3 if squares else 1) + 24 * request.train_size + sums_bytes(graph, sampling)
    threads = counting_threads(graph, sampling, request.threads, request.budget.left() - beside)
    total = AccessCounts.zeros(graph)
    square_sums = AccessCounts.zeros(graph) if squares else None
    one = AccessCounts.zeros(graph) if squares else total
    epochs = range(options.first_epoch, options.first_epoch + options.epochs)
    batches = 0
    for plan, first, last in runs_of_batches(train, sampling.batch_size, sampling.seed, epochs, threads, "sampling"):
        sampler.count_accesses(plan, one, first=first, last=last, threads=threads)
        batches += last - first
        if square_sums is not None and last == len(plan):
            _add_epoch(one, total, square_sums)
    return AccessSums(total, square_sums, options.epochs, batches)


def in_place(counts: npt.NDArray[np.int64], epochs: int) -> Float64Array:
    """Return counts per epoch, float64, in the memory of `counts`, which are gone then."""
    per_epoch = counts.view(np.float64)
    for begin in range(0, counts.size, CHUNK):
        part = counts[begin : begin + CHUNK] / epochs
        per_epoch[begin : begin + CHUNK] = part
    return per_epoch


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
