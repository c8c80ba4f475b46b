"""Data Tiering (Min et al., KDD'22): hits of the hottest rows by score and depth, traffic over the host link."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from benchmarks.papers.figures import PAPER, Claim, Figure, FigureMaker, Line, Panel, percent, side_by_side
from benchmarks.papers.inputs import Inputs, Sample
from tiering.evaluation import Evaluation
from tiering.layout.tiers import parse_capacities
from tiering.sampling import SamplingOptions

SCORES = {"degree": ("degree", 0), "rpr": ("rpr", 0), "wrpr": ("wrpr", 0)}
"""The paper's three: out-degree, reverse PageRank, weighted reverse PageRank."""
FANOUTS = [12, 12, 12]
"""The paper's for ogbn-papers100M and WikiKG90M."""
LEAST = {0.10: 0.35, 0.25: 0.56}
"""Hits of the hottest rows at least, over all graphs and scores (section 5.2)."""
EDGES_AT_1 = {"WikiKG90M": 0.80, "MAG240M": 0.46, "ogbn-papers100M": 0.32}
"""Fraction of the edges at the hottest 1 % of the nodes."""
DEEP_AT_10 = {"wrpr": 0.52, "degree": 0.28}
"""Hits of the hottest 10 % with fanouts 10,10,10,10,10 on ogbn-papers100M (section 5.4)."""
LESS_AT_10, LESS_AT_25 = (0.87, 0.95), 0.97
"""Fraction of the traffic that is gone with so much of the rows on the GPU (abstract and section 5.4)."""
ROW_BYTES = 512
"""Bytes of a row of ogbn-papers100M."""


def edges_at_hottest(sample: Sample, fraction: float) -> float:
    """Return the fraction of the edges that leave the nodes of the highest out-degree."""
    degrees = np.sort(np.bincount(sample.graph.csc()[1], minlength=sample.graph.num_nodes()))[::-1]
    return float(degrees[: max(1, int(fraction * degrees.size))].sum() / degrees.sum())


def curve(result: Evaluation, name: str, points: npt.NDArray[np.float64]) -> list[float]:
    """Return the percentage of the reads that go to the first rows by a score, at percentages of the rows."""
    shares = 100 * result.curve_bytes / result.num_bytes
    return [float(value) for value in np.interp(points, shares, 100 * result.curves[name])]


def figure_7(inputs: Inputs) -> Figure:
    """Return cumulative reads over the rows in the order of each score, by graph."""
    points, panels, about = np.linspace(0, 100, 41), [], []
    lowest: dict[bool, dict[float, float]] = {local: dict.fromkeys(LEAST, 1.0) for local in (False, True)}
    claims = defaultdict[bool, list[Claim]](list)
    samples = inputs.samples(both=True, local=True)
    for sample in samples:
        how = SamplingOptions(FANOUTS, batch_size=sample.batch_size)
        result = inputs.judge(sample, how, SCORES, list(LEAST))
        lines = [Line(name, points.tolist(), curve(result, name, points)) for name in (*SCORES, "oracle")]
        panels.append(Panel(sample.title, "hottest rows cached, %", "hit rate, %", lines))
        least = lowest[sample.local]
        for at, share in enumerate(LEAST):
            least[share] = min(least[share], *(result.hit_rates[name][at] for name in SCORES))
        about.append(sample.title)
        for name in ("wrpr", "degree", "oracle"):
            rates = " and ".join(map(percent, result.hit_rates[name]))
            claims[sample.local].append(
                (f"{sample.name}: hit rate of `{name}`, hottest 10 % and 25 % cached", "-", rates)
            )
    whole = [sample for sample in samples if not sample.local]
    edges = ", ".join(f"{sample.name} {percent(edges_at_hottest(sample, 0.01))}" for sample in whole)
    for local, least in lowest.items():
        claims[local][:0] = [
            (f"lowest hit rate of any score and graph, hottest {percent(share)} cached", f"at least {percent(paper)}",
             f"at least {percent(least[share])}") for share, paper in LEAST.items()
        ]  # fmt: skip
    theirs = ", ".join(f"{name} {percent(value)}" for name, value in EDGES_AT_1.items())
    claims[False].insert(len(LEAST), ("edges from the hottest 1 % of the nodes", theirs, edges))
    setting = (
        "Edges in both directions, as the paper's numbers of edges say; fanouts 12,12,12, batches of 256 (32 on the "
        f"small graphs), three unseen epochs. Graphs: {'; '.join(about)}."
    )
    together = side_by_side(claims[False], claims[True])
    return Figure("Access frequency by score (figure 7, section 5.2)", setting, panels, together)


