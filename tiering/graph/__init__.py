"""The graph stage: from edge lists of a dataset to compressed columns (CSC) per relation."""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["build_graph"]

if TYPE_CHECKING:
    from tiering.graph.build import build_graph
else:
    __getattr__ = lazy_names(__name__, "build")
