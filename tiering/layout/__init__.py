"""The layout stage: which rank lies in which tier, and the bytes of each tier on disk.

`LayoutOptions` is what was asked for, `plan_layout` decides by it, `write_layout` writes what was decided.
"""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["LayoutOptions", "RankedTable", "parse_capacities", "plan_layout", "plan_tiers", "write_layout"]

if TYPE_CHECKING:
    from tiering.layout.options import LayoutOptions
    from tiering.layout.plan import plan_layout
    from tiering.layout.tiers import RankedTable, parse_capacities, plan_tiers
    from tiering.layout.writer import write_layout
else:
    __getattr__ = lazy_names(__name__, "options", "tiers", "plan", "writer")
