"""Which things go to which task: positions by part, in each part in the order they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def partition(
    keys: npt.NDArray[Any], bounds: npt.NDArray[np.int64], threads: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Positions of the keys by the range they lie in, and how many each has; `bounds`: where ranges begin and end."""
    part = np.searchsorted(bounds, keys, "right") - 1
    return np.argsort(part, kind="stable"), np.bincount(part, minlength=bounds.size - 1).astype(np.int64)
