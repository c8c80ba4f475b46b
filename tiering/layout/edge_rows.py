"""Rows of edge features among the rows that are placed: how often each is read, from the reads of its list.

Rows of a relation stand as its ``indices`` do, list after list, so the lists of low ranks come first. A tier is a range
of them; so a row counts with what the best run of lists that begins at its own brings (the upper concave hull).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.order import Order
from tiering.formats.refusals import checked_lists, of_ranks
from tiering.formats.scores import Scores
from tiering.layout.benefit_curve import Resolution, block_ends, block_sums, falling_rates
from tiering.layout.tiers import RankedTable
from tiering.sampling import list_read_entries, resolve_fanouts

USUAL_FANOUT = 10
"""Entries that a read of a list draws where no scores say: the loader's own default."""
RESOLUTION = Resolution(blocks=1 << 16, chunk=1 << 16)
"""With it the scores of a relation take some 15 MiB while they are made, and 1 MiB then."""

Floats = npt.NDArray[np.float64]
Entries = Callable[[npt.NDArray[np.int64]], Floats]
"""Entries that a read draws of lists of given lengths."""


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
        """From the reads of the lists of columns begin to end, and what a read draws.

        A read of a list of d entries draws ``entries(d)`` of them, so each is read ``entries(d) / d`` times. Cost: one
        pass over the lists; memory: that of the blocks, no more than `Resolution.blocks`.
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
        """Reads of a row, or of a slice of rows."""
        count = int(self.ends[-1]) if self.ends.size else 0
        at = np.arange(*rows.indices(count)) if isinstance(rows, slice) else rows
        return self.rates[np.searchsorted(self.ends, at, side="right")]


def edge_feature_tables(graph: Graph) -> dict[str, FeatureTable]:
    """Features of the edges of each relation that has some, by its key."""
    tables = {relation_key(relation): graph.edge_feature_table(relation) for relation in graph.relations}
    return {key: table for key, table in sorted(tables.items()) if table is not None}


def edge_tables_to_place(
    graph: Graph, order: Order, tables: dict[str, FeatureTable], scores: Scores | None
) -> list[RankedTable]:
    """The tables of `edge_feature_tables` with their scores.

    With `scores` a list is read as often as these predict, by their sampler and fanouts; without, as often as the
    feature row of its node by the scores of the order, `USUAL_FANOUT` entries at a time.
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
    """Reads of the lists of columns begin to end, and what a read draws."""
    destination = relation[2]
    if scores is None:
        ranked = order.score(destination)
        return lambda begin, end: ranked[begin:end], partial(
            list_read_entries, sampler="uniform", fanouts=[USUAL_FANOUT]
        )
    sampling = scores.manifest.provenance.get("options", {}).get("sampling", {})
    if not (scores.relations and "fanouts" in sampling and "sampler" in sampling):
        raise InputError(
            f"{scores.path}: {scores.method} says nothing about reads of adjacency lists, which edge features are "
            "placed by; leave --scores out, or score by the sampler, as by `tiering score G --method hybrid --fanouts "
            "10,10 --out S`, and reorder by these scores"
        )
    index, hops = graph.relations.index(relation), resolve_fanouts(graph.relations, sampling["fanouts"])
    entries = partial(list_read_entries, sampler=sampling["sampler"], fanouts=[hop[index] for hop in hops])
    return partial(of_ranks, scores.adjacency(relation), graph, destination), entries
