"""Evaluation: what share of the reads of training a score would serve, counted by the training sampler itself."""

from typing import TYPE_CHECKING

from tiering.text.arguments import lazy_names

__all__ = ["ORACLE", "Evaluation", "evaluate", "named_scores", "plot"]

if TYPE_CHECKING:
    from tiering.evaluation.cache_order import ORACLE
    from tiering.evaluation.figures import plot
    from tiering.evaluation.result import Evaluation
    from tiering.evaluation.run import evaluate, named_scores
else:
    __getattr__ = lazy_names(__name__, "cache_order", "figures", "result", "run")