def figure_9(inputs: Inputs) -> Figure:
    """Return the same for two to five hops on one graph, by score."""
    samples = [inputs.web(both=True, local=local) for local in (False, True)]
    points, names = np.linspace(0, 100, 41), ("wrpr", "degree")
    panels, claims = [], []
    for sample in samples:
        lines: dict[str, list[Line]] = {name: [] for name in names}
        for hops in (2, 3, 4, 5):
            how = SamplingOptions([10] * hops, batch_size=sample.batch_size)
            result = inputs.judge(sample, how, {name: SCORES[name] for name in names}, [0.1])
            for name in names:
                lines[name].append(Line(",".join(["10"] * hops), points.tolist(), curve(result, name, points)))
        for name in names:
            lines[name].append(Line("10,10,10,10,10", [10.0], [100 * DEEP_AT_10[name]], PAPER))
            title = f"{name}, local" if sample.local else name
            panels.append(Panel(title, "hottest rows cached, %", "hit rate, %", lines[name]))
        deep = {name: percent(result.hit_rates[name][0]) for name in names}
        what = "hit rate, hottest 10 % cached, five hops"
        claims.append([(f"`{name}`: {what}", percent(DEEP_AT_10[name]), deep[name]) for name in names])
    setting = (
        f"Graphs: {'; '.join(sample.title for sample in samples)}. Edges in both directions, batches of 256, three "
        "unseen epochs. The star is ogbn-papers100M in the paper."
    )
    return Figure("Deeper sampling (figure 9)", setting, panels, side_by_side(*claims))


def figure_10(inputs: Inputs) -> Figure:
    """Return the bytes over the host link against the fraction of the rows on the GPU, from one plan each."""
    fractions, lines, about = (0, 5, 10, 15, 20, 25), [], []
    claims = defaultdict[bool, list[Claim]](list)
    for sample in inputs.samples("cnr-2000", "rmat", both=True, local=True):
        how = SamplingOptions(FANOUTS, batch_size=sample.batch_size)
        moved = []
        for percentage in fractions:
            plan = parse_capacities(gpu=f"{percentage}%" if percentage else None)
            result = inputs.judge(sample, how, {"wrpr": SCORES["wrpr"]}, [0.1], tiers=plan, row_bytes=ROW_BYTES)
            moved.append((result.tiers or {})["wrpr"].moved()["host_link"])
        left = [100 * nbytes / moved[0] for nbytes in moved]
        lines.append(Line(sample.title, list(fractions), left))
        about.append(f"{sample.title} ({moved[0] / 1e6:,.0f} MB per epoch without a cache)")
        for percentage, paper in ((10, " to ".join(map(percent, LESS_AT_10))), (25, percent(LESS_AT_25))):
            less = percent(1 - left[fractions.index(percentage)] / 100)
            what = f"{sample.name}: traffic saved by the hottest {percentage} % on the GPU"
            claims[sample.local].append((what, paper, less))
    paper_line = Line("ogbn-papers100M", [25.0], [100 * (1 - LESS_AT_25)], PAPER)
    panel = Panel("host link", "rows on the GPU, %", "bytes, % of no cache", [*lines, paper_line])
    setting = (
        f"`wrpr`, edges in both directions, fanouts 12,12,12, rows of {ROW_BYTES} B, batches of 256, three unseen "
        f"epochs. Graphs: {'; '.join(about)}."
    )
    together = side_by_side(claims[False], claims[True])
    return Figure("Traffic against the hot fraction (figure 10)", setting, [panel], together)


FIGURES: dict[str, FigureMaker] = {
    "data-tiering-7": figure_7, "data-tiering-9": figure_9, "data-tiering-10": figure_10,
}  # fmt: skip
