"""GNNLab (Yang et al., EuroSys'22), as the survey shows it: pre-sampling next to other policies, and the optimum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.papers.figures import PAPER, Claim, Figure, FigureMaker, Line, Panel, percent, side_by_side
from benchmarks.papers.inputs import POWER_LAW, Inputs, Sample, epoch_counts
from tiering.evaluation import ORACLE, Evaluation
from tiering.sampling import SamplingOptions

POLICIES = {
    "random": ("random", 0), "degree": ("degree", 0), "PreSC#1": ("presample", 1), "PreSC#2": ("presample", 2),
    "PreSC#5": ("presample", 5),
}  # fmt: skip
SAMPLERS: dict[str, dict[str, Any]] = {
    "3-hop random": {"fanouts": [15, 10, 5]},
    "random walks": {"fanouts": [5, 5, 5], "sampler": "pinsage", "num_walks": 4, "walk_length": 3},
    "3-hop weighted": {"fanouts": [15, 10, 5], "sampler": "weighted"},
}
"""GNNLab's; weights of edges are exponential here."""
OVER_DEGREE = (1.5, 2.2)
"""Hits of PreSC over those of degree with 10 % cached: mean and largest."""
AT_5 = {"PreSC#1": 0.96, "degree": 0.29, "random": 0.05}
"""Hits with 5 % of ogbn-papers100M cached, 3-hop random; the last two are upper bounds (figure 15b)."""
SIMILAR = {
    "3-hop random": (0.7397, 0.7889, 0.9129, 0.7746),
    "random walks": (0.7816, 0.7268, 0.8714, 0.6440),
    "3-hop weighted": (0.7769, 0.6664, 0.8957, 0.7296),
}
"""Table IV: similarity of two epochs on ogbn-products, Twitter, ogbn-papers100M and UK-2006."""
MOVED_AT_900 = 4.0
"""Bytes moved by degree and random over those of PreSC with rows of 900 float32 and 5 GB cached (figure 15c)."""
CACHED = 5 / 53
"""5 GB over the bytes of ogbn-papers100M's 128 float32."""


def options(sample: Sample, sampler: str) -> SamplingOptions:
    """Return a sampler's options on a graph."""
    return SamplingOptions(**SAMPLERS[sampler], batch_size=sample.batch_size)


def served(result: Evaluation, name: str, shares: npt.NDArray[np.float64]) -> list[float]:
    """Return the fraction of the reads that a policy serves with fractions of the rows cached."""
    return [float(v) for v in np.interp(shares, result.curve_bytes / result.num_bytes, result.curves[name])]


def figure_16(inputs: Inputs) -> Figure:
    """Return hits with 10 % of the rows cached: policies by samplers, a panel for each graph."""
    panels, about, over = [], [], defaultdict[bool, list[float]](list)
    of_best = defaultdict[bool, dict[str, list[float]]](lambda: {n: [] for n in POLICIES if n.startswith("PreSC")})
    for sample in inputs.samples(local=True):
        rates: dict[str, list[float]] = {name: [] for name in (*POLICIES, ORACLE)}
        for sampler in SAMPLERS:
            result = inputs.judge(sample, options(sample, sampler), POLICIES, [0.1])
            for name, hits in rates.items():
                hits.append(result.hit_rates[name][0])
            over[sample.local].append(rates["PreSC#1"][-1] / rates["degree"][-1])
            for name, parts in of_best[sample.local].items():
                parts.append(rates[name][-1] / rates[ORACLE][-1])
        lines = [Line("optimal" if n == ORACLE else n, list(SAMPLERS), [100 * r for r in y]) for n, y in rates.items()]
        panels.append(Panel(sample.title, "", "hits, %", lines))
        about.append(sample.title)
    claims: list[list[Claim]] = [
        [("hits of PreSC#1 / hits of degree, mean and largest", " and ".join(f"{x:.1f}" for x in OVER_DEGREE),
          f"{np.mean(over[local]):.1f} and {max(over[local]):.1f}"),
         *((f"hits of {name} / hits of the optimum, mean and smallest", "close to 1",
            f"{np.mean(parts):.2f} and {min(parts):.2f}") for name, parts in of_best[local].items())]
        for local in (False, True)
    ]  # fmt: skip
    setting = (
        "10 % of the rows cached; hops: fanouts 15,10,5; walks: 5 neighbors of 4 walks of 3 steps, three times; "
        f"batches of 256 (32 on the small graphs), three unseen epochs. Graphs: {'; '.join(about)}."
    )
    return Figure("Caching policies by sampler and graph (figure 16)", setting, panels, side_by_side(*claims))


