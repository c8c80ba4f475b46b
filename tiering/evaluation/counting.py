"""Count what whole epochs of training read, by any sampler: in all, and batch by batch for the error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tiering.evaluation.bootstrap import MAX_GROUPS, group_of
from tiering.evaluation.hits import MARKS, MarkMap
from tiering.evaluation.rows import IntArray
from tiering.progress import progress
from tiering.sampling import AccessCounts, EpochPlan, SampledGraph, Sampler, SamplingOptions, batches


class Judge(Protocol):
    """A sampler whose batches are the truth."""

    name: str
    """For people, such as ``own`` or ``dgl 1.1.3``."""

    def count(
        self, plan: EpochPlan, first: int, last: int, counts: AccessCounts, maps: Sequence[MarkMap], threads: int
    ) -> IntArray:
        """Sample batches ``[first, last)`` of an epoch and count what they read.

        Parameters
        ----------
        counts
            Counters to add to.
        maps
            Marks of the nodes.

        Returns
        -------
        numpy.ndarray
            int64, shape (maps, last - first, `MARKS`): unique nodes with each mark in each batch.
        """


class OwnJudge:
    """This package's sampler: the batches that its loader will train on."""

    name = "own"

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def count(
        self, plan: EpochPlan, first: int, last: int, counts: AccessCounts, maps: Sequence[MarkMap], threads: int
    ) -> IntArray:
        """See `Judge.count`."""
        return self._sampler.count_marks(plan, maps, MARKS, counts, first=first, last=last, threads=threads)


def add_hits(hits: IntArray, nodes: Mapping[str, npt.NDArray[np.int64]], maps: Sequence[MarkMap]) -> None:
    """Add one batch's unique `nodes` per type to `hits`, int64 of shape (maps, `MARKS`)."""
    for found, marks in zip(hits, maps, strict=True):
        for node_type, own in marks.items():
            found += np.bincount(own[nodes[node_type]], minlength=MARKS)


@dataclass(frozen=True)
class Counted:
    """What some epochs read."""

    accesses: AccessCounts
    """Sums over all epochs."""
    hits: IntArray
    """int64, shape (maps, groups, `MARKS`): unique nodes with each mark in each group of batches."""
    batches: int
    """Batches sampled."""

    @property
    def groups(self) -> int:
        """Groups of batches (`tiering.evaluation.bootstrap.group_of`)."""
        return int(self.hits.shape[1])


def judge_epochs(
    judge: Judge,
    graph: SampledGraph,
    train: Mapping[str, npt.ArrayLike],
    options: SamplingOptions,
    epochs: Sequence[int],
    maps: Sequence[MarkMap],
    threads: int,
) -> Counted:
    """Count whole epochs, with a progress bar.

    Parameters
    ----------
    train
        Training nodes per type.
    options
        Batch size, and the seed of the run: it decides the batches.
    epochs
        Numbers of the epochs.
    maps
        Marks of the nodes, for the counts batch by batch; may be empty.
    """
    counts = AccessCounts.zeros(graph)
    nodes = sum(np.asarray(ids).size for ids in train.values())
    per_epoch = -(-nodes // max(options.batch_size, 1))
    total = per_epoch * len(epochs)
    groups = group_of(np.arange(total), total)
    hits = np.zeros((len(maps), min(total, MAX_GROUPS), MARKS), np.int64)
    step = max(8 * threads, per_epoch // 50)
    begin = 0
    with progress(total, "sampling", "batch") as bar:
        for epoch in epochs:
            plan = batches(train, options.batch_size, epoch, seed=options.seed)
            for first in range(0, per_epoch, step):
                last = min(first + step, per_epoch)
                found = judge.count(plan, first, last, counts, maps, threads)
                for own, counted in zip(hits, found, strict=True):
                    np.add.at(own, groups[begin + first : begin + last], counted)
                bar.update(last - first)
            begin += per_epoch
    return Counted(counts, hits, total)
