"""Orders: from scores to ranks. Rank 0 is the hottest node."""

from tiering.order.by_score import order_nodes

__all__ = ["order_nodes"]
