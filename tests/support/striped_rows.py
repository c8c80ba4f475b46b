"""Rows of several tables striped over images, and reading ahead of batches, in plain Python: judges of the core.

Row numbers go through the tables in order, as the core numbers them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

UNKNOWN = math.inf
"""When a row is used next of which no known batch makes use."""


@dataclass(frozen=True)
class Table:
    """The rows of one table and where they lie in the units that all images share."""

    rows: int
    row_bytes: int
    first_unit: int
    stride: int
    rows_per_unit: int


class Striped:
    """Tables one behind the other in units, of which unit u lies in image u mod `images`; units of `pages` pages."""

    def __init__(
        self, sizes: Sequence[tuple[int, int]], page_bytes: int, images: int, first_unit: int = 0, pages: int = 1,
        strides: Sequence[int] = (),
    ) -> None:  # fmt: skip
        strides = strides or [-(-row_bytes // 4) * 4 for _, row_bytes in sizes]
        pages = max(pages, -(-max(strides, default=1) // page_bytes))
        self.page_bytes, self.images, self.unit_bytes = page_bytes, images, pages * page_bytes
        self.tables: list[Table] = []
        self.units = first_unit
        for (rows, row_bytes), stride in zip(sizes, strides, strict=True):
            per_unit = self.unit_bytes // stride
            self.tables.append(Table(rows, row_bytes, self.units, stride, per_unit))
            self.units += -(-rows // per_unit)
        self.firsts = [0, *accumulate(table.rows for table in self.tables)]

    def __repr__(self) -> str:
        return f"Striped({self.tables}, shape={self.shape}, images={self.images})"

    @property
    def shape(self) -> tuple[int, int]:
        """Bytes of a unit, and of a page."""
        return self.unit_bytes, self.page_bytes

    @property
    def core(self) -> list[tuple[int, int, int, int, int]]:
        """The tables as the core takes them."""
        return [(t.rows, t.row_bytes, t.first_unit, t.stride, t.rows_per_unit) for t in self.tables]

    @property
    def count(self) -> int:
        """Rows of all tables."""
        return self.firsts[-1]

    def table_of(self, row: int) -> int:
        """The number of the table that a row belongs to."""
        return next(t for t, end in enumerate(self.firsts[1:]) if row < end)

    def row_bytes(self, row: int) -> int:
        """Bytes of a row."""
        return self.tables[self.table_of(row)].row_bytes

    def place(self, row: int) -> tuple[int, int, int]:
        """Image of a row, and its begin and end there."""
        table = self.tables[self.table_of(row)]
        unit, slot = divmod(row - self.firsts[self.table_of(row)], table.rows_per_unit)
        unit += table.first_unit
        begin = unit // self.images * self.unit_bytes + slot * table.stride
        return unit % self.images, begin, begin + table.row_bytes

    def write(self, folder: Path, rows: Sequence[np.ndarray[Any, Any]]) -> list[Path]:
        """Write the images; `rows` by table: uint8, shape (rows, bytes of a row)."""
        images = [bytearray(-(-self.units // self.images) * self.unit_bytes) for _ in range(self.images)]
        for row in range(self.count):
            table = self.table_of(row)
            content = rows[table][row - self.firsts[table]].tobytes()
            image, begin, end = self.place(row)
            images[image][begin:end] = content
        paths = [folder / f"image-{k}" for k in range(self.images)]
        for path, content in zip(paths, images, strict=True):
            path.write_bytes(content)
        return paths

    def reads(self, rows: Sequence[int], gap: int, align: int, max_read: int) -> tuple[int, int]:
        """Reads, and their bytes, for ascending rows: whole blocks, through gaps, cut where a read is full."""
        reads = nbytes = 0
        for image in range(self.images):
            begin = end = -1
            for row in rows:
                k, first, last = self.place(row)
                if k != image:
                    continue
                low, high = first // align * align, ((last - 1) // align + 1) * align
                if begin >= 0 and low <= end + gap and max(end, high) - begin <= max_read:
                    nbytes += max(end, high) - end
                    end = max(end, high)
                else:
                    reads, nbytes, begin, end = reads + 1, nbytes + high - low, low, high
        return reads, nbytes


@dataclass(frozen=True)
class PlainRound:
    """Batches that are read for together."""

    first: int
    last: int
    needed: set[int]
    read: list[int]


def round_ends(
    space: Striped, slots: dict[int, int], window: int, batches: Sequence[set[int]]
) -> list[tuple[int, bool]]:
    """Where rounds end that are as long as can be, and whether because the next batch did not fit."""
    ends, open_, needed = [], 0, set()
    for number, batch in enumerate(batches):
        union = needed | batch
        fits = all(sum(space.row_bytes(r) == size for r in union) <= room for size, room in slots.items())
        if number > open_ and (number - open_ == window or not fits):
            ends.append((number, number - open_ < window))
            open_, union = number, batch
        needed = union
    return [*ends, (len(batches), False)] if batches else []


def plain_rounds(
    space: Striped, slots: dict[int, int], window: int, horizon: int, batches: Sequence[set[int]]
) -> list[PlainRound]:
    """Rounds, and the rows that each reads, where the row goes whose next known use is farthest, then the last.

    `slots`: by bytes of a row. Batches become known one by one; a round is planned once it is complete and `horizon`
    batches behind it are known, or no other follows.
    """
    found, resident, first, known = [], set[int](), 0, 0
    for last, crowded in round_ends(space, slots, window, batches):
        complete = last - first == window
        ahead = max(horizon, 1 if crowded else 0)
        known = len(batches) if not (complete or crowded) else max(known, min(len(batches), last + ahead))
        if last + ahead > len(batches):
            known = len(batches)
        needed = set().union(*batches[first:last])
        read = sorted(needed - resident)

        def next_use(row: int, last: int = last, known: int = known) -> float:
            return next((b for b in range(last, known) if row in batches[b]), UNKNOWN)

        for size, room in slots.items():
            of_size = {row for row in resident if space.row_bytes(row) == size}
            wanted = sum(space.row_bytes(row) == size for row in read)
            idle = sorted(of_size - needed, key=lambda row: (next_use(row), row), reverse=True)
            resident -= set(idle[: max(0, len(of_size) + wanted - room)])
        resident |= needed
        found.append(PlainRound(first, last, needed, read))
        first = last
    return found


def cut(size_of: Callable[[int], int], slots: dict[int, int], batch: Sequence[int]) -> list[list[int]]:
    """The parts of a batch by the plain rule: each takes an eighth of the slots, or 16, at most. Or it stays whole."""
    limit = {size: max(1, min(16, number), number // 8) for size, number in slots.items()}
    needed = {size: sum(size_of(row) == size for row in batch) for size in slots}
    if all(needed[size] <= limit[size] for size in slots):
        return [list(batch)]
    even = {size: -(-needed[size] // max(1, -(-needed[size] // limit[size]))) for size in slots}
    parts: list[list[int]] = [[]]
    for row in sorted(batch):
        size = size_of(row)
        if sum(size_of(one) == size for one in parts[-1]) == even[size]:
            parts.append([])
        parts[-1].append(row)
    return parts
