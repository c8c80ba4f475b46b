"""Scores: how often each node's feature row, and each adjacency list, is expected to be read in training."""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["METHODS", "adjacency_bytes", "plan_score", "score_graph"]

if TYPE_CHECKING:
    from tiering.scores.plan import METHODS, adjacency_bytes, plan_score, score_graph
else:
    __getattr__ = lazy_names(__name__, "plan")
