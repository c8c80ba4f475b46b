"""Count what whole epochs of training read: in all, and batch by batch for the error bars."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.evaluation.bootstrap import MAX_GROUPS, group_of
from tiering.evaluation.line import CHUNK, IntArray
from tiering.evaluation.traffic import SsdCounter
from tiering.formats.graph import Graph
from tiering.sampling import (
    AccessCounts,
    EpochPlan,
    SampledGraph,
    Sampler,
    SamplingOptions,
    list_read_bytes,
    resolve_fanouts,
    runs_of_batches,
)

BUCKETS = 256
"""Buckets of a map: one byte per node."""
BucketMap: TypeAlias = "Mapping[str, npt.NDArray[np.uint8]]"
"""Node type -> uint8, shape (nodes,): bucket of each node; types that are not in it are not counted."""
See: TypeAlias = "Callable[[Mapping[str, IntArray]], npt.NDArray[Any]]"
"""What is to be known of a batch: from its unique nodes per type to an array of whole numbers."""


class OwnJudge:
    """The batches that the loader will train on."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def count(
        self, plan: EpochPlan, first: int, last: int, counts: AccessCounts, maps: Sequence[BucketMap], threads: int
    ) -> IntArray:
        """Sample batches ``[first, last)`` of an epoch, add what they read to `counts`, and count nodes by bucket.

        The answer is int64, shape (maps, last - first, `BUCKETS`): unique nodes of each bucket in each batch.
        """
        return self._sampler.count_marks(plan, maps, BUCKETS, counts, first=first, last=last, threads=threads)

    def each(self, plan: EpochPlan, first: int, last: int, see: See, threads: int) -> Iterator[npt.NDArray[Any]]:
        """Sample the same batches; what `see` finds in each, in order, `threads` at a time."""

        def one(batch: int) -> npt.NDArray[Any]:
            return see(self._sampler.sample(plan[batch], epoch=plan.epoch, batch=batch).nodes)

        with ThreadPoolExecutor(threads) as pool:
            coming: deque[Future[npt.NDArray[Any]]] = deque()
            for batch in range(first, last):
                if len(coming) == threads:
                    yield coming.popleft().result()
                coming.append(pool.submit(one, batch))
            while coming:
                yield coming.popleft().result()


@dataclass(frozen=True)
class Counted:
    """What some epochs read."""

    accesses: AccessCounts
    """Sums over all epochs."""
    hits: IntArray
    """int64, shape (maps, groups, `BUCKETS`): unique nodes of each bucket in each group of batches."""
    batches: int
    """Batches sampled."""

    @property
    def groups(self) -> int:
        """Groups of batches (`tiering.evaluation.bootstrap.group_of`)."""
        return int(self.hits.shape[1])


@dataclass(frozen=True)
class JudgedEpochs:
    """Whole epochs of training, as the sampler samples them."""

    judge: OwnJudge
    graph: SampledGraph
    train: Mapping[str, npt.ArrayLike]
    """Training nodes per type."""
    options: SamplingOptions
    """Batch size, and the seed of the run: it decides the batches."""
    epochs: range
    threads: int

    def count(self, maps: Sequence[BucketMap]) -> Counted:
        """Count what they read, with a progress bar; and nodes by the buckets of some maps, batch by batch."""
        counts, total = AccessCounts.zeros(self.graph), self.batches
        groups = group_of(np.arange(total), total)
        hits = np.zeros((len(maps), min(total, MAX_GROUPS), BUCKETS), np.int64)
        done = 0
        for plan, first, last in self._runs("sampling"):
            counted = self.judge.count(plan, first, last, counts, maps, self.threads)
            own, sums = by_group(counted, groups[done : done + last - first])
            hits[:, own] += sums
            done += last - first
        return Counted(counts, hits, total)

    def each(self, see: See, doing: str) -> Generator[npt.NDArray[Any], None, None]:
        """Sample the same batches again; what `see` finds in each, in order, with a progress bar."""
        for plan, first, last in self._runs(doing):
            yield from self.judge.each(plan, first, last, see, self.threads)

    def count_pages(self, counter: SsdCounter) -> IntArray:
        """Sum over all batches of what a counter sees in each."""
        return functools.reduce(np.add, self.each(counter.see, "counting pages"))

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        return -(-sum(np.asarray(ids).size for ids in self.train.values()) // self.options.batch_size)

    @property
    def batches(self) -> int:
        return self.per_epoch * len(self.epochs)

    def _runs(self, doing: str) -> Iterator[tuple[EpochPlan, int, int]]:
        how = self.options
        return runs_of_batches(self.train, how.batch_size, how.seed, self.epochs, self.threads, doing)


def by_group(counted: IntArray, groups: IntArray) -> tuple[IntArray, IntArray]:
    """Groups, ascending, of batches that follow each other, and the sums of what was counted in those of each."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return groups[starts], np.add.reduceat(counted, starts, axis=1)


@dataclass(frozen=True)
class ListReads:
    """Reads of the adjacency lists of one relation, over all epochs."""

    reads: int
    """Lists read; one that is read at several hops of a batch, as often."""
    bytes: float
    """What they touch: `tiering.sampling.list_read_bytes` for each. A mean where hops have different fanouts."""

    def per_epoch(self, epochs: int) -> dict[str, Any]:
        """JSON form."""
        return {"reads_per_epoch": self.reads / epochs, "bytes_per_epoch": self.bytes / epochs}


def list_reads(graph: Graph, counts: AccessCounts, options: SamplingOptions) -> dict[str, ListReads]:
    """Reads of every relation's lists over all epochs, by the relation's key."""
    reads_of = {}
    for index, relation in enumerate(graph.relations):
        fanouts = [hop[index] for hop in resolve_fanouts(graph.relations, options.fanouts)]
        indptr, indices = graph.csc(relation)
        reads, total = counts.adjacency[relation], 0.0
        for begin in range(0, reads.size, CHUNK):
            part = reads[begin : begin + CHUNK]
            degrees = np.diff(indptr[begin : begin + CHUNK + 1])
            total += float((part * list_read_bytes(degrees, indices.itemsize, options.sampler, fanouts)).sum())
        reads_of[relation_key(relation)] = ListReads(int(reads.sum()), total)
    return reads_of
