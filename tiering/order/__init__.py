"""Orders: from scores to ranks. Rank 0 is the hottest node."""

from tiering.order.by_score import check_scores, order_nodes

__all__ = ["check_scores", "order_nodes"]
