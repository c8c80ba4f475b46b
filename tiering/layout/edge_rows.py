"""Scores of the rows of edge features, from the reads of the lists that they belong to.

Rows of a relation have the order of its ``indices``, list after list, so the lists of low ranks come first. A tier is a
range of rows, so a row has the score of the best run of lists that its own begins (the upper concave hull).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.graph_checks import checked_lists, take_by_rank
from tiering.formats.order import Order
from tiering.formats.scores import Scores
from tiering.layout.adjacency_cache import list_sampling
from tiering.layout.benefit_curve import Resolution, block_ends, block_sums, falling_rates
from tiering.layout.tiers import RankedTable
from tiering.sampling import list_read_entries

USUAL_FANOUT = 10
"""Neighbours that a read of a list draws where no scores are given: the loader's default."""
RESOLUTION = Resolution(blocks=1 << 16, chunk=1 << 16)
"""The scores of a relation take some 15 MiB while they are made, then 1 MiB."""

Floats = npt.NDArray[np.float64]
Entries = Callable[[npt.NDArray[np.int64]], Floats]
"""A function from lengths of lists to the neighbours that a read draws."""


@dataclass(frozen=True)
class EdgeScores:
    """Expected reads per epoch of each row, by position; they never rise."""

    ends: npt.NDArray[np.int64]
    """Shape (blocks,): the position at which each block of lists ends; rising."""
    rates: Floats
    """Shape (blocks,): reads of each row of a block; not rising."""

    @classmethod
    def of(
        cls,
        indptr: npt.NDArray[np.int64],
        reads: Callable[[int, int], Floats],
        entries: Entries,
        resolution: Resolution = RESOLUTION,
    ) -> EdgeScores:
        """Score rows by the reads of the lists of columns begin to end.

        A read of a list of d neighbours draws ``entries(d)`` of them, so each is read ``entries(d) / d`` times. Cost:
        one pass over the lists; memory: that of `Resolution.blocks`.
        """
        columns = indptr.shape[0] - 1
        step = resolution.step(columns)

        def drawn(begin: int, end: int) -> tuple[Floats, ...]:
            return (reads(begin, end) * entries(np.diff(indptr[begin : end + 1])),)

        (sums,) = block_sums(columns, step, resolution, drawn)
        ends = np.asarray(indptr[block_ends(columns, step)])
        sizes = np.diff(ends, prepend=0)
        some = sizes > 0
        return cls(ends[some], falling_rates(sums[: sizes.size][some], sizes[some]))

    def __getitem__(self, rows: int | slice) -> Any:
        """Return the reads of a row, or of a slice of rows."""
        count = int(self.ends[-1]) if self.ends.size else 0
        at = np.arange(*rows.indices(count)) if isinstance(rows, slice) else rows
        return self.rates[np.searchsorted(self.ends, at, side="right")]


def edge_feature_tables(graph: Graph) -> dict[str, FeatureTable]:
    """Return the edge features of each relation that has some, by its key."""
    tables = {relation_key(relation): graph.edge_feature_table(relation) for relation in graph.relations}
    return {key: table for key, table in sorted(tables.items()) if table is not None}


def edge_tables_to_place(
    graph: Graph, order: Order, tables: dict[str, FeatureTable], scores: Scores | None
) -> list[RankedTable]:
    """Return the tables of `edge_feature_tables` with scores.

    With `scores` a list is read as often as they predict, by their sampler and fanouts; without, as often as the
    feature row of its node by the scores of the order, `USUAL_FANOUT` neighbours at a time.
    """
    placed = []
    for key, table in tables.items():
        relation = graph.relation(key)
        reads, entries = _reads(graph, order, relation, scores)
        own = EdgeScores.of(checked_lists(graph, relation)[0], reads, entries)
        placed.append(RankedTable(key, table.rows, table.row_bytes, own))
    return placed


def _reads(
    graph: Graph, order: Order, relation: Relation, scores: Scores | None
) -> tuple[Callable[[int, int], Floats], Entries]:
    """Return the reads of the lists of columns begin to end, and the neighbours that a read draws."""
    if scores is None:
        ranked = order.score(relation[2])
        drawn = partial(list_read_entries, sampler="uniform", fanouts=[USUAL_FANOUT])
        return lambda begin, end: ranked[begin:end], drawn
    purpose, remedy = ", which edge features are placed by", "leave --scores out, or "
    sampler, fanouts = list_sampling(graph, relation, scores, purpose, remedy)
    drawn = partial(list_read_entries, sampler=sampler, fanouts=fanouts)
    return partial(take_by_rank, scores.adjacency(relation), graph, relation[2]), drawn
