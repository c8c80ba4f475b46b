"""Evaluation: what share of the reads of training a score would serve, counted by the training sampler itself."""

from tiering.evaluation.figures import plot
from tiering.evaluation.rates import ORACLE
from tiering.evaluation.result import Evaluation
from tiering.evaluation.run import evaluate, named_scores

__all__ = ["ORACLE", "Evaluation", "evaluate", "named_scores", "plot"]
