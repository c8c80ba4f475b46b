"""What every side of a sampling benchmark samples: graph, seeds, fanouts, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.bench.sizes import Csc, Sizes
from tiering.sampling import Relation, SamplingOptions

RELATION: Relation = ("node", "to", "node")
FANOUTS = (10, 10, 10)

Sides: TypeAlias = "Mapping[str, Callable[[], int] | str]"
"""Name to a function that samples all batches once and returns the number of edges, or to why there is none."""


@dataclass(frozen=True)
class SamplingTask:
    """Batches to sample, the same for every side."""

    csc: Csc
    """The graph: column = destination."""
    seeds: npt.NDArray[np.int64]
    """Shape (batches, batch size); no node twice."""
    options: SamplingOptions
    """How to sample; fanouts are one number per hop."""
    threads: int
    """Threads of each side."""
    weights: npt.NDArray[np.float32] | None = None
    """Shape (edges,), along the CSC; for ``weighted``."""

    @classmethod
    def of(
        cls, sizes: Sizes, sampler: str = "uniform", fanouts: Sequence[int] = FANOUTS, batches: int = 40, **options: Any
    ) -> SamplingTask:
        """Up to `batches` batches of 1000 random nodes of the R-MAT graph; weights are uniform in (0, 1]."""
        csc = sizes.csc()
        batch_size = min(1000, max(1, sizes.nodes // 16))
        batches = min(batches, sizes.nodes // batch_size)
        rng = np.random.default_rng(sizes.seed)
        seeds = rng.permutation(sizes.nodes)[: batches * batch_size].reshape(batches, batch_size)
        weights = 1 - rng.random(csc[1].size, dtype=np.float32) if sampler == "weighted" else None
        how = SamplingOptions(tuple(fanouts), batch_size, sampler=sampler, seed=sizes.seed, **options)
        return cls(csc, seeds.astype(np.int64), how, sizes.threads, weights)

    @property
    def fanouts(self) -> list[int]:
        """By hop from the seeds."""
        return [fanout for fanout in self.options.fanouts if isinstance(fanout, int)]

    @property
    def replace(self) -> bool:
        """Whether it draws with replacement."""
        return self.options.sampler == "replacement"

    def graph(self) -> TaskGraph:
        """The graph as our samplers take it."""
        return TaskGraph(self)


class TaskGraph:
    """A homogeneous graph in memory with the methods that samplers ask for."""

    def __init__(self, task: SamplingTask) -> None:
        self.node_types = ["node"]
        self.relations = [RELATION]
        self._task = task

    def num_nodes(self, node_type: str = "node") -> int:
        """Number of nodes."""
        return int(self._task.csc[0].size) - 1

    def csc(self, relation: Relation = RELATION) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """``(indptr, indices)``."""
        return self._task.csc

    def edge_data(self, relation: Relation = RELATION) -> dict[str, np.ndarray[Any, Any]]:
        """The weights, if there are any."""
        return {} if self._task.weights is None else {"weight": self._task.weights}
