"""What every stage has in common when it runs: a memory budget."""

from tiering.execution.budget import Budget, parse_memory
from tiering.execution.memory import own_memory

__all__ = ["Budget", "own_memory", "parse_memory"]
