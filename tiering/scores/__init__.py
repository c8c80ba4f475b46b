"""Scores: how often each node's feature row is expected to be read in training."""

from tiering.scores.base import METHODS, score_graph, score_options

__all__ = ["METHODS", "score_graph", "score_options"]
