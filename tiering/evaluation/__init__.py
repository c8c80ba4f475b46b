"""Evaluation: what share of the reads of training a score would serve, counted by the training sampler itself."""

from tiering.evaluation.cache_order import ORACLE
from tiering.evaluation.figures import plot
from tiering.evaluation.result import Evaluation
from tiering.evaluation.run import evaluate, named_scores

__all__ = ["ORACLE", "Evaluation", "evaluate", "named_scores", "plot"]
