"""What a method is given and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.errors import InternalError
from tiering.formats.graph import Graph
from tiering.memory import Budget
from tiering.sampling import SamplingOptions
from tiering.scores.options import ScoreOptions

Float64Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
TrainSet: TypeAlias = "dict[str, np.ndarray[Any, np.dtype[np.int64]]]"


@dataclass(frozen=True)
class ScoreRequest:
    """Checked parameters of a method."""

    options: ScoreOptions
    """Options, the defaults filled in."""
    train: TrainSet
    """Training nodes per node type; empty where the method needs none."""
    sampling: SamplingOptions | None
    """How training samples; ``None`` where the method does not ask."""
    threads: int
    """Threads to use."""
    budget: Budget | None = None
    """What to stay within; ``None``: no limit."""
    scratch: Path = Path()
    """Directory for edges that do not fit the budget."""

    @property
    def sampled(self) -> SamplingOptions:
        """`sampling`, for methods that need it."""
        if self.sampling is None:
            raise InternalError("a method that needs to know how training samples was not told")
        return self.sampling

    @property
    def train_size(self) -> int:
        """Training nodes of all types."""
        return sum(ids.size for ids in self.train.values())


@dataclass(frozen=True)
class ScoreColumns:
    """Predicted accesses, in original ids."""

    feature: dict[str, Float64Array]
    """Per node type, shape (num_nodes,)."""
    adjacency: dict[Relation, Float64Array] = field(default_factory=dict)
    """Per relation, shape (nodes of the destination type,); empty if the method does not predict it."""
    reached: dict[str, Any] = field(default_factory=dict)
    """What the computation found out about itself, for the record."""


NodeValues: TypeAlias = "tuple[float, float, np.ndarray[Any, np.dtype[np.int64]]]"
"""Values of the nodes of a type, as the core takes them: of most nodes, of some, and the ascending ids of these."""


def node_values(graph: Graph, chosen: TrainSet, value: float, rest: float) -> list[NodeValues]:
    """Per node type: `value` for the `chosen` nodes, `rest` for the others."""
    return [(rest, value, _ascending(chosen.get(t, np.empty(0, np.int64)))) for t in graph.node_types]


def _ascending(ids: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return ids if bool((ids[1:] > ids[:-1]).all()) else np.sort(ids)


def native_relations(graph: Graph) -> list[tuple[int, int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Relations as the core takes them: source type, destination type, indptr, indices."""
    index = {node_type: position for position, node_type in enumerate(graph.node_types)}
    return [(index[r[0]], index[r[2]], *graph.csc(r)) for r in graph.relations]
