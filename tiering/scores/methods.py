"""The registry of methods: what computes each, which options matter to it, what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.scores.degree import degree
from tiering.scores.hybrid import hybrid
from tiering.scores.memory import Need, Sizes, degree_need, hybrid_need, presample_need, rank_need, vip_need
from tiering.scores.options import SAMPLING
from tiering.scores.pagerank import rpr, wrpr
from tiering.scores.presample import presample
from tiering.scores.request import ScoreColumns, ScoreRequest
from tiering.scores.vip import SAMPLERS, vip

AUTO = "auto"
"""Method that stands for the best one for what is known: see `choose_method`."""
COUNTING = (*SAMPLING, "epochs", "first_epoch")


@dataclass(frozen=True)
class Method:
    """A predictor of accesses."""

    compute: Callable[[Graph, ScoreRequest], ScoreColumns]
    """From a graph in original ids and checked parameters to the columns."""
    options: tuple[str, ...]
    """Names of the options that matter."""
    needs_train: bool
    """Whether it always starts from training nodes; those with a ``teleport`` may."""
    counts: bool
    """Whether it runs the sampler, so that the seed matters."""
    memory: Callable[[SizedGraph, ScoreRequest], Need]
    """What it needs, by the formulas of `tiering.scores.memory`."""


def _sizes(graph: SizedGraph, request: ScoreRequest) -> Sizes:
    return Sizes.of(graph, request.train_size, request.threads)


def _rank(graph: SizedGraph, request: ScoreRequest) -> Need:
    return rank_need(_sizes(graph, request))


def _presample(graph: SizedGraph, request: ScoreRequest) -> Need:
    return presample_need(graph, _sizes(graph, request), request.sampled)


def _hybrid(graph: SizedGraph, request: ScoreRequest) -> Need:
    sizes = _sizes(graph, request)
    prior = vip_need(sizes) if request.sampled.sampler in SAMPLERS else rank_need(sizes)
    squares = request.options.prior_weight is None and request.options.epochs > 1
    return hybrid_need(graph, sizes, request.sampled, squares, prior)


METHODS: dict[str, Method] = {
    "degree": Method(degree, (), False, False, lambda graph, request: degree_need(_sizes(graph, request))),
    "rpr": Method(rpr, ("damping", "teleport", "tolerance"), False, False, _rank),
    "wrpr": Method(wrpr, ("damping", "teleport", "sweeps"), True, False, _rank),
    "presample": Method(presample, COUNTING, True, True, _presample),
    "vip": Method(vip, SAMPLING, True, False, lambda graph, request: vip_need(_sizes(graph, request))),
    "hybrid": Method(hybrid, (*COUNTING, "prior_weight"), True, True, _hybrid),
}
"""Methods by name, the cheapest first."""


def choose_method(fanouts: bool, train: bool) -> tuple[str, str]:
    """The method ``auto`` stands for, and why, by whether fanouts and training nodes are known."""
    if fanouts:
        return "hybrid", "fanouts are given"
    if train:
        return "wrpr", "training nodes are known, fanouts are not given"
    return "rpr", "neither fanouts nor training nodes are known"


def used_by(option: str) -> list[str]:
    """Names of the methods to which an option matters."""
    return [name for name, method in METHODS.items() if option in method.options]