def figure_15(inputs: Inputs) -> Figure:
    """Return hits by the fraction cached for two samplers, and bytes moved by the width of rows."""
    shares, dims = np.array([1, 2, 5, 10, 15, 20, 25, 30]) / 100, np.arange(100, 1000, 200)
    papers100m = "3-hop random"
    cases = [(inputs.sample(POWER_LAW), "3-hop weighted")]
    cases += [(inputs.web(local=local), papers100m) for local in (False, True)]
    panels, claims, about = [], defaultdict[bool, list[Claim]](list), []
    for sample, sampler in cases:
        result = inputs.judge(sample, options(sample, sampler), POLICIES, [0.05])
        lines = [
            Line(
                "optimal" if name == ORACLE else name,
                (100 * shares).tolist(),
                [100 * x for x in served(result, name, shares)],
            )
            for name in (*POLICIES, ORACLE)
        ]
        if sampler == papers100m:
            lines += [Line(n, [5.0], [100 * x], PAPER) for n, x in AT_5.items()]
        panels.append(Panel(f"{sample.title}, {sampler}", "rows cached, %", "hits, %", lines))
        claims[sample.local] += [
            (f"{sample.name}, {sampler}: hit rate of {name}, 5 % cached",
             ("" if name == "PreSC#1" else "below ") + percent(paper) if sampler == papers100m else "-",
             percent(result.hit_rates[name][0])) for name, paper in AT_5.items()
        ]  # fmt: skip
        about.append(sample.title)
        if sampler != papers100m:
            continue
        rows = result.accesses / result.batches
        moved = {
            n: (1 - np.array(served(result, n, CACHED * 128 / dims))) * rows * 4 * dims / 1e6
            for n in ("random", "degree", "PreSC#1")
        }
        panels.append(Panel(f"{sample.title}, fixed cache", "feature dimension", "MB moved per batch",
                            [Line(name, dims.tolist(), y.tolist()) for name, y in moved.items()]))  # fmt: skip
        ratios = ", ".join(f"{name} {moved[name][-1] / moved['PreSC#1'][-1]:.1f}" for name in ("random", "degree"))
        what = f"{sample.name}: bytes moved at dimension 900 / bytes moved by PreSC#1"
        claims[sample.local].append((what, f"nearly {MOVED_AT_900:g}", ratios))
    setting = (
        f"Batches of 256, three unseen epochs; the fixed cache holds {percent(CACHED, 1)} of the rows of 128 float32, "
        f"as 5 GB of ogbn-papers100M. Stars are that graph in the paper. Graphs: {'; '.join(about)}."
    )
    together = side_by_side(claims[False], claims[True])
    return Figure("Hits by the fraction cached (figure 15)", setting, panels, together)


def similarity(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], top: float = 0.1) -> float:
    """Return the fraction of an epoch's reads of its hottest rows that another epoch makes as well."""
    hot = np.argsort(-second, kind="stable")[: max(1, int(top * second.size))]
    return float(np.minimum(first, second)[hot].sum() / second[hot].sum())


def _ends(shares: Sequence[float]) -> str:
    return f"{percent(min(shares))} and {percent(max(shares))}"


def table_4(inputs: Inputs) -> Figure:
    """Return the similarity of two epochs by sampler and graph."""
    samples = inputs.samples(local=True)
    found = {
        name: [similarity(epoch_counts(s, options(s, name), 0), epoch_counts(s, options(s, name), 1)) for s in samples]
        for name in SAMPLERS
    }
    names = [sample.title for sample in samples]
    lines = [Line(sampler, names, [100 * share for share in shares]) for sampler, shares in found.items()]
    claims = [
        (f"{name}: smallest and largest similarity", _ends(SIMILAR[name]), _ends(own[:-1]), percent(own[-1]))
        for name, own in found.items()
    ]
    setting = (
        "Similarity is the fraction of the second epoch's reads of its hottest 10 % of the rows that the first epoch "
        f"also makes (the survey has no formula). Batches as above. Graphs: {'; '.join(s.title for s in samples)}."
    )
    return Figure("Similarity of epochs (table IV)", setting, [Panel("two epochs", "", "similarity, %", lines)], claims)


FIGURES: dict[str, FigureMaker] = {"gnnlab-16": figure_16, "gnnlab-15": figure_15, "gnnlab-table-4": table_4}
