"""Permute the rows of a feature table into rank order, within a memory budget, by the cheapest strategy.

``in order``: the table lies in rank order. ``gather``: it fits the free memory as page cache, take row by row.
``passes``: a window of ranks is filled while the table streams past, once per window. ``scatter``: rows go to one file
per window, each then read into its window: three times the bytes of the table, more than passes up to three windows.
"""

from tiering.reorder.rows.permute import PermutedRows, RowPlan, minimum_memory, plan_rows

__all__ = ["PermutedRows", "RowPlan", "minimum_memory", "plan_rows"]
