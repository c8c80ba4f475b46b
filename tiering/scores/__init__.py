"""Scores: how often each node's feature row, and each adjacency list, is expected to be read in training."""

from tiering.scores.plan import METHODS, plan_score
from tiering.scores.score import adjacency_bytes, score_graph

__all__ = ["METHODS", "adjacency_bytes", "plan_score", "score_graph"]
