"""The layout stage: which rank lies in which tier, and the bytes of each tier on disk.

`LayoutOptions` is what was asked for, `plan_layout` decides by it, `write_layout` writes what was decided.
"""

from tiering.layout.options import LayoutOptions
from tiering.layout.plan import LayoutPlan, plan_layout
from tiering.layout.tiers import Capacities, RankedTable, parse_capacities, parse_page, parse_peer, plan_tiers
from tiering.layout.writer import write_layout

__all__ = [
    "Capacities",
    "LayoutOptions",
    "LayoutPlan",
    "RankedTable",
    "parse_capacities",
    "parse_page",
    "parse_peer",
    "plan_layout",
    "plan_tiers",
    "write_layout",
]
