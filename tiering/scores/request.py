"""What a user may set for a score, with defaults and checks; what a method is given, what it returns and takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError, InternalError
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray
from tiering.memory import Budget
from tiering.sampling import SamplingOptions
from tiering.sampling.options import Fanouts, SamplingKeywords
from tiering.units import parse_fanouts

Float64Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
TrainSet: TypeAlias = "dict[str, np.ndarray[Any, np.dtype[np.int64]]]"

TELEPORTS = ("uniform", "train")
SAMPLING = tuple(field.name for field in fields(SamplingOptions) if field.name != "seed")
"""Options that say how training samples; those of `tiering.sampling.SamplingOptions`."""


@dataclass(frozen=True)
class ScoreOptions:
    """Options of the methods, beside those of `SAMPLING`."""

    damping: float = 0.85
    """``rpr``, ``wrpr``: share of a score that is handed on, 0 to below 1."""
    sweeps: int = 5
    """``wrpr``: passes over the edges."""
    teleport: str = "uniform"
    """``rpr``, ``wrpr``: who gets the rest, ``uniform`` all nodes, ``train`` the training nodes."""
    tolerance: float = 1e-9
    """``rpr`` stops when the sum of absolute changes falls below it; scores start with the sum 1."""
    epochs: int = 2
    """``presample``, ``hybrid``: epochs to sample and count."""
    first_epoch: int = 0
    """``presample``, ``hybrid``: number of the first of them."""
    prior_weight: float | None = None
    """``hybrid``: epochs that the analytic prior counts for; ``None``: found from the counts themselves."""


class ScoreKeywords(SamplingKeywords, total=False):
    """`OPTIONS` as keywords, for editors."""

    fanouts: Fanouts
    damping: float
    sweeps: int
    teleport: str
    tolerance: float
    epochs: int
    first_epoch: int
    prior_weight: float | None


OPTIONS = (*(field.name for field in fields(ScoreOptions)), *SAMPLING)
"""Names of all options."""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "damping": (lambda v: _number(v) and 0 <= v < 1, "0 to below 1"),
    "sweeps": (lambda v: _whole(v) and 1 <= v <= 10_000, "a whole number from 1 to 10000"),
    "teleport": (lambda v: v in TELEPORTS, " or ".join(TELEPORTS)),
    "tolerance": (lambda v: _number(v) and 0 < v < 1, "a number between 0 and 1"),
    "epochs": (lambda v: _whole(v) and 1 <= v <= 10_000, "a whole number from 1 to 10000"),
    "first_epoch": (lambda v: _whole(v) and 0 <= v < 2**63, "a whole number, 0 or more"),
    "prior_weight": (lambda v: v is None or (_number(v) and v >= 0), "a number, 0 or more"),
}


def check_options(given: Mapping[str, Any]) -> tuple[ScoreOptions, dict[str, Any]]:
    """Options from what was given, and those of `SAMPLING` that were given, fanouts parsed.

    A value that does not fit is refused also where the option does not matter.
    """
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise InputError(f"score: no option {', '.join(unknown)}; options: {', '.join(OPTIONS)}")
    own = {name: value for name, value in given.items() if name in _CHECKS}
    for name, value in own.items():
        fits, expected = _CHECKS[name]
        if not fits(value):
            raise InputError(f"{name.replace('_', ' ')}: expected {expected}, found {value!r}")
    sampling = {name: value for name, value in given.items() if name in SAMPLING}
    if "fanouts" in sampling:
        sampling["fanouts"] = parse_fanouts(sampling["fanouts"])
    SamplingOptions(**{"fanouts": (), **sampling})
    return ScoreOptions(**own), sampling


@dataclass(frozen=True)
class ScoreRequest:
    """Checked parameters of a method."""

    options: ScoreOptions
    train: TrainSet
    """Training nodes per node type; empty where the method needs none."""
    sampling: SamplingOptions | None
    """How training samples; ``None`` where the method does not ask."""
    threads: int
    budget: Budget
    seed: int = 0
    given: Mapping[str, UserArray] = field(default_factory=dict)
    """Scores that the user has computed, by node type; a type without features may be missing."""
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


SLACK = 32 << 20
"""Memory of every method for small objects, stacks, and what the allocator rounds up."""
HUGE_PAGE = 2 << 20
"""A large array takes whole ones."""


@dataclass(frozen=True)
class Need:
    """Anonymous memory of a method in bytes; the graph itself is mapped and costs none.

    The formulas stand beside the methods; docs/scores.md shows them. N: nodes of all types; D: the sum over relations
    of the nodes of the destination type; E: edges; T: training nodes.
    """

    minimum: int
    """With less it cannot be done."""
    sufficient: int
    """More makes it no faster."""
    what: str
    """What needs it, for people."""
    beside: int = 0
    """Of both, what lies beside sweeps over the edges."""
    swept: bool = False
    """Whether it makes such sweeps."""

    def plus(self, nbytes: int, what: str = "") -> Need:
        """With `nbytes` that are there all the while."""
        minimum, sufficient, beside = (part + nbytes for part in (self.minimum, self.sufficient, self.beside))
        return replace(self, minimum=minimum, sufficient=sufficient, beside=beside, what=what or self.what)


def list_nodes(graph: SizedGraph) -> int:
    """D: nodes of the destination type, over all relations."""
    return sum(graph.num_nodes(relation[2]) for relation in graph.relations)
