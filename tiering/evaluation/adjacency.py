"""Adjacency beside features: the bytes of the lists that sampling reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.artifacts.manifest import relation_key
from tiering.evaluation.rows import CHUNK
from tiering.formats.graph import Graph
from tiering.sampling import AccessCounts, SamplingOptions, list_read_bytes, resolve_fanouts


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
    """Reads of every relation's lists, by the relation's key.

    Parameters
    ----------
    counts
        Sums over all epochs.
    """
    found = {}
    for index, relation in enumerate(graph.relations):
        fanouts = [hop[index] for hop in resolve_fanouts(graph.relations, options.fanouts)]
        indptr, indices = graph.csc(relation)
        reads, total = counts.adjacency[relation], 0.0
        for begin in range(0, reads.size, CHUNK):
            part = reads[begin : begin + CHUNK]
            degrees = np.diff(indptr[begin : begin + CHUNK + 1])
            each = list_read_bytes(degrees, indices.itemsize, options.sampler, fanouts)
            total += float((part * each).sum())
        found[relation_key(relation)] = ListReads(int(reads.sum()), total)
    return found
