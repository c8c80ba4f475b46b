"""Where attempts at tasks run: threads of this process, or workers of a Ray cluster."""

from tiering.cluster.executors.executor import Executor, Finished, LostWorkerError

__all__ = ["Executor", "Finished", "LostWorkerError"]
