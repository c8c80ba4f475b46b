"""Accesses of whole epochs of training, counted with the sampler that training uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.evaluation.bootstrap import MAX_GROUPS, group_of
from tiering.evaluation.cache_order import CHUNK, IntArray
from tiering.formats.graph import Graph
from tiering.sampling import AccessCounts, EpochPlan, Sampler, SamplingOptions, list_read_bytes, resolve_fanouts
from tiering.sampling.plan import runs_of_batches

BUCKETS = 256
"""Most buckets of a bucket map: one byte per node."""
_MAX_TASK = 8
"""Most batches that a thread samples at a time."""
BucketMap: TypeAlias = "tuple[str, npt.NDArray[np.uint8]]"
"""A node type, and the bucket of each of its nodes."""
Visit: TypeAlias = "Callable[[Mapping[str, IntArray]], npt.NDArray[Any]]"
"""From the unique nodes of a batch per type to an array of whole numbers."""


@dataclass(frozen=True)
class AccessTally:
    """Accesses of some epochs."""

    accesses: AccessCounts
    """Sums over all epochs."""
    hits: IntArray
    """int64, shape (maps, groups, `BUCKETS`): unique nodes of each bucket in each group of batches (`group_of`)."""
    batches: int
    """Batches sampled."""

    @property
    def groups(self) -> int:
        """Groups of batches."""
        return int(self.hits.shape[1])


@dataclass(frozen=True)
class ReferenceEpochs:
    """Epochs of training that an evaluation samples."""

    sampler: Sampler
    train: Mapping[str, npt.ArrayLike]
    """Training nodes per type."""
    options: SamplingOptions
    """Batch size, and the seed of the run: it decides the batches."""
    epochs: range
    threads: int

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
            return [visit(nodes_of(plan[b], epoch=plan.epoch, batch=b, counts=counts)) for b in range(first, last)]

        nodes_of = self.sampler.sample_nodes
        options, pending = self.options, deque[Future[list[npt.NDArray[Any]]]]()
        runs = runs_of_batches(self.train, options.batch_size, options.seed, self.epochs, self.threads, label)
        size = min(_MAX_TASK, 1 + self.batches // (64 * self.threads))
        with ThreadPoolExecutor(self.threads) as pool:
            for plan, begin, end in runs:
                for first in range(begin, end, size):
                    if len(pending) > self.threads:
                        yield from pending.popleft().result()
                    pending.append(pool.submit(sample, plan, first, min(first + size, end)))
            while pending:
                yield from pending.popleft().result()

    def count(self, maps: Sequence[BucketMap]) -> AccessTally:
        """Count accesses per node, and unique nodes by bucket and group of batches for each map."""
        counts = AccessCounts.zeros(self.sampler.graph)
        hits = np.zeros((len(maps), min(self.batches, MAX_GROUPS), BUCKETS), np.int64)

        def count_buckets(nodes: Mapping[str, IntArray]) -> IntArray:
            found = [np.bincount(buckets.take(nodes[t]), minlength=BUCKETS) for t, buckets in maps]
            return np.array(found, np.int64).reshape(len(maps), BUCKETS)

        for batch, found in enumerate(self.map_batches(count_buckets, "sampling", counts)):
            hits[:, group_of(batch, self.batches)] += found
        return AccessTally(counts, hits, self.batches)


@dataclass(frozen=True)
class ListReads:
    """Reads of the adjacency lists of one relation, over all epochs."""

    reads: int
    """Lists read; one that is read at several hops of a batch, as often."""
    bytes: float
    """Bytes touched: `tiering.sampling.list_read_bytes` for each. A mean where hops have different fanouts."""

    def per_epoch(self, epochs: int) -> dict[str, Any]:
        """Return the counts as JSON holds them."""
        return {"reads_per_epoch": self.reads / epochs, "bytes_per_epoch": self.bytes / epochs}


def count_list_reads(graph: Graph, counts: AccessCounts, options: SamplingOptions) -> dict[str, ListReads]:
    """Return the reads of every relation's lists over all epochs, by the relation's key."""
    by_relation = {}
    for index, relation in enumerate(graph.relations):
        fanouts = [hop[index] for hop in resolve_fanouts(graph.relations, options.fanouts)]
        indptr, indices = graph.csc(relation)
        reads, total = counts.adjacency[relation], 0.0
        for begin in range(0, reads.size, CHUNK):
            part = reads[begin : begin + CHUNK]
            degrees = np.diff(indptr[begin : begin + CHUNK + 1])
            total += float((part * list_read_bytes(degrees, indices.itemsize, options.sampler, fanouts)).sum())
        by_relation[relation_key(relation)] = ListReads(int(reads.sum()), total)
    return by_relation
