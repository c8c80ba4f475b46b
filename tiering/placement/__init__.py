"""Names that documentation of versions before showed; they live in `tiering.layout` now."""

from tiering.layout.tiers import Capacities, Table, parse_capacities, parse_page, parse_peer, plan_tiers

__all__ = ["Capacities", "Table", "parse_capacities", "parse_page", "parse_peer", "plan_tiers"]
