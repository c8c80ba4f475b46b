"""What each batch reads from each bucket of each score's line: the numbers behind the error bars.

A sampler counts, batch by batch, how many of the nodes it finds carry each of up to 256 marks (`maps`). The marks of a
score are the buckets of its line; with several node types a second kind of map marks type and bucket together, with
fewer buckets, so that both fit into one byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.evaluation.competing_rows import IntArray, Rows
from tiering.evaluation.ranking import Ranking

MARKS = 256
"""Marks of a map: one byte per node."""
MarkMap = Mapping[str, npt.NDArray[np.uint8]]
"""Node type -> uint8, shape (nodes,): mark of each node; types that are not in it are not counted."""


class HitMaps:
    """Maps of all scores, and what was counted by them.

    Parameters
    ----------
    rows, rankings
        The rows, and one line per score.
    coarse
        Per ranking, numbers of the edges at which counts by type are wanted.
    """

    def __init__(self, rows: Rows, rankings: Sequence[Ranking], coarse: Sequence[IntArray]) -> None:
        self._rows, self._rankings = rows, rankings
        self.maps: list[MarkMap] = [
            {t: ranking.buckets[rows.part(i)] for i, t in enumerate(rows.types)} for ranking in rankings
        ]
        self._inner = [np.union1d(cuts[cuts > 0], [r.edges.size - 1]) for cuts, r in zip(coarse, rankings, strict=True)]
        self._places: dict[tuple[int, int], tuple[int, int]] = {}  # score and type -> map and its first mark
        if len(rows.types) > 1:
            for score in range(len(rankings)):
                self._add_type_maps(score)
        self.hits: IntArray = np.zeros((len(self.maps), 0, MARKS), np.int64)
        """int64, shape (maps, groups of batches, `MARKS`): set when they were counted."""

    def _add_type_maps(self, score: int) -> None:
        """Mark type and bucket: as many types to a map as fit, the others are not in it."""
        inner, ranking = self._inner[score], self._rankings[score]
        merged = np.searchsorted(inner, np.arange(ranking.edges.size - 1), side="right")
        per_map = max(1, MARKS // inner.size)
        for first in range(0, len(self._rows.types), per_map):
            marks: dict[str, npt.NDArray[np.uint8]] = {}
            for index in range(first, min(first + per_map, len(self._rows.types))):
                begin = (index - first) * inner.size
                own = ranking.buckets[self._rows.part(index)]
                marks[self._rows.types[index]] = (begin + merged).astype(np.uint8)[own]
                self._places[score, index] = (len(self.maps), begin)
            self.maps.append(marks)

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

    @staticmethod
    def _summed(hits: npt.NDArray[Any]) -> IntArray:
        return np.concatenate([np.zeros((len(hits), 1), np.int64), np.cumsum(hits, axis=1)], axis=1)
