"""Scores: how often each node's feature row, and each adjacency list, is expected to be read in training."""

from tiering.scores.adjacency import adjacency_bytes
from tiering.scores.methods import METHODS
from tiering.scores.plan import plan_score
from tiering.scores.score import score_graph

__all__ = ["METHODS", "adjacency_bytes", "plan_score", "score_graph"]
