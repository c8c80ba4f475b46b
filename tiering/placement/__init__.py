"""Decide what lies where. Sizes, scores and times in, ranges out; nothing is written.

`tiering layout` writes what is planned here; `tiering evaluate` says beforehand what such a plan would move.
"""

from tiering.placement.access_times import AccessTimes, read_access_times
from tiering.placement.beyond import Beyond
from tiering.placement.lines import Lists
from tiering.placement.split import Side, Split, gpu_budget, parse_split, plan_split, split_memory
from tiering.placement.tiers import (
    MAX_PAGE,
    MIN_PAGE,
    Capacities,
    Table,
    longest_prefix,
    parse_capacities,
    parse_page,
    parse_peer,
    plan_tiers,
)

__all__ = [
    "MAX_PAGE",
    "MIN_PAGE",
    "AccessTimes",
    "Beyond",
    "Capacities",
    "Lists",
    "Side",
    "Split",
    "Table",
    "gpu_budget",
    "longest_prefix",
    "parse_capacities",
    "parse_page",
    "parse_peer",
    "parse_split",
    "plan_split",
    "plan_tiers",
    "read_access_times",
    "split_memory",
]
