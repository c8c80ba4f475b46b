"""What ranking nodes will take."""

from __future__ import annotations

from tiering.formats.shape import GraphShape
from tiering.memory import Budget
from tiering.order.by_score import least_sort, sort_bytes
from tiering.plan import Step


def predict_order(shape: GraphShape, budget: Budget, threads: int, uncached: float = 0.0) -> list[Step]:
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
        memory, passes, how = sort_bytes(count, threads), 2, "in memory"
        if memory > budget.left():
            pieces = -(-count // least_sort(node_type, budget))
            memory, passes, how = budget.left(), 2 + pieces, f"{pieces} pieces"
        read = round(passes * 8 * count * uncached)
        steps.append(Step(f"rank {node_type}", how, memory, read, 0, 0, count, "node"))
    return steps
