"""The graph stage: from edge lists of a dataset to compressed columns (CSC) per relation."""

from tiering.graph.build import build_graph

__all__ = ["build_graph"]
