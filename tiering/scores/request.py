"""Methods of scores: their options, requests, results and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, InternalError
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray
from tiering.memory import Budget
from tiering.run.job import Job
from tiering.sampling.options import SAMPLERS, SamplingOptions
from tiering.scores.options import OPTIONS, SAMPLING, ScoreOptions
from tiering.text.options import parse_options

Float64Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
TrainSet: TypeAlias = "dict[str, np.ndarray[Any, np.dtype[np.int64]]]"


def check_options(keywords: Mapping[str, Any]) -> tuple[ScoreOptions, dict[str, Any]]:
    """Return the options of scores and the options of `SAMPLING` among keywords, all checked."""
    if unknown := sorted(set(keywords) - set(OPTIONS)):
        raise InputError(f"score: no option {', '.join(unknown)}; options: {', '.join(OPTIONS)}")
    sampling = {name: value for name, value in keywords.items() if name in SAMPLING}
    own = parse_options(ScoreOptions, {name: value for name, value in keywords.items() if name not in SAMPLING})
    SamplingOptions(**{"fanouts": (-1,), **sampling})
    return ScoreOptions(**own), sampling


@dataclass(frozen=True)
class ScoreRequest:
    """Checked parameters of a method."""

    options: ScoreOptions
    train: TrainSet  # training nodes per node type; empty where the method needs none
    sampling: SamplingOptions | None  # how training samples; ``None`` where the method does not ask
    threads: int
    budget: Budget
    seed: int = 0
    seed_time: Mapping[str, Any] = field(default_factory=dict)  # with times: that of each training node, by type
    user_scores: Mapping[str, UserArray] = field(default_factory=dict)
    """Scores that the user has computed, by node type; a type without features may be missing."""
    scratch: Path = Path()  # directory for edges that do not fit the budget

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

    @property
    def order_bytes(self) -> int:
        """Bytes of an epoch's order of the training nodes, and of their times in it."""
        return (40 if self.sampled.time else 24) * self.train_size

    @property
    def epoch_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.train_size // self.sampled.batch_size)


@dataclass(frozen=True)
class ScoreColumns:
    """Predicted accesses, in original ids: float64, per node type and, where they are predicted, per relation."""

    feature: dict[str, Float64Array]
    adjacency: dict[Relation, Float64Array] = field(default_factory=dict)
    reached: dict[str, Any] = field(default_factory=dict)  # facts of the computation, for the record

    def files(self) -> dict[str, Float64Array]:
        """Return the columns by their names in the artifact."""
        features = {f"nodes/{node_type}/feature": values for node_type, values in self.feature.items()}
        return features | {f"{relation_folder(r)}/adjacency": values for r, values in self.adjacency.items()}


SLACK = 32 << 20  # memory of every method for small objects, stacks, and what the allocator rounds up
HUGE_PAGE = 2 << 20  # a large array takes whole ones


@dataclass(frozen=True)
class MemoryNeed:
    """Anonymous memory of a method in bytes; the graph itself is mapped and costs none.

    The formulas stand next to the methods; docs/scores.md shows them. N: nodes of all types; D: the sum over relations
    of the nodes of the destination type; E: edges; T: training nodes.
    """

    minimum: int
    recommended: int  # more makes it no faster
    what: str  # step that needs the memory, for people
    fixed: int = 0  # part of both in addition to sweeps over the edges, in bytes
    sweeps: int = 0  # passes over the binned edges, at most; 0 for methods that make none

    def plus(self, nbytes: int, what: str = "") -> MemoryNeed:
        """Return this need with `nbytes` more throughout."""
        minimum, recommended, fixed = (part + nbytes for part in (self.minimum, self.recommended, self.fixed))
        return replace(self, minimum=minimum, recommended=recommended, fixed=fixed, what=what or self.what)


@dataclass(frozen=True)
class Method:
    """A predictor of accesses; `tiering.scores.plan.METHODS` lists all."""

    compute: Callable[[Graph, ScoreRequest], ScoreColumns]
    need: Callable[[SizedGraph, ScoreRequest], MemoryNeed]
    options: tuple[str, ...] = ()
    """Names of those that matter; with ``fanouts`` the method predicts reads of adjacency lists, too."""
    tasks: Callable[[Job, ArtifactWriter, Graph, ScoreRequest], ScoreColumns] | None = None
    """Writes the columns by tasks to the same bytes, if that is possible; returns the columns that it has in memory."""
    needs_train: bool = False  # whether the method always starts from training nodes; those with a ``teleport`` may
    counts: bool = False  # whether the method runs the sampler, so that the seed and the order of training nodes matter
    seeded: bool = False  # whether the seed matters though it does not run the sampler
    edges: bool = True  # whether the method reads the edges
    samplers: tuple[str, ...] = SAMPLERS  # samplers that the method knows
    weighs: Callable[[ScoreRequest], bool] | None = None
    """For a method that weighs the counts of tasks in this process: whether it needs squares of the counts."""


def list_nodes(graph: SizedGraph) -> int:
    """Return D, the nodes of the destination type, over all relations."""
    return sum(graph.num_nodes(relation[2]) for relation in graph.relations)
