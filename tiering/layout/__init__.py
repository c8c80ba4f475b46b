"""The layout stage: which rank lies in which tier, and the bytes of each tier on disk."""

from tiering.layout.inspect import describe
from tiering.layout.writer import write_layout
from tiering.placement import Capacities, Table, parse_capacities, parse_page, parse_peer, plan_tiers

__all__ = [
    "Capacities",
    "Table",
    "describe",
    "parse_capacities",
    "parse_page",
    "parse_peer",
    "plan_tiers",
    "write_layout",
]
