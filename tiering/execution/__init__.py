"""What every stage has in common when it runs: a memory budget."""

from tiering.execution.budget import Budget, parse_memory

__all__ = ["Budget", "parse_memory"]
