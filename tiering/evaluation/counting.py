"""Accesses of whole epochs of training, counted with the sampler that training uses; intervals of their ratios."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.evaluation.cache_order import CHUNK, FloatArray, IntArray, Rows
from tiering.formats.graph import Graph
from tiering.memory import Budget
from tiering.sampling import AccessCounts, EpochPlan, Sampler, SamplingOptions, list_read_bytes, resolve_fanouts
from tiering.sampling.base import ListFiles
from tiering.sampling.lists import WINDOW_BATCHES
from tiering.sampling.memory import batch_bytes, sums_bytes
from tiering.sampling.plan import runs_of_batches
from tiering.text.units import format_count

BUCKETS = 256  # most buckets of a bucket map: one byte per node
MAX_GROUPS = 4096
"""Batches are resampled one by one up to this number, beyond it in runs of consecutive ones: memory stays bounded."""
SLACK = 32 << 20  # bytes of small objects, stacks, chunks of vectors, and of what the allocator rounds up
_MAX_TASK = 8  # most batches that a thread samples at a time
_TAIL = (1 - 0.95) / 2  # fraction of the draws beyond each end of an interval
BucketMap: TypeAlias = "tuple[str, npt.NDArray[np.uint8]]"  # a node type, and the bucket of each of its nodes
Visit: TypeAlias = "Callable[[Mapping[str, IntArray]], npt.NDArray[Any]]"  # takes unique nodes of a batch per type


@dataclass(frozen=True)
class ReferenceEpochs:
    """Epochs of training that an evaluation samples; the seed of `options` decides their batches."""

    sampler: Sampler
    train: Mapping[str, npt.ArrayLike]
    options: SamplingOptions
    epochs: range
    threads: int
    seed_time: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)  # with times: those of `train`
    lists: ListFiles | None = None  # lists that exceed memory, which windows of batches read

    @property
    def batches(self) -> int:
        """Batches of all epochs."""
        seeds = sum(np.asarray(ids).size for ids in self.train.values())
        return -(-seeds // self.options.batch_size) * len(self.epochs)

    def map_batches(
        self, visit: Visit, label: str, counts: AccessCounts | None = None
    ) -> Generator[npt.NDArray[Any], None, None]:
        """Sample all batches, `threads` at a time, and yield what `visit` returns for each, in order.

        `label` names the progress bar. Accesses are added to `counts`.
        """

        def sample(plan: EpochPlan, first: int, last: int) -> list[npt.NDArray[Any]]:
            seeds = ((b, *plan.seeds_of(b)) for b in range(first, last))
            return [visit(nodes_of(s, epoch=plan.epoch, batch=b, counts=counts, seed_time=t)) for b, s, t in seeds]

        nodes_of = self.sampler.sample_nodes
        options, pending = self.options, deque[Future[list[npt.NDArray[Any]]]]()
        runs = runs_of_batches(
            self.train, options.batch_size, options.seed, self.epochs, self.threads, label, self.seed_time,
            8 if self.lists is None else WINDOW_BATCHES,
        )  # fmt: skip
        if self.lists is not None:
            for plan, begin, end in runs:
                for window in self.sampler.windows(plan, begin, end, counts, self.lists, nodes=True):
                    yield from map(visit, window)
            return
        size = min(_MAX_TASK, 1 + self.batches // (64 * self.threads))
        with ThreadPoolExecutor(self.threads) as pool:
            for plan, begin, end in runs:
                for first in range(begin, end, size):
                    if len(pending) > self.threads:
                        yield from pending.popleft().result()
                    pending.append(pool.submit(sample, plan, first, min(first + size, end)))
            while pending:
                yield from pending.popleft().result()

    def count(self, maps: Sequence[BucketMap]) -> tuple[AccessCounts, IntArray]:
        """Return accesses, and for each map unique nodes by group of batches and bucket, as int64."""
        counts, groups = AccessCounts.zeros(self.sampler.graph), min(self.batches, MAX_GROUPS)
        hits = np.zeros((len(maps), groups, BUCKETS), np.int64)

        def count_buckets(nodes: Mapping[str, IntArray]) -> IntArray:
            found = [np.bincount(buckets.take(nodes[t]), minlength=BUCKETS) for t, buckets in maps]
            return np.array(found, np.int64).reshape(len(maps), BUCKETS)

        for batch, found in enumerate(self.map_batches(count_buckets, "sampling", counts)):
            hits[:, batch * groups // self.batches] += found
        return counts, hits


class Bootstrap:
    """Confidence intervals of hit rates: groups of batches resampled by a seed, the same for a whole evaluation.

    The interval is the middle 95 % of the resampled ratios, with few groups too narrow by about
    ``sqrt((groups - 1) / groups)``; there is none with fewer than 2 groups or without `resamples`. The oracle is chosen
    on these very batches, a bias that resampling cannot show.
    """

    def __init__(self, groups: int, resamples: int, seed: int = 0) -> None:
        self._weights: FloatArray | None = None
        if groups >= 2 and resamples:
            drawn = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=resamples)
            self._weights = drawn.astype(np.float64)

    def interval(
        self, parts: npt.NDArray[Any], wholes: npt.NDArray[Any], mix: FloatArray | None = None
    ) -> FloatArray | None:
        """Return the intervals of ``parts.sum(0) / wholes.sum()``: float64, shape (k, 2); 0 where nothing was read.

        `parts`, shape (groups, k), and `wholes`, shape (groups,), are whole numbers, whose sums are exact below 2^53.
        With `mix`, shape (m, k), the intervals are for these m sums of the k ratios.
        """
        if self._weights is None:
            return None
        totals = self._weights @ wholes.astype(np.float64)
        ratios = (self._weights @ parts.astype(np.float64)) / np.maximum(totals, 1)[:, None]
        ends: FloatArray = np.quantile(ratios if mix is None else ratios @ mix.T, [_TAIL, 1 - _TAIL], axis=0).T
        return ends


def count_list_reads(graph: Graph, counts: AccessCounts, options: SamplingOptions, epochs: int) -> dict[str, Any]:
    """Return reads and bytes (`tiering.sampling.list_read_bytes`) of adjacency lists per epoch, also by relation.

    A list that is read at several hops of a batch counts as often. Bytes are a mean where hops have different fanouts.
    """
    sums: dict[str, FloatArray] = {}
    for index, relation in enumerate(graph.relations):
        fanouts = [hop[index] for hop in resolve_fanouts(graph.relations, options.fanouts)]
        indptr, indices = graph.csc(relation)
        reads, total = counts.adjacency[relation], 0.0
        for begin in range(0, reads.size, CHUNK):
            part = reads[begin : begin + CHUNK]
            degrees = np.diff(indptr[begin : begin + CHUNK + 1])
            total += float((part * list_read_bytes(degrees, indices.itemsize, options.sampler, fanouts)).sum())
        sums[relation_key(relation)] = np.array([reads.sum(), total], np.float64)

    def per_epoch(own: FloatArray) -> dict[str, float]:
        return dict(zip(("reads_per_epoch", "bytes_per_epoch"), (own / epochs).tolist(), strict=True))

    relations = {relation: per_epoch(own) for relation, own in sums.items()}
    return {**per_epoch(np.sum([*sums.values()], axis=0)), "relations": relations}


@dataclass(frozen=True)
class EvaluationMemory:
    """Memory need of an evaluation in bytes: `fixed`, and `batch` for each thread that samples."""

    fixed: int
    batch: int
    label: str  # the need, for messages

    @property
    def minimum(self) -> int:
        """Need with one thread that samples."""
        return self.fixed + self.batch

    def threads(self, budget: Budget, wanted: int) -> int:
        """Return how many of the threads wanted have room; raise `BudgetError` below `minimum`."""
        budget.require(self.minimum, self.label)
        return max(1, min(wanted, (budget.left() - self.fixed) // max(1, self.batch)))


def evaluation_memory(
    graph: Graph, rows: Rows, options: SamplingOptions, *, scores: int, ssd: bool, train: int = 0
) -> EvaluationMemory:
    """Return the need for so many `scores` (the oracle not counted) and training nodes, perhaps with an `ssd` tier."""
    types, wide = len(rows.types), rows.size >= 2**31
    # Per order, a score's or the oracle's: buckets and positions of rows; per score and type: hits; an epoch's order.
    fixed = (scores + 1) * rows.size * (1 + ((8 if wide else 4) if ssd else 0))
    fixed += types * scores * MAX_GROUPS * BUCKETS * 8 + 24 * train + sums_bytes(graph, options)
    counters = 8 * sum(graph.num_nodes(t) for t in graph.node_types)
    counters += 8 * sum(graph.num_nodes(relation[2]) for relation in graph.relations)
    # A score is sorted before batches are sampled, twice with an ssd tier.
    sort = (56 if wide else 44) * rows.size + (8 * rows.size if types > 1 else 0)
    batch = batch_bytes(graph, options) * (2 if ssd else 1)
    label = f"evaluate: {scores} scores, the counts of {format_count(rows.size)} rows and a batch"
    return EvaluationMemory(fixed + counters + max(0, sort - batch) + SLACK, batch, label)
