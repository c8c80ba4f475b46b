"""By which strategy the rows of a table come into rank order: from row size, memory and page cache."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import bytes_on_disk, uncached_bytes
from tiering.artifacts.storage import ALIGNMENT, LINE
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget
from tiering.reorder.sizes import SIZES, Rows, Sizes
from tiering.units import format_bytes

MAX_PASSES = 3  # windows up to which the table is read once for each
BUFFERS = 7
"""Chunks held next to a window: two the caller writes, two being read with their ranks, two being sorted by file."""
WHOLE_BUFFERS = 2  # chunks held without windows: one being read, one the caller writes, who may hold copies of his own


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a table come into rank order."""

    strategy: str  # ``in order``, ``gather``, ``passes`` or ``scatter``
    window_rows: int  # ranks filled together; all where there are no windows
    memory: int  # bytes at the peak, copies that the caller makes of a chunk included
    bytes_scratch: int = 0  # bytes written to disk for a while, besides the result
    passes: int = 1  # how often the table is read
    sizes: Sizes = SIZES

    @property
    def windows(self) -> bool:
        """Whether rows come from windows."""
        return self.strategy in ("passes", "scatter")

    @property
    def how(self) -> str:
        """The strategy in words."""
        if self.strategy != "passes":
            return self.strategy
        return "one pass" if self.passes == 1 else f"{self.passes} passes"

    def disk_read(self, table: Rows) -> int:
        """Return the bytes read from disk, scratch apart: streams read all of a table or, if it is cached, nothing."""
        if not isinstance(table, FeatureTable):
            return self.passes * table.disk_bytes
        if not table.path.exists():  # it will have been written past the page cache
            return self.passes * table.bytes
        rows = map_rows(table, random=False)
        return self.passes * bytes_on_disk([rows]) if self.windows else uncached_bytes(rows)


def minimum_memory(table: Rows, in_order: bool, sizes: Sizes | None = None, copies: int = 0) -> int:
    """Return the bytes with which rows can be brought into rank order at all; arguments as of `plan_rows`."""
    sizes = sizes or SIZES
    chunk = max(sizes.chunk, table.row_bytes)
    if in_order or sizes.cached(table):
        return WHOLE_BUFFERS * min(chunk, table.bytes) + copies
    return (BUFFERS + 1) * chunk


def plan_rows(table: Rows, in_order: bool, budget: Budget, sizes: Sizes | None = None, copies: int = 0) -> RowPlan:
    """Choose how to bring the rows of a table into rank order; `in_order`: it lies in rank order.

    Memory: 2 chunks, or tables if they are smaller, and the caller's `copies` (bytes) without windows; else 7 chunks
    (and at least 8, of 32 MiB or of one row where rows are larger), and with ``passes`` a window of what is left,
    with ``scatter`` two of half the size. `BudgetError` if the budget has no room for that.
    """
    sizes = sizes or SIZES
    chunk, minimum = max(sizes.chunk, table.row_bytes), minimum_memory(table, in_order, sizes, copies)
    budget.require(minimum, f"rows of {table.path.name}, in chunks of {format_bytes(min(chunk, table.bytes))},")
    if in_order or sizes.cached(table):
        return RowPlan("in order" if in_order else "gather", max(1, table.rows), minimum, sizes=sizes)
    window = max(1, min(table.rows, (budget.left() - BUFFERS * chunk) // table.row_bytes))
    count = -(-table.rows // window)
    held = BUFFERS * min(chunk, table.bytes)  # what small tables take is less than what is asked for
    if count <= MAX_PASSES:
        return RowPlan("passes", window, held + window * table.row_bytes, passes=count, sizes=sizes)
    window = max(1, window // 2)  # one is used, the next is read
    count = -(-table.rows // window)
    pieces = -(-table.rows // sizes.piece_rows(table)) + 1  # as if every file, which ends with a page, had one more
    scratch = segment_bytes(table.rows, table.row_bytes, window, count * pieces)
    return RowPlan("scatter", window, held + 2 * window * table.row_bytes, scratch, sizes=sizes)


def segment_bytes(rows: int, row_bytes: int, window_rows: int, segments: int = 1) -> int:
    """Return at most how many bytes so many rows take in so many segments of scratch files."""
    return rows * (row_bytes + id_bytes(window_rows)) + segments * (LINE + ALIGNMENT)
