"""The reorder stage: rank nodes by score (rank 0 is the hottest), and relabel a graph so that id = rank."""

from tiering.reorder.first import first_digests, read_first
from tiering.reorder.graph import reorder_graph
from tiering.reorder.plan import plan_reorder, require_memory
from tiering.reorder.rank import check_scores
from tiering.reorder.sizes import Sizes

__all__ = ["Sizes", "check_scores", "first_digests", "plan_reorder", "read_first", "reorder_graph", "require_memory"]
