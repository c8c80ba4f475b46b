"""The graph stage: from edge lists of a dataset to compressed columns (CSC) per relation."""

from tiering.graph.build import build_graph
from tiering.graph.transpose import transpose_graph

__all__ = ["build_graph", "transpose_graph"]
