"""The reorder stage: rank nodes by score (rank 0 is the hottest), and relabel a graph so that id = rank."""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["ReorderPlan", "Sizes", "check_scores", "first_digests", "read_first", "reorder_graph"]

if TYPE_CHECKING:
    from tiering.reorder.arrays import Sizes
    from tiering.reorder.graph import reorder_graph
    from tiering.reorder.plan import ReorderPlan
    from tiering.reorder.rank import check_scores, first_digests, read_first
else:
    __getattr__ = lazy_names(__name__, "arrays", "rank", "plan", "graph")
