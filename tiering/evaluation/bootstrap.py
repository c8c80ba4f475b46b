"""Confidence intervals of hit rates, by resampling the batches.

A score is fixed and does not know the batches, so its hit rate is a ratio of two sums over independent batches. The
bootstrap draws as many batches again, with replacement, and forms the ratio of each draw; the middle 95 % of these
ratios are the interval. The oracle gets none: it is chosen on these very batches, so it is exact for them and biased
upwards for any others; resampling cannot show that bias.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = "npt.NDArray[np.float64]"
LEVEL = 0.95
"""Fraction of the draws that an interval covers."""
MAX_GROUPS = 4096
"""Batches are resampled one by one up to this number, beyond it in runs of consecutive ones: memory stays bounded."""


class Bootstrap:
    """Seeded draws of groups of batches, the same for all intervals of an evaluation.

    There are no intervals with fewer than 2 groups or without `resamples`. With few groups an interval is too narrow,
    by about the factor ``sqrt((groups - 1) / groups)``.
    """

    def __init__(self, groups: int, resamples: int, seed: int = 0) -> None:
        self._weights: FloatArray | None = None
        if groups >= 2 and resamples:
            random = np.random.default_rng(seed)
            drawn = random.multinomial(groups, np.full(groups, 1 / groups), size=resamples)
            self._weights = drawn.astype(np.float64)

    def ratios(self, parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> FloatArray | None:
        """Return ``parts.sum(0) / wholes.sum()`` in every draw: shape (resamples, k); 0 where the denominator is 0.

        `parts`, shape (groups, k), and `wholes`, shape (groups,), are whole numbers. Sums below 2^53 are exact, so the
        result does not depend on the order of summation.
        """
        if self._weights is None:
            return None
        totals = self._weights @ wholes.astype(np.float64)
        ratios: FloatArray = (self._weights @ parts.astype(np.float64)) / np.maximum(totals, 1)[:, None]
        return ratios

    def interval(self, parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> FloatArray | None:
        """Return the intervals of the `ratios`: float64, shape (k, 2)."""
        ratios = self.ratios(parts, wholes)
        return None if ratios is None else bound_draws(ratios)


def bound_draws(ratios: FloatArray) -> FloatArray:
    """Return the ends of the middle 95 % of the draws (rows): float64, shape (columns, 2)."""
    tail = (1 - LEVEL) / 2
    ends: FloatArray = np.quantile(ratios, [tail, 1 - tail], axis=0).T
    return ends


def group_of(batch: int, total: int) -> int:
    """Return the group of a batch out of `total`: each its own, or `MAX_GROUPS` runs of nearly equal length."""
    return batch * min(total, MAX_GROUPS) // total
