"""Lists in ascending order of time, stable, as they leave the sort by destination; or checked to be so.

Memory: `TimeOrder.memory` for each entry of the lists that are put in order together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tiering import native
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.errors import InputError
from tiering.run.grid import Int64Array

SPLITTERS = 1 << 10  # keys that cut a list of more entries than are sorted together
SAMPLES = 1 << 6  # sampled keys of each chunk of the list; splitters are chosen among them


class TimeOrder(NamedTuple):
    """How the lists of a relation are put in order; JSON types, for tasks."""

    value: int  # position of the times among the arrays along the edges
    dtype: str
    is_sorted: bool  # whether the lists are said to be in order
    where: str  # the edges, for messages

    def memory(self, items: Sequence[int]) -> int:
        """Return bytes of memory per entry, whose values have so many bytes: its key twice, its place, a value."""
        return 8 + 8 + 8 + max(8, *items)

    def times(self, values: Sequence[Bytes | None]) -> AnyArray:
        """Return the times among values along the edges."""
        rows = values[self.value]
        assert rows is not None
        times: AnyArray = rows.reshape(-1).view(self.dtype)
        return times

    def keys(self, times: AnyArray) -> Int64Array:
        """Return whole numbers that have the order of the times."""
        if times.dtype.kind == "i":
            return np.asarray(times, np.int64)
        bits: Int64Array = (times + 0.0).view(np.int64)  # -0.0 becomes 0.0
        keys: Int64Array = np.bitwise_xor(bits, (bits >> 63) & np.int64(2**63 - 1))
        return keys

    def apply(self, starts: Int64Array, outs: list[Bytes], column: int, threads: int) -> None:
        """Put lists in order that begin at `starts`, the first of them of `column`: their ids and values in `outs`."""
        times = self.times(outs[1:])
        keys = self.keys(times)
        falls = keys[1:] < keys[:-1]
        falls[starts[(starts > 0) & (starts < keys.size)] - 1] = False
        if not falls.any():
            return
        if self.is_sorted:
            at = int(np.argmax(falls)) + 1
            owner = int(np.searchsorted(starts, at, "right")) - 1
            self._refuse(column + owner, at - int(starts[owner]), times[at - 1 : at + 1])
        order = native.order_lists(keys, np.append(starts, keys.size), threads)
        for out in outs:
            rows = out.reshape(keys.size, -1)
            rows[:] = rows.take(order, axis=0)

    def splitters(self, chunks: Iterable[Sequence[Bytes | None]], column: int) -> Int64Array | None:
        """Return keys that cut a list, whose values come in chunks, in some 2^10 parts; ``None`` if it is in order."""
        samples, last, entry, in_order = [], np.empty(0, self.dtype), 0, True
        for values in chunks:
            times = np.concatenate([last, self.times(values)])
            keys = self.keys(times)
            falls = keys[1:] < keys[:-1]
            if falls.any():
                if self.is_sorted:
                    at = int(np.argmax(falls)) + 1
                    self._refuse(column, entry - last.size + at, times[at - 1 : at + 1])
                in_order = False
            entry += times.size - last.size
            last = times[-1:].copy()
            ordered = np.sort(keys)
            samples += [ordered[:: max(1, keys.size // SAMPLES)], ordered[-1:].copy()]
        known = np.unique(np.concatenate(samples))
        return None if in_order else known[1 :: -(-known.size // SPLITTERS)]

    def _refuse(self, column: int, entry: int, times: AnyArray) -> None:
        raise InputError(
            f"{self.where}: --time-sorted: the lists are not in order of time: entry {entry} of the list of "
            f"node {column} has time {times[1]} after {times[0]}; omit --time-sorted"
        )
