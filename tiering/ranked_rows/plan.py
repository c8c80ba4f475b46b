"""By which way the rows of a table come into rank order: from row size, memory, and how fast the disk is."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.direct_io import ALIGNMENT
from tiering.artifacts.random_rows import measure_rows
from tiering.formats.feature_rows import CHUNK_BYTES, chunk_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget, available_memory
from tiering.ranked_rows.window_file import place_bytes, segment_bytes

SMALL_ROW, LARGEST_ROW = 256, 1 << 20
"""Bytes of rows that may be read at random: below, sectors of 4 KiB make it sixteen times as much; above, it is as good
as in sequence."""
_WORTH_MEASURING = 1 << 30
"""Bytes of a table below which the disk is not asked."""
_RANDOM_SPACE = 4 << 20
"""Bytes for reads in flight, and what is known of the reads of a chunk."""
MOST_PASSES = 3
"""Windows up to which the table is read once for each."""
BUFFERS = 7
"""Chunks held beside a window: two the caller writes, two being read with their ranks, two being sorted by file."""
WHOLE_BUFFERS = 2
"""Chunks held without windows: one being read, one the caller writes, who may hold copies of his own."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a table come into rank order."""

    strategy: str
    """``in order``, ``gather``, ``passes``, ``scatter`` or ``random``."""
    window_rows: int
    """Ranks filled together; all where there are no windows."""
    memory: int
    """Bytes held at the most."""
    bytes_read: int
    """Bytes read from disk."""
    bytes_scratch: int
    """Bytes written to disk for a while, besides the result."""
    passes: int = 1
    """How often the table is read."""

    @property
    def windows(self) -> bool:
        """Whether rows come from windows; then chunks that the caller copies are counted in `memory`."""
        return self.strategy in ("passes", "scatter")


def least_memory(table: FeatureTable, in_order: bool) -> int:
    """Bytes with which rows can be brought into rank order at all; arguments as of `plan_rows`."""
    chunk = max(CHUNK_BYTES, table.row_bytes)
    if in_order or table.bytes < available_memory() // 2:
        return WHOLE_BUFFERS * min(chunk, table.bytes)
    return (BUFFERS + 1) * chunk


def plan_rows(table: FeatureTable, in_order: bool, budget: Budget) -> RowPlan:
    """Choose how to bring the rows of a table into rank order.

    Parameters
    ----------
    in_order
        The table lies in rank order.

    Raises
    ------
    BudgetError
        If fewer than 8 chunks of 32 MiB, or of one row where rows are larger, are left.

    Notes
    -----
    Memory: 2 chunks, or tables if they are smaller, without windows; else 7 chunks, and with ``passes`` a window of
    what is left, with ``scatter`` two of half the size.
    """
    chunk = max(CHUNK_BYTES, table.row_bytes)
    fixed = BUFFERS * chunk
    if in_order or table.bytes < available_memory() // 2:
        memory = least_memory(table, in_order)
        return RowPlan("in order" if in_order else "gather", max(1, table.rows), memory, table.bytes, 0)
    budget.require(least_memory(table, in_order), f"rows of {table.path.name}: eight chunks of {chunk >> 20} MiB")
    window = max(1, min(table.rows, (budget.left() - fixed) // table.row_bytes))
    count = -(-table.rows // window)
    held = BUFFERS * min(chunk, table.bytes)  # what small tables take is less than what is asked for
    memory = held + window * table.row_bytes
    if count > 1 and _random_is_faster(table, min(count, MOST_PASSES)):
        return RowPlan("random", table.rows, WHOLE_BUFFERS * chunk + _RANDOM_SPACE, _random_bytes(table), 0)
    if count <= MOST_PASSES:
        return RowPlan("passes", window, memory, count * table.bytes, 0, count)
    window = max(1, window // 2)  # one is used, the next is read
    count = -(-table.rows // window)
    pieces = -(-table.rows // piece_rows(table)) + 1  # as if every file, which ends with a page, had one more
    scratch = segment_bytes(table.rows, table.row_bytes, window, count * pieces)
    return RowPlan("scatter", window, held + 2 * window * table.row_bytes, table.bytes + scratch, scratch)


def piece_rows(table: FeatureTable) -> int:
    """Rows that pass at a time, with a rank each."""
    return chunk_rows(table.row_bytes + place_bytes(table.rows))


def _random_bytes(table: FeatureTable) -> int:
    """Bytes that reads of single rows move: rows widened to whole sectors at both ends."""
    return table.rows * (-(-table.row_bytes // ALIGNMENT) + (0 if table.row_bytes % ALIGNMENT == 0 else 1)) * ALIGNMENT


def _random_is_faster(table: FeatureTable, times: int) -> bool:
    """Whether reading rows at random takes less time than reading the table so many times in sequence."""
    suited = SMALL_ROW <= table.row_bytes <= LARGEST_ROW and table.bytes >= _WORTH_MEASURING
    if not suited or not table.path.exists():
        return False
    speed = measure_rows(table.path, table.offset, table.rows, table.row_bytes)
    return table.rows / speed.rows < times * table.bytes / speed.stream
