"""The registry of methods: what computes each, which options matter to it, what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiering.formats.graph import Graph
from tiering.scores.degree import degree
from tiering.scores.hybrid import hybrid
from tiering.scores.options import SAMPLING
from tiering.scores.pagerank import rpr, wrpr
from tiering.scores.presample import presample
from tiering.scores.request import ScoreColumns, ScoreRequest
from tiering.scores.vip import vip

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


METHODS: dict[str, Method] = {
    "degree": Method(degree, (), needs_train=False, counts=False),
    "rpr": Method(rpr, ("damping", "teleport", "tolerance"), needs_train=False, counts=False),
    "wrpr": Method(wrpr, ("damping", "teleport", "sweeps"), needs_train=True, counts=False),
    "presample": Method(presample, COUNTING, needs_train=True, counts=True),
    "vip": Method(vip, SAMPLING, needs_train=True, counts=False),
    "hybrid": Method(hybrid, (*COUNTING, "prior_weight"), needs_train=True, counts=True),
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
