"""The reorder stage: rank nodes by score (rank 0 is the hottest), and relabel a graph so that id = rank."""

from tiering.reorder.arrays import Sizes
from tiering.reorder.graph import reorder_graph
from tiering.reorder.plan import ReorderPlan
from tiering.reorder.rank import check_scores, first_digests, read_first

__all__ = ["ReorderPlan", "Sizes", "check_scores", "first_digests", "read_first", "reorder_graph"]
