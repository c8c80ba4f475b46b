"""Arrays that stay in the memory of a process from task to task, so that steps over the same ranges read them once.

Only memory that the steps promise is used: the rest is not kept, and what is gone is read or made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from tiering.run.pieces import Columns

Key = tuple[str | int, ...]  # of a step, by its name, then of a task and a partition


class ResidentArrays:
    """Arrays of one job by key, up to a number of bytes; those that came first stay."""

    def __init__(self) -> None:
        self._lock, self._family, self._limit, self.nbytes = threading.Lock(), ("", frozenset[str]()), 0, 0
        self._arrays: dict[Key, Columns] = {}

    def begin_task(self, job: str, steps: Iterable[str], limit: int) -> None:
        """Drop the arrays of other jobs and of other `steps`, and all if they are more than `limit` bytes."""
        family = job, frozenset(steps)
        with self._lock:
            self._limit = limit
            if family != self._family:
                arrays = self._arrays if job == self._family[0] else {}
                self._family, self._arrays = family, {k: a for k, a in arrays.items() if k[0] in family[1]}
                self.nbytes = sum(map(_size, self._arrays.values()))
            if self.nbytes > limit:
                self._arrays, self.nbytes = {}, 0

    def get(self, key: Key, make: Callable[[], Columns]) -> Columns:
        """Return the arrays of a key, or what `make` returns, kept if there is room; nobody may change them."""
        columns = self._arrays.get(key)
        if columns is None:
            columns = make()
            self.put({key: columns})
        return columns

    def put(self, arrays: Mapping[Key, Columns]) -> None:
        """Keep all `arrays`, which may share memory, or none of them, if there is no room or some are there."""
        with self._lock:
            nbytes = self.nbytes + sum(map(_size, arrays.values()))
            if nbytes <= self._limit and not arrays.keys() & self._arrays.keys():
                self._arrays.update(arrays)
                self.nbytes = nbytes

    def clear(self) -> None:
        """Drop all arrays."""
        self.begin_task("", (), 0)


def _size(columns: Columns) -> int:
    return sum(array.nbytes for array in columns.values())


resident = ResidentArrays()  # shared by the tasks of this process
