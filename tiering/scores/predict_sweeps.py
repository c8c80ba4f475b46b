"""Time and disk of sweeps over binned edges, by what the core will choose (``sum_plan.hpp``), bins assumed even."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiering.execution.costs import kernel_seconds, read_seconds, write_seconds
from tiering.execution.rates import Rates
from tiering.formats.graph import Graph
from tiering.formats.shape import EdgeShape, FutureGraph, GraphShape
from tiering.scores.memory import BIN_NODES, READ_BYTES, SLACK, Need, dense_degree, most_dense, sum_bins

FEWEST_GROUPS, MOST_GROUPS = 4, 1024
EDGE_SECONDS, VALUE_BYTES_PER_SECOND, DISK_BYTES_PER_SECOND = 2.5e-9, 5e9, 1.2e9
"""What the core takes a thread and a disk for when it chooses."""
SAMPLED_BLOCKS, BLOCK_COLUMNS = 256, 4096
"""Columns whose degrees are looked at, spread over all."""


@dataclass(frozen=True)
class Columns:
    """The columns of a relation that have edges."""

    filled: int
    sparse: int
    """Of those, the ones whose values are expanded, edge by edge."""
    sparse_edges: int

    @classmethod
    def of(cls, graph: Graph | FutureGraph, edges: EdgeShape, shape: GraphShape) -> Columns:
        """From a sample of the offsets; of a graph that is not there yet, as if every column were like any other."""
        source, _, destination = edges.relation
        count, bins = shape.num_nodes(destination), sum_bins(shape.num_nodes(source))
        dense = dense_degree(bins, count)
        if isinstance(graph, FutureGraph):
            degrees = np.full(1, edges.num_edges / max(1, count))
            filled = min(count, edges.num_edges)
        else:
            degrees = np.concatenate(list(_sample(graph, edges, count)))
            filled = round(count * float((degrees > 0).mean())) if degrees.size else 0
        few = (degrees > 0) & (degrees < dense)
        sparse = filled * few.sum() / max(1, (degrees > 0).sum())
        sparse_edges = edges.num_edges * degrees[few].sum() / max(1.0, float(degrees.sum()))
        return cls(filled, round(sparse), round(sparse_edges))


def _sample(graph: Graph, edges: EdgeShape, count: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    indptr = graph.csc(edges.relation)[0]
    starts = range(0, max(1, count), max(BLOCK_COLUMNS, count // SAMPLED_BLOCKS))
    for start in starts:
        yield np.diff(indptr[start : min(count, start + BLOCK_COLUMNS) + 1])


@dataclass(frozen=True)
class SweepPlan:
    """Sweeps over the edges of all relations."""

    edges: int
    nodes: int
    """Of the largest type."""
    runs: float
    """Runs of edges of one bin and block of columns, whose values are expanded together."""
    values: int
    """Bytes of the values of sparse columns, which every group reads."""
    groups: int
    scratch: int
    """Bytes of edges on disk."""

    @classmethod
    def choose(
        cls, graph: Graph | FutureGraph, shape: GraphShape, need: Need, left: int, threads: int, direct: bool
    ) -> SweepPlan:
        """The fastest groups and share on disk that fit the memory, by the core's own estimate.

        `need` is what holds for any graph of these sizes; what this one takes less is room.
        """
        columns = [Columns.of(graph, each, shape) for each in shape.edges]
        edges, values = shape.num_edges(), 8 * sum(each.sparse for each in columns)
        room = left - need.kept + SLACK // 2 + (0 if direct else threads * READ_BYTES)
        for each, found in zip(shape.edges, columns, strict=True):
            source, destination = shape.num_nodes(each.relation[0]), shape.num_nodes(each.relation[2])
            most = most_dense(sum_bins(source), destination, each.num_edges)
            room += 10 * (min(destination, each.num_edges) - found.filled) + 6 * (most - found.filled + found.sparse)
        sparse = sum(each.sparse_edges for each in columns)
        runs = sum(
            sum_bins(shape.num_nodes(each.relation[0])) * -(-found.sparse // BIN_NODES)
            for each, found in zip(shape.edges, columns, strict=True)
        )
        best, least = (MOST_GROUPS, 4 * edges), float("inf")
        groups = FEWEST_GROUPS
        while groups < MOST_GROUPS:
            excess = 4 * edges + 8 * sparse // groups - room
            scratch = max(0, round(excess / (1 - 2 / groups)))
            seconds = (edges * EDGE_SECONDS + groups * values / VALUE_BYTES_PER_SECOND) / threads
            seconds = max(seconds, scratch / DISK_BYTES_PER_SECOND)
            if scratch <= 4 * edges and seconds < least:
                best, least = (groups, scratch), seconds
            groups += (groups + 3) // 4
        return cls(edges, max(map(shape.num_nodes, shape.node_types)), runs, values, *best)

    def binning(self, shape: GraphShape, read: int, rates: Rates) -> float:
        """Seconds until the edges are in bins, with so many bytes of them read from disk."""
        seconds = sum(
            kernel_seconds("bin", each.num_edges, rates, shape.num_nodes(each.relation[0]), 8) for each in shape.edges
        )
        ranking = kernel_seconds("column", sum(shape.num_nodes(each.relation[2]) for each in shape.edges), rates)
        writing = write_seconds(self.scratch, rates.target)
        return ranking + max(seconds, read_seconds(read, rates.source)) + writing

    def sweep(self, rates: Rates) -> float:
        """Seconds of a sweep."""
        seconds = kernel_seconds("sweep", self.edges, rates, self.nodes, 8) + kernel_seconds(
            "sweep run", self.runs, rates
        )
        seconds += (self.groups - FEWEST_GROUPS) * self.values / rates.copy
        return max(seconds, read_seconds(self.scratch, rates.target))
