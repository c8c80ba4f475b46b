"""What every stage has in common when it runs: a memory budget, and who makes the shards of its files."""

from tiering.execution.budget import Budget, parse_memory
from tiering.execution.executor import LOCAL, Executor, LocalExecutor, Window
from tiering.execution.memory import own_memory

__all__ = ["LOCAL", "Budget", "Executor", "LocalExecutor", "Window", "own_memory", "parse_memory"]
