"""Options of sampling: one description for scoring, evaluation, the loader and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeAlias, TypedDict

from tiering.errors import InputError
from tiering.text.options import option
from tiering.text.units import parse_fanouts

DrawRule = Literal["uniform", "replacement", "weighted"]
DRAW_RULES = ("uniform", "replacement", "weighted")
SAMPLERS = (*DRAW_RULES, "full", "pinsage", "ladies")  # samplers by name
STRATEGIES = ("uniform", "last")
SUBGRAPH_TYPES = ("directional", "induced", "bidirectional")

PANEL = "Sampling"
Fanout = int | Mapping[Any, int]  # neighbors per node at one hop: one number for all relations, or one per relation
Fanouts: TypeAlias = str | Sequence[Fanout] | Mapping[Any, Sequence[int]]
"""Fanouts in any form of `tiering.text.units.parse_fanouts`."""


class SamplingKeywords(TypedDict, total=False):
    """Fields of `SamplingOptions` as keywords, for editors; fanouts and seed apart, which functions name themselves."""

    batch_size: int
    frontier: str
    sampler: str
    num_walks: int
    walk_length: int
    restart: float
    metapaths: Sequence[Sequence[Any]] | None


class SubgraphKeywords(TypedDict, total=False):
    """Fields of `Subgraphs` as keywords, for editors."""

    disjoint: bool
    time: str | None
    temporal_strategy: str
    time_window: Any
    subgraph_type: str


def _number(text: str) -> int | float:
    """Return a number on the command line, whole if it is written so."""
    try:
        return int(text) if text.strip().lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise InputError(f"time_window: expected a number in the unit of the times, found {text!r}") from None


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Subgraphs:
    """Options of the subgraphs of seeds; `InputError` where one does not fit the others."""

    disjoint: bool = option(
        False, "Sample a separate subgraph for each seed. Implied by --time.", panel=PANEL)
    time: str | None = option(
        None, "Name of the times of edges or nodes: no neighbor is newer than its seed.", "NAME", panel=PANEL)
    temporal_strategy: str = option(
        "uniform", "Neighbors to take among those that are not newer: random or the newest ones.", "uniform|last",
        panel=PANEL)
    time_window: Any = option(
        None, "Maximum age of a neighbor relative to its seed, in units of the times.", "N", panel=PANEL,
        cli=str | None, from_cli=_number)
    subgraph_type: str = option(
        "directional", "Edges of a batch: the sampled ones, all visible edges between its nodes, or the sampled "
        "ones and their reverses.",
        "directional|induced|bidirectional", panel=PANEL)

    # fmt: on
    def __post_init__(self) -> None:
        for name, words in (("temporal_strategy", STRATEGIES), ("subgraph_type", SUBGRAPH_TYPES)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in words:
                raise InputError(f"{name}: expected one of {', '.join(words)}, found {value!r}")
        if not isinstance(self.time, str | None):
            raise InputError(f"time: expected the name of times that were imported, found {self.time!r}")
        if self.time_window is not None and self.time is None:
            raise InputError("time_window: has no effect without time; give time, the name of the times")
        object.__setattr__(self, "disjoint", bool(self.disjoint) or self.time is not None)

    def check_rule(self, sampler: str) -> None:
        """Raise `InputError` if a sampler does not make such batches."""
        name = "time" if self.time else "disjoint" if self.disjoint else "subgraph_type"
        if (self.disjoint or self.subgraph_type != "directional") and sampler in ("pinsage", "ladies"):
            raise InputError(f"{name}: not supported by {sampler!r}; use uniform, replacement, weighted or full")
        if self.time and sampler == "weighted":
            raise InputError("time: not supported by 'weighted', which samples from whole lists; use another sampler")


@dataclass(frozen=True)
class SamplingOptions(Subgraphs):
    """Options of a sampler and its batches; `InputError` where two options contradict each other."""

    fanouts: Sequence[Fanout] = option(
        MISSING, "Neighbors per hop, the seeds' own hop first; -1: all. Per relation: "
        "'cites=10,writes=5;cites=5,writes=0', hops separated by semicolons; 0 skips a relation.", "N,N,..",
        panel=PANEL, cli=str | None,
    )  # fmt: skip
    batch_size: int = option(1024, "Training nodes per batch, at least 1.", "N", panel=PANEL)
    frontier: str = option("all", "Nodes that sample in a hop: all so far, or only new ones.", "all|new", panel=PANEL)
    sampler: str = option(
        "uniform", "How neighbors are sampled. full: all neighbors, --fanouts -1,-1. pinsage: the nodes most "
        "visited by random walks, as many as the fanout. ladies: fanouts are nodes per layer.",
        "|".join(SAMPLERS), panel=PANEL,
    )  # fmt: skip
    num_walks: int = option(200, "pinsage: number of walks from each node.", "N", panel=PANEL)
    walk_length: int = option(2, "pinsage: maximum number of steps per walk.", "N", panel=PANEL)
    restart: float = option(0.5, "pinsage: probability that a walk ends after a step.", "P", panel=PANEL)
    metapaths: Sequence[Sequence[Any]] | None = option(
        None, "pinsage: relations of the steps, in the order walked; repeatable. Default: each relation within a type.",
        "REL,REL,..", panel=PANEL, flags=("--metapath",), cli=list[str] | None,
        from_cli=lambda paths: [[name.strip() for name in path.split(",")] for path in paths],
    )  # fmt: skip
    seed: int = 0  # seed of the run, 0 to 2^64 - 1

    def __post_init__(self) -> None:
        from tiering.sampling.plan import key_word, positive_size

        if not isinstance(self.sampler, str) or self.sampler not in SAMPLERS:
            raise InputError(f"sampler: expected one of {', '.join(SAMPLERS)}, found {self.sampler!r}")
        if not isinstance(self.frontier, str) or self.frontier not in ("all", "new"):
            raise InputError(f"frontier: expected 'all' or 'new', found {self.frontier!r}")
        object.__setattr__(self, "fanouts", parse_fanouts(self.fanouts))
        object.__setattr__(self, "batch_size", positive_size(self.batch_size))
        object.__setattr__(self, "seed", key_word(self.seed, "seed"))
        super().__post_init__()
        self.check_rule(self.sampler)

    def record(self) -> dict[str, Any]:
        """Return the options that matter to the sampler, without the seed, as JSON holds them."""
        fanouts = [
            {_key(r): _plain(n) for r, n in hop.items()} if isinstance(hop, Mapping) else _plain(hop)
            for hop in self.fanouts
        ]
        own = {name: getattr(self, name) for name in ("batch_size", "frontier", "sampler")}
        if self.sampler == "pinsage":
            own |= {name: _plain(getattr(self, name)) for name in ("num_walks", "walk_length", "restart")}
            own["metapaths"] = self.metapaths and [[_key(r) for r in path] for path in self.metapaths]
        own |= {f.name: _plain(v) for f in fields(Subgraphs) if (v := getattr(self, f.name)) != f.default}
        return {"fanouts": fanouts, **own}

    def to_json(self) -> dict[str, Any]:
        """Return `record`, and the seed."""
        return {**self.record(), "seed": self.seed}


def _key(relation: Any) -> str:
    return relation if isinstance(relation, str) else ":".join(relation)


def _plain(number: Any) -> Any:
    if getattr(getattr(number, "dtype", None), "kind", "") == "m":
        return [int(number.astype("i8")), number.dtype.str[4:-1] or "generic"]  # as numpy.timedelta64 takes it
    return number.item() if hasattr(number, "item") else number
