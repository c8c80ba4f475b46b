"""Order by score where the scores do not fit into memory: range of scores after range of scores, highest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import chunks
from tiering.reorder.sizes import SIZES, Sizes

Ids = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]
Scores = npt.NDArray[np.float64]

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class ScoreRanges:
    """Ids by falling score, ties by ascending id, in pieces that fit into memory.

    Cost: the scores are read once to find their range, once to count them in it, and once for each piece. Ranges that
    hold too many nodes are counted again in finer bins; a score that too many nodes share needs no sorting.
    """

    scores: Scores
    piece: int
    """Most nodes sorted together."""
    threads: int
    sizes: Sizes = SIZES

    def pieces(self) -> Iterator[Ids]:
        """Ids, one piece after the other; every node once. `ValueError` if a score is NaN."""
        low, high = 1 << 64, 0
        for first, scores in self._stream():
            if np.isnan(scores).any():
                raise ValueError(f"the score of node {first + int(np.argmax(np.isnan(scores)))} is NaN")
            keys = descending_keys(scores)
            low, high = min(low, int(keys.min())), max(high, int(keys.max()))
        if self.scores.size:
            yield from self._range(low, high + 1, self.scores.size)

    def _range(self, low: int, high: int, count: int) -> Iterator[Ids]:
        """Ids of the nodes, `count` of them, whose key is in [low, high)."""
        if count <= self.piece:
            yield self._sorted(low, high, count)
            return
        if high - low == 1:
            yield from self._same(low)
            return
        bins = self.sizes.score_bins
        width = -(-(high - low) // bins)
        counts = np.zeros(bins, np.int64)
        for _, scores in self._stream():
            keys = descending_keys(scores)
            keys = keys[self._inside(keys, low, high)] - np.uint64(low)
            counts += np.bincount((keys // np.uint64(width)).astype(np.int64), minlength=bins)
        begin = end = nodes = 0  # bins, and their nodes, that come together
        for full in np.flatnonzero(counts).tolist():
            if nodes and nodes + counts[full] > self.piece:
                yield from self._range(low + begin * width, low + end * width, nodes)
                nodes = 0
            begin, end, nodes = begin if nodes else full, full + 1, nodes + int(counts[full])
        yield from self._range(low + begin * width, min(high, low + end * width), nodes)

    def _sorted(self, low: int, high: int, count: int) -> Ids:
        ids, scores = np.empty(count, self._dtype()), np.empty(count)
        done = 0
        for first, part in self._stream():
            inside = self._inside(descending_keys(part), low, high)
            ids[done : done + inside.size] = inside + first
            scores[done : done + inside.size] = part[inside]
            done += inside.size
        return ids[native.sort_by_score(scores, self.threads)]

    def _same(self, key: int) -> Iterator[Ids]:
        """Ids of the nodes with one score."""
        for first, part in self._stream():
            yield (self._inside(descending_keys(part), key, key + 1) + first).astype(self._dtype())

    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(f"i{id_bytes(self.scores.size)}")

    def _stream(self) -> Iterator[tuple[int, Scores]]:
        for first, _, (scores,) in chunks([self.scores], self.sizes.scores):
            yield first, scores

    @staticmethod
    def _inside(keys: Keys, low: int, high: int) -> npt.NDArray[np.int64]:
        """Places of the keys in [low, high)."""
        return np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high - 1)))


def descending_keys(scores: Scores) -> Keys:
    """Unsigned numbers whose ascending order is that of falling scores; -0 equals 0."""
    bits = (scores + 0.0).view(np.uint64)
    return ~np.where(bits >= _SIGN, ~bits, bits | _SIGN)
