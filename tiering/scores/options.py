"""The options of a score: the methods, and the options of each."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.sampling.options import Fanouts, SamplingKeywords, SamplingOptions, SubgraphKeywords
from tiering.text.options import choice, number, option, options_of, whole

HELP = {
    "random": "a baseline.",
    "degree": "out-degree.",
    "rpr": "reverse PageRank.",
    "wrpr": "reverse PageRank weighted toward the training nodes.",
    "presample": "reads counted in sampled epochs.",
    "vip": "expected reads, from fanouts and degrees.",
    "hybrid": "presample corrected by vip.",
}
"""Methods by name, the cheapest first, as the command line describes them."""
AUTO = "auto"  # method that stands for the best one for what is known
AUTO_HELP = "hybrid if --fanouts is given, else wrpr if there are training nodes, else rpr."
SAMPLING = tuple(options_of(SamplingOptions))
"""Options that say how training samples: the fields of `tiering.sampling.SamplingOptions`."""
_RANK, _COUNT = "Reverse PageRank: rpr, wrpr", "Sampled epochs: presample, hybrid"


@dataclass(frozen=True)
class ScoreOptions:
    """Options of the score methods, in addition to `SAMPLING`."""

    epochs: int = option(
        2, "Number of epochs to sample.", "K", panel=_COUNT, parse=whole(1, 10_000, "a whole number from 1 to 10000")
    )
    first_epoch: int = option(
        0, "Number of the first epoch. With a training run's seed, epochs are its own.", "N", panel=_COUNT,
        parse=whole(0, 2**63 - 1, "a whole number, 0 or more"),
    )  # fmt: skip
    prior_weight: float | None = option(
        None, "hybrid: weight of the prior, in epochs. Default: estimated from the counts.", "A", panel=_COUNT,
        parse=number(lambda v: v >= 0, "a number, 0 or more", none=True),
    )  # fmt: skip
    damping: float = option(
        0.85, "Fraction of a score that flows along the edges.", "D", panel=_RANK,
        parse=number(lambda v: 0 <= v < 1, "0 to below 1"),
    )  # fmt: skip
    sweeps: int = option(
        5, "Passes of wrpr over the edges.", "N", panel=_RANK, parse=whole(1, 10_000, "a whole number from 1 to 10000")
    )
    teleport: str = option(
        "uniform", "Nodes where walks restart: all nodes, or training nodes.", "uniform|train", panel=_RANK,
        parse=choice("uniform", "train"),
    )  # fmt: skip
    tolerance: float = option(
        1e-9, "rpr stops when the sum of absolute changes falls below it. Scores sum to 1 at the start.", "T",
        panel=_RANK, parse=number(lambda v: 0 < v < 1, "a number between 0 and 1"),
    )  # fmt: skip


class ScoreKeywords(SamplingKeywords, SubgraphKeywords, total=False):
    """`OPTIONS` as keywords, for editors."""

    fanouts: Fanouts
    damping: float
    sweeps: int
    teleport: str
    tolerance: float
    epochs: int
    first_epoch: int
    prior_weight: float | None


OPTIONS = (*options_of(ScoreOptions), *SAMPLING)  # names of all options
