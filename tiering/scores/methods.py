"""The registry of methods: what computes each, which options matter to it, what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiering.formats.graph import Graph
from tiering.formats.shape import SizedGraph
from tiering.scores.degree import degree, degree_need
from tiering.scores.hybrid import hybrid, hybrid_need
from tiering.scores.pagerank import rank_need, rpr, wrpr
from tiering.scores.presample import presample, presample_need
from tiering.scores.random import random, random_need
from tiering.scores.request import SAMPLING, MemoryNeed, ScoreColumns, ScoreRequest
from tiering.scores.user_scores import user_scores, user_scores_need
from tiering.scores.vip import vip, vip_need

AUTO = "auto"
"""Method that stands for the best one for what is known: see `choose_method`."""
COUNTING = (*SAMPLING, "epochs", "first_epoch")


@dataclass(frozen=True)
class Method:
    """A predictor of accesses."""

    compute: Callable[[Graph, ScoreRequest], ScoreColumns]
    options: tuple[str, ...]
    """Names of those that matter."""
    needs_train: bool
    """Whether the method always starts from training nodes; those with a ``teleport`` may."""
    counts: bool
    """Whether the method runs the sampler, so that the seed matters."""
    memory: Callable[[SizedGraph, ScoreRequest], MemoryNeed]
    seeded: bool = False
    """Whether the seed matters though it does not run the sampler."""
    edges: bool = True
    """Whether the method reads the edges."""


METHODS: dict[str, Method] = {
    "random": Method(random, (), False, False, random_need, seeded=True, edges=False),
    "degree": Method(degree, (), False, False, degree_need),
    "rpr": Method(rpr, ("damping", "teleport", "tolerance"), False, False, rank_need),
    "wrpr": Method(wrpr, ("damping", "teleport", "sweeps"), True, False, rank_need),
    "presample": Method(presample, COUNTING, True, True, presample_need),
    "vip": Method(vip, SAMPLING, True, False, vip_need),
    "hybrid": Method(hybrid, (*COUNTING, "prior_weight"), True, True, hybrid_need),
}
"""Methods by name, the cheapest first."""
OWN = Method(user_scores, (), False, False, user_scores_need, edges=False)
"""Takes the place of a method where the user has computed the scores."""


def choose_method(fanouts: bool, train: bool) -> tuple[str, str]:
    """Return the method ``auto`` stands for, and why, by whether fanouts and training nodes are known."""
    if fanouts:
        return "hybrid", "fanouts are given"
    if train:
        return "wrpr", "training nodes are known, fanouts are not given"
    return "rpr", "neither fanouts nor training nodes are known"


def used_by(option: str) -> list[str]:
    """Return the names of the methods to which an option matters."""
    return [name for name, method in METHODS.items() if option in method.options]
