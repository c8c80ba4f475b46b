"""The table of methods: a method is one module with a `Method`, and one line here."""

from __future__ import annotations

from tiering.scores.degree import DEGREE
from tiering.scores.hybrid import HYBRID
from tiering.scores.pagerank import RPR, WRPR
from tiering.scores.presample import PRESAMPLE
from tiering.scores.random import RANDOM
from tiering.scores.request import Method
from tiering.scores.vip import VIP

METHODS: dict[str, Method] = {
    "random": RANDOM,
    "degree": DEGREE,
    "rpr": RPR,
    "wrpr": WRPR,
    "presample": PRESAMPLE,
    "vip": VIP,
    "hybrid": HYBRID,
}
"""Methods by name, the cheapest first."""
AUTO = "auto"  # method that stands for the best one for what is known: see `choose_method`
AUTO_HELP = "hybrid if --fanouts is given, else wrpr if there are training nodes, else rpr."


def choose_method(fanouts: bool, train: bool) -> tuple[str, str]:
    """Return the method ``auto`` stands for, and why, by whether fanouts and training nodes are known."""
    if fanouts:
        return "hybrid", "fanouts are given"
    if train:
        return "wrpr", "training nodes are known, fanouts are not given"
    return "rpr", "neither fanouts nor training nodes are known"
