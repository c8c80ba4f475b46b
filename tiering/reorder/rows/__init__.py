"""Permute rows: those of a feature table into rank order, within a memory budget, by the cheapest strategy.

In order   the table lies in rank order: read it front to back.
Gather     the table fits the free memory as page cache: read it in, take row by row.
Passes     a window of ranks is filled while the whole table streams past, window after window: the table is read once
           per window.
Scatter    the table streams past once and its rows go to one file per window; each file is then read into its window:
           three times the bytes of the table, however many windows there are.

Up to three windows, passes move no more bytes than a scatter and need no room on disk. (Rows read from the disk in rank
order, hundreds in flight, took seven times as long as a scatter with 512 bytes a row, and twice with 4096.)
"""

from tiering.reorder.rows.permute import PermutedRows
from tiering.reorder.rows.plan import RowPlan, minimum_memory, plan_rows

__all__ = ["PermutedRows", "RowPlan", "minimum_memory", "plan_rows"]
