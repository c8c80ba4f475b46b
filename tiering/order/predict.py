"""What ranking nodes will take."""

from __future__ import annotations

from tiering.execution import Budget
from tiering.execution.costs import kernel_seconds, read_seconds
from tiering.execution.plan import Step
from tiering.execution.rates import Rates
from tiering.formats.shape import GraphShape
from tiering.order.by_score import require_sort, sort_bytes


def predict_order(shape: GraphShape, budget: Budget, rates: Rates, *, cached: bool = True) -> list[Step]:
    """Steps in which the nodes of each type are ranked.

    Parameters
    ----------
    cached
        Whether the page cache holds the scores.

    Raises
    ------
    BudgetError
        Where ranking would.
    """
    steps = []
    for node_type, node in shape.nodes.items():
        count = node.num_nodes
        require_sort(node_type, count, budget)
        read = 0 if cached else 8 * count
        seconds = read_seconds(read, rates.source) + kernel_seconds("rank", count, rates, count)
        steps.append(Step(f"rank {node_type}", "in memory", sort_bytes(count), read, 0, 0, seconds, count, "node"))
    return steps
