"""What ranking nodes will take."""

from __future__ import annotations

from tiering.execution import Budget
from tiering.execution.costs import kernel_seconds, read_seconds
from tiering.execution.plan import Step
from tiering.execution.rates import Rates
from tiering.formats.shape import GraphShape
from tiering.order.by_score import least_sort, sort_bytes


def predict_order(shape: GraphShape, budget: Budget, rates: Rates, uncached: float = 0.0) -> list[Step]:
    """Steps in which the nodes of each type are ranked.

    Parameters
    ----------
    uncached
        Share of the scores that the page cache does not hold.

    Raises
    ------
    BudgetError
        Where ranking would.
    """
    steps = []
    for node_type, node in shape.nodes.items():
        count = node.num_nodes
        memory, passes, how = sort_bytes(count, rates.threads), 2, "in memory"
        if memory > budget.left():
            pieces = -(-count // least_sort(node_type, budget))
            memory, passes, how = budget.left(), 2 + pieces, f"{pieces} pieces"
        read = round(passes * 8 * count * uncached)
        seconds = read_seconds(read, rates.source) + kernel_seconds("rank", count, rates, count) * (passes - 1)
        steps.append(Step(f"rank {node_type}", how, memory, read, 0, 0, seconds, count, "node"))
    return steps
