"""Feature rows on their way to the order of ranks: how a table is read, and its rows as items that are moved.

``in order``: the table lies in rank order. ``gather``: the page cache has room for it, and rows are taken one by one.
``passes``: it is read front to back, once for each group of windows, or once where rows are cut by window first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.reader import bytes_on_disk, chunks, prefetch, uncached_bytes
from tiering.artifacts.storage import AnyArray, Bytes
from tiering.formats.encoded_rows import EncodedTable
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.formats.tier_rows import TierRows
from tiering.reorder.arrays import SIZES, PieceSizes, Rows, moved_bytes, source_of
from tiering.run.move import PLACE_BYTES, MoveCost, ReadPlan

_ENCODING = 4 << 20  # bytes that threads hold while they encode rows and add up errors, about


def plan_reading(table: Rows, in_order: bool, sizes: PieceSizes | None = None, made_bytes: int = 0) -> ReadPlan:
    """Return how the rows of a table are read; `in_order`: it lies in the order of its ranks.

    `made_bytes`: of a row that is converted after it was read.
    """
    sizes, source = sizes or SIZES, source_of(table)
    how = "in order" if in_order else "gather" if sizes.cached(table) else "passes"
    numbers = PLACE_BYTES if how == "passes" else 0
    row = max(moved_bytes(table), made_bytes) + numbers
    # From the page cache small pieces come as fast; a table that is one piece takes one buffer.
    step = sizes.rows(2 * row if how == "gather" and table.rows * row > sizes.chunk else row)
    rows = min(step, table.rows)
    pieces, made = rows * source.row_bytes * min(2, -(-table.rows // step)), rows * made_bytes
    if isinstance(table, EncodedTable):
        made += rows * table.row_bytes + min(_ENCODING, table.bytes)
    elif isinstance(source, TierRows):
        pieces = source.pieces_memory(step)
    return ReadPlan(how, table.rows, step, rows * (made_bytes or table.row_bytes), pieces + made + rows * numbers)


def disk_read(table: Rows, cost: MoveCost) -> int:
    """Return the bytes read from disk, shuffle files apart: of a table that is cached none."""
    source = source_of(table)
    if not isinstance(source, FeatureTable):
        return cost.passes * source.disk_bytes
    if not source.path.exists():  # it will have been written past the page cache
        return cost.passes * source.bytes
    rows = map_rows(source, random=False)
    return uncached_bytes(rows) if cost.how == "gather" else cost.passes * bytes_on_disk([rows])


@dataclass(frozen=True)
class TableReader:
    """The rows of a table with their ranks."""

    table: Rows
    maps: tuple[AnyArray, AnyArray] | None  # row of each rank, and rank of each row; none: it lies in rank order
    threads: int = 1
    sizes: PieceSizes | None = None
    convert: Callable[[Bytes], AnyArray] | None = None  # what becomes of rows that were read
    made_bytes: int = 0  # bytes of a row that was converted

    @cached_property
    def reading(self) -> ReadPlan:
        """How the rows are read, decided once."""
        return plan_reading(self.table, self.maps is None, self.sizes, self.made_bytes)

    def read(self, begin: int, end: int, multiple: int = 1) -> Iterator[tuple[Bytes, AnyArray | range]]:
        """Yield rows and ranks in pieces: of the ranks [begin, end), or with ``passes`` of those rows of the table."""
        table, step = self.table, max(1, self.reading.step // multiple) * multiple
        encoded = np.empty((0, table.row_bytes), np.uint8)
        for first, rows, *numbers in self._pieces(begin, end, step):
            if isinstance(table, EncodedTable):
                encoded = encoded if encoded.size else np.empty((len(rows), table.row_bytes), np.uint8)
                rows = table.encode(rows, first, self.threads, encoded[: len(rows)])
            if self.convert is not None:
                rows = np.ascontiguousarray(self.convert(rows)).view(np.uint8).reshape(len(rows), -1)
            yield rows, numbers[0] if numbers else range(first, first + len(rows))

    def _pieces(self, begin: int, end: int, step: int) -> Iterator[tuple[Any, ...]]:
        """Yield the first row, rows as the source has them, and their ranks unless these follow each other."""
        source, how, ranks = source_of(self.table), self.reading.how, [] if self.maps is None else [self.maps[1]]
        if not isinstance(source, FeatureTable):
            for first, rows in source.pieces(step, begin):
                stop = min(end, first + len(rows))
                yield first, rows[: stop - first], *(np.ascontiguousarray(own[first:stop]) for own in ranks)
                if stop == end:
                    return
            return
        mapped = map_rows(source, random=how == "gather")
        if how != "gather" or self.maps is None:
            for first, _, (rows, *numbers) in chunks([mapped[begin:end], *(own[begin:end] for own in ranks)], step):
                yield begin + first, np.ascontiguousarray(rows), *map(np.ascontiguousarray, numbers)
            return
        new_to_old: Any = self.maps[0]
        buffers = [np.empty((min(step, end - begin), source.row_bytes), np.uint8) for _ in range(2)]

        def gather(first: int) -> tuple[int, Bytes]:
            ids = new_to_old[first : min(end, first + step)]
            rows = buffers[(first - begin) // step % 2][: ids.size]
            native.gather_rows(mapped, ids, rows, self.threads)
            return first, rows

        yield from prefetch(gather, range(begin, end, step))
