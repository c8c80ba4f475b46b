"""What each batch reads from each stretch of each score's line: the numbers behind the error bars.

A sampler counts, batch by batch, how many of the nodes it finds carry each of up to 256 marks (`maps`). The marks of a
score are the stretches of its line; with several node types a second kind of map marks type and stretch together, with
fewer stretches, so that both fit into one byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.scores.ranking import LEFT_OUT, Ranking
from tiering.scores.rows import IntArray, Rows

MARKS = 256
"""Marks of a map: one byte per node."""
BucketMap = Mapping[str, npt.NDArray[np.uint8]]
"""Node type -> uint8, shape (nodes,): mark of each node."""


class HitMaps:
    """Maps of all scores, and what was counted by them.

    Parameters
    ----------
    rows, rankings
        The rows, and one line per score.
    coarse
        Per ranking, numbers of the edges at which counts by type are wanted.
    num_nodes
        Nodes of every type of the graph; those that are not in `rows` are marked `LEFT_OUT`.
    """

    def __init__(
        self, rows: Rows, rankings: Sequence[Ranking], coarse: Sequence[IntArray], num_nodes: Mapping[str, int]
    ) -> None:
        self._rows, self._rankings = rows, rankings
        self._outside = {t: np.full(count, LEFT_OUT, np.uint8) for t, count in num_nodes.items() if t not in rows.types}
        self.maps: list[BucketMap] = [self._map(ranking.stretches) for ranking in rankings]
        self._inner = [np.union1d(cuts[cuts > 0], [r.edges.size - 1]) for cuts, r in zip(coarse, rankings, strict=True)]
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # score and type -> map and its first mark
        if len(rows.types) > 1:
            for score in range(len(rankings)):
                self._add_type_maps(score)
        self.hits: IntArray = np.zeros((len(self.maps), 0, MARKS), np.int64)
        """int64, shape (maps, groups of batches, `MARKS`): set when they were counted."""

    def _map(self, marks: npt.NDArray[np.uint8]) -> BucketMap:
        rows = self._rows
        return {**{t: marks[rows.part(i)] for i, t in enumerate(rows.types)}, **self._outside}

    def _add_type_maps(self, score: int) -> None:
        """Mark type and stretch: as many types to a map as fit, the others are left out of it."""
        inner = self._inner[score]
        fine = np.arange(self._rankings[score].edges.size - 1)
        merged = np.searchsorted(inner, fine, side="right")
        per_map = max(1, LEFT_OUT // inner.size)
        for first in range(0, len(self._rows.types), per_map):
            marks = np.full(self._rows.size, LEFT_OUT, np.uint8)
            for index in range(first, min(first + per_map, len(self._rows.types))):
                begin = (index - first) * inner.size
                part = self._rows.part(index)
                marks[part] = (begin + merged).astype(np.uint8)[self._rankings[score].stretches[part]]
                self._places[score, index] = (len(self.maps), begin)
            self.maps.append(self._map(marks))

    def up_to(self, score: int, cuts: IntArray, index: int | None = None) -> IntArray:
        """Rows that each group of batches found in front of each cut.

        Parameters
        ----------
        score
            Number of the ranking.
        cuts
            Numbers of edges; with `index`, of those given as `coarse`.
        index
            Number of the type; all types if left out.

        Returns
        -------
        numpy.ndarray
            int64, shape (groups, cuts).
        """
        if index is None or len(self._rows.types) == 1:
            return self._summed(self.hits[score])[:, cuts]
        where, begin = self._places[score, index]
        inner = self._inner[score]
        own = self._summed(self.hits[where][:, begin : begin + inner.size])
        return own[:, np.searchsorted(np.concatenate([[0], inner]), cuts)]

    @property
    def found(self) -> IntArray:
        """int64, shape (groups,): rows of competing types that each group found; 0 groups without a score."""
        if not self._rankings:
            return np.zeros(0, np.int64)
        return np.asarray(self.hits[0, :, :LEFT_OUT].sum(axis=1), dtype=np.int64)

    @staticmethod
    def _summed(hits: npt.NDArray[Any]) -> IntArray:
        return np.concatenate([np.zeros((len(hits), 1), np.int64), np.cumsum(hits, axis=1)], axis=1)
