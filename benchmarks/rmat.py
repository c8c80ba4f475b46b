"""Recursive-matrix (R-MAT) power-law graphs, for benchmarks and tests.

Source: Chakrabarti, Zhan, Faloutsos, "R-MAT" (SDM'04); Graph500's specification; SplitMix64 by S. Vigna.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_LEVELS = 30
_LEVELS_PER_DRAW = 4
"""16 random bits decide one level."""
_A, _AB, _ABC = 37355, 49807, 62259
"""65,536 times the odds of the quadrants, summed: .57, .19, .19, .05."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 1 << 20

Words = npt.NDArray[np.uint64]
Edges = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]


def rmat_edges(scale: int, num_edges: int, seed: int = 0, *, scramble: bool = False) -> Edges:
    """Draw sources and destinations of `num_edges` edges over ``2**scale`` nodes; duplicates and self loops are kept.

    Edge i depends on (seed, i) alone. Low ids have high degrees; `scramble` relabels by a bijection, as Graph500 asks,
    so that ids tell nothing about degrees. Cost: about a fourth of a microsecond for each edge.
    """
    if not 1 <= scale <= MOST_LEVELS:
        raise ValueError(f"scale is {scale}, expected 1..{MOST_LEVELS}")
    src, dst = np.empty(num_edges, np.int32), np.empty(num_edges, np.int32)
    with np.errstate(over="ignore"):
        key = _mix(np.array([seed], np.uint64))
        for begin in range(0, num_edges, _CHUNK):
            end = min(begin + _CHUNK, num_edges)
            for out, ids in zip((src, dst), _draw(scale, key, begin, end), strict=True):
                out[begin:end] = _scramble(ids, scale, key) if scramble else ids
    return src, dst


def _draw(scale: int, key: Words, begin: int, end: int) -> tuple[Words, Words]:
    numbers = key + np.arange(begin, end, dtype=np.uint64) * np.uint64(MOST_LEVELS)
    src, dst = np.zeros(end - begin, np.uint64), np.zeros(end - begin, np.uint64)
    for level in range(scale):
        if level % _LEVELS_PER_DRAW == 0:
            bits = _mix(numbers + np.uint64(level))
        draw = (bits >> np.uint64(16 * (level % _LEVELS_PER_DRAW))).astype(np.uint16)
        src = src << np.uint64(1) | (draw >= _AB)
        dst = dst << np.uint64(1) | ((draw >= _A) & (draw < _AB) | (draw >= _ABC))
    return src, dst


def _mix(words: Words) -> Words:
    """Return SplitMix64's finaliser behind its increment."""
    words = words + _GOLDEN
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ words >> np.uint64(31)
    return mixed


def _scramble(ids: Words, scale: int, key: Words) -> Words:
    """Map ids by a bijection: odd multipliers and xor with higher bits are both invertible modulo ``2**scale``."""
    mask = np.uint64((1 << scale) - 1)
    for _ in range(3):
        ids = (ids * _GOLDEN + key) & mask
        ids = ids ^ ids >> np.uint64(scale // 2 + 1)
    return ids
