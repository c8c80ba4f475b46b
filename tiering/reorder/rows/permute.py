"""Rows of a feature table in rank order, chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.reader import prefetch
from tiering.errors import InternalError
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget
from tiering.reorder.rows.plan import Rows, RowSizes, plan_rows
from tiering.reorder.rows.windows import Windows

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[Any]


class PermutedRows:
    """Rows by rank; a context manager that removes its scratch files.

    `new_to_old` and `old_to_new` are the row of the table for each rank and the other way round; ``None`` if the table
    is in rank order. `scratch` is a directory for files that are needed for a while; made and removed here. `copies`:
    bytes that the caller copies of a chunk.
    """

    def __init__(
        self,
        table: Rows,
        new_to_old: Ids | None,
        old_to_new: Ids | None,
        *,
        budget: Budget,
        scratch: Path,
        threads: int,
        sizes: RowSizes | None = None,
        copies: int = 0,
    ) -> None:
        none = np.empty(0, np.int64)
        self.table, self._in_order = table, new_to_old is None or old_to_new is None
        self._new_to_old = none if new_to_old is None else new_to_old
        self._old_to_new = none if old_to_new is None else old_to_new
        self.plan = plan_rows(table, self._in_order, budget, sizes, copies)  # how the rows are brought into order
        self._threads = threads
        self._windows = Windows(table, self.plan, self._old_to_new, scratch, threads) if self.plan.windows else None

    def chunks(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[int, Bytes]]:
        """Yield rows `begin`..`end` in whole multiples of `multiple` rows: (first rank, uint8 (n, row_bytes)).

        Ranges must come in ascending order. A piece is valid until the next is asked for.
        """
        if begin == end:
            return
        step = self.plan.sizes.rows(self.table.row_bytes, multiple)
        fill = self._filler()
        shape = (min(step, end - begin), self.table.row_bytes)
        buffers = [np.empty(shape, np.uint8) for _ in range(2 if end - begin > step else 1)]

        def load(first: int) -> Bytes:
            return fill(first, buffers[(first - begin) // step % len(buffers)][: min(step, end - first)], step)

        firsts = range(begin, end, step)
        yield from zip(firsts, prefetch(load, firsts), strict=True)

    def _filler(self) -> Callable[[int, Bytes, int], Bytes]:
        """Return a function that returns the rows from a rank on: copied to its chunk, or where they lie."""
        if self._windows is not None:
            return self._windows.rows
        source = self.table
        if not isinstance(source, FeatureTable):
            raise InternalError(f"{source.path}: rows of a stream are in order already")
        table = map_rows(source, random=not self._in_order)

        def copy(first: int, chunk: Bytes, _: int) -> Bytes:
            chunk[:] = table[first : first + chunk.shape[0]]
            if source.verifier is not None:
                source.verifier.update(source.offset + first * source.row_bytes, chunk.reshape(-1).data)
            return chunk

        def gather(first: int, chunk: Bytes, _: int) -> Bytes:
            native.gather_rows(table, self._new_to_old[first : first + chunk.shape[0]], chunk, self._threads)
            return chunk

        return copy if self._in_order else gather

    def close(self) -> None:
        """Remove the scratch files and give the memory back."""
        if self._windows is not None:
            self._windows.close()

    def __enter__(self) -> PermutedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()
