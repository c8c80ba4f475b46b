"""Which things go to which task: positions by part, in each part in the order they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_RADIX = 1 << 16
"""Numbers of parts that numpy sorts by their digits, in one pass."""


def partition(
    keys: npt.NDArray[Any], bounds: npt.NDArray[np.int64], threads: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Positions of the keys by the range they lie in, and how many each has; `bounds`: where ranges begin and end."""
    return by_part(np.searchsorted(bounds, keys, "right") - 1, bounds.size - 1)


def by_part(part: npt.NDArray[Any], parts: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Positions of things by the number of their part, and how many each part has."""
    narrow = part.astype(np.uint16) if parts <= _RADIX else part
    return np.argsort(narrow, kind="stable"), np.bincount(part, minlength=parts).astype(np.int64)
