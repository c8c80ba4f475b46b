"""How finely a job is cut, by sizes and options alone, never by workers; bounds of partitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Memory of a task, or a number of partitions."""

    task_memory: int = 2 << 30  # memory of a task in bytes, about: partitions are as large as that allows
    shards: int | None = None  # number of partitions, in place of what follows from `task_memory`

    def parts(self, nbytes: int) -> int:
        """Return the number of partitions of a step that would take `nbytes` of memory as one task."""
        return self.shards or max(1, -(-nbytes // self.task_memory))


MAX_RUNS = 1 << 16  # runs of keys that a histogram counts, at most


def run_shift(keys: int, runs: int = MAX_RUNS) -> int:
    """Return the shift with which keys 0 .. keys - 1 have at most `runs` runs of ``2**shift`` keys."""
    return max(0, (keys - 1).bit_length() - runs.bit_length() + 1)


def equal_bounds(count: int, parts: int) -> list[int]:
    """Return the bounds of `parts` ranges of `count` items, whose sizes differ by at most one."""
    return [count * part // parts for part in range(parts + 1)]


def balanced_bounds(weights: Int64Array, parts: int) -> list[int]:
    """Return the bounds of `parts` ranges of about the same weight each; a range may be empty."""
    ends = np.concatenate([[0], np.cumsum(weights)])
    wanted = [int(ends[-1]) * part // parts for part in range(1, parts)]
    inner = np.searchsorted(ends, wanted, "left") if parts > 1 else np.empty(0, np.int64)
    return [0, *np.minimum(inner, weights.size).tolist(), int(weights.size)]
