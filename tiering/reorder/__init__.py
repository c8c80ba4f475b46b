"""The reorder stage: relabel a graph so that id = rank, with everything that belongs to nodes and edges."""

from tiering.reorder.adjacency import reorder_graph
from tiering.reorder.predict import expected_memory

__all__ = ["expected_memory", "reorder_graph"]
