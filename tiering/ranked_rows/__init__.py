"""Rows of a feature table in rank order, within a memory budget, by the cheapest way.

In order   the table lies in rank order: read it front to back.
Gather     the table fits the free memory as page cache: read it in, take row by row.
Passes     a window of ranks is filled while the whole table streams past, window after window: the table is read once
           per window.
Scatter    the table streams past once and its rows go to one file per window; each file is then read into its window:
           three times the bytes of the table, however many windows there are.

Random     rows are read from the disk in rank order, hundreds in flight: where the disk takes no longer for that than
           for reading and writing everything in sequence, which is measured.

Up to three windows, passes move no more bytes than a scatter and need no room on disk.
"""

from tiering.ranked_rows.forecast import RowForecast, predict_rows
from tiering.ranked_rows.plan import RowPlan, least_memory, plan_rows
from tiering.ranked_rows.rows import RankedRows

__all__ = ["RankedRows", "RowForecast", "RowPlan", "least_memory", "plan_rows", "predict_rows"]
