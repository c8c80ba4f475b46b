"""The reorder stage: relabel a graph so that id = rank, with everything that belongs to nodes and edges."""

from tiering.reorder.adjacency import reorder_graph

__all__ = ["reorder_graph"]
