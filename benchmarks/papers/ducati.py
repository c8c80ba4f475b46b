"""DUCATI (Zhang et al., SIGMOD'23), as the survey shows it: one memory for neighbor lists and feature rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.papers.figures import PAPER, Claim, Figure, FigureMaker, Line, Panel, percent, side_by_side
from benchmarks.papers.inputs import Inputs, Sample
from tiering import pipeline
from tiering.layout.adjacency_cache import plan_split
from tiering.layout.cost_model import AccessCosts, AdjacencyLists
from tiering.layout.inputs import adjacency_lists, require_order
from tiering.layout.tiers import RankedTable
from tiering.sampling import SamplingOptions
from tiering.text.units import Size

Floats = npt.NDArray[np.float64]
SMALL, LARGE = (2, 2, 2), (15, 10, 5)
"""The paper's fanouts."""
LISTS_HOT, ROWS_HOT = (0.7 / 12.9, 0.98), (2 / 53, 0.95)
"""Fraction of the bytes of ogbn-papers100M that serves such a fraction of the accesses, of lists and of rows."""
TABLE_8 = {
    "cnr-2000": ("UK", ((1.60, 1.34), (1.65, 1.31), (2.22, 1.29), (2.15, 1.33))),
    "rmat": ("TW", ((1.29, 1.13), (1.50, 1.17), (2.95, 1.36), (3.00, 1.33))),
}
"""Iteration time without a cache, and with one of rows, over DUCATI's: by graph, for the settings of `SETTINGS`."""
SETTINGS = ((SMALL, 128), (SMALL, 256), (LARGE, 128), (LARGE, 256))
BUDGETS = (0.1, 0.3, 1, 3, 10, 30)
"""Percentages of the bytes of lists and rows."""
_ROWS_ONLY, _AUTO = Size("0%", fraction=0.0), Size("auto")


@dataclass(frozen=True)
class Dual:
    """Rows and lists of a graph, ordered by `hybrid`, with the expected reads of each."""

    table: RankedTable
    lists: AdjacencyLists
    batches: int

    @property
    def bytes(self) -> int:
        """Bytes of all rows and lists."""
        return self.table.rows * self.table.row_bytes + self.lists.bytes

    def left(self, budget: int, share: Size) -> float:
        """Return the seconds of accesses of an epoch that a split of the budget does not save."""
        split = plan_split(share, budget, [self.table], [self.lists], AccessCosts())
        return split.features.seconds + split.adjacency.seconds - split.saved

    @property
    def seconds(self) -> float:
        """Seconds of accesses of an epoch without a cache."""
        return self.left(0, _ROWS_ONLY)

    def entries(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the seconds that each row, then each list, saves by itself, and its bytes."""
        costs, columns = AccessCosts(), self.lists.columns
        rows = np.asarray(self.table.scores[:], np.float64) * costs.feature(self.table.row_bytes)
        lists, _ = self.lists.benefit(costs, 0, columns)
        ends = np.arange(1, columns + 1)
        sizes = np.diff(self.lists.size.prefix_bytes(ends, self.lists.indptr[ends]), prepend=0)
        return np.concatenate([rows, lists]), np.concatenate([np.full(rows.size, self.table.row_bytes), sizes])


def knapsack(seconds: Floats, sizes: npt.NDArray[np.int64], budgets: Sequence[int]) -> list[float]:
    """Return what entries taken one by one save, by falling seconds per byte, as long as they fit."""
    order = np.argsort(-(seconds / sizes), kind="stable")
    used, saved = np.cumsum(sizes[order]), np.concatenate([[0.0], np.cumsum(seconds[order])])
    return [float(saved[np.searchsorted(used, budget, side="right")]) for budget in budgets]


def dual(inputs: Inputs, sample: Sample, fanouts: Sequence[int], dim: int) -> Dual:
    """Score a graph by `hybrid` for these fanouts, reorder it, and return its rows and lists."""
    how = SamplingOptions(list(fanouts), batch_size=sample.batch_size)
    scores = inputs.score(sample, "hybrid", how)
    graph = pipeline.reorder_graph(sample.graph, scores, inputs.work / f"reordered-{len(list(inputs.work.iterdir()))}")
    order, node_type = require_order(graph), sample.node_type
    table = RankedTable(node_type, sample.graph.num_nodes(), 4 * dim, order.score(node_type))
    (lists,) = adjacency_lists(graph, scores)
    return Dual(table, lists, -(-sample.train.size // sample.batch_size))


def concentration(reads: Floats, sizes: npt.NDArray[np.int64], fractions: Floats) -> list[float]:
    """Return the fraction of the reads that go to the entries of most reads per byte in fractions of the bytes."""
    order = np.argsort(-(reads / sizes), kind="stable")
    used = np.concatenate([[0], np.cumsum(sizes[order])]) / sizes.sum()
    return [float(x) for x in np.interp(fractions, used, np.concatenate([[0], np.cumsum(reads[order])]) / reads.sum())]


def figure_concentration(inputs: Inputs) -> Figure:
    """Return the fraction of the accesses that the hottest bytes of lists, and of rows, serve."""
    fractions, panels, about = np.geomspace(0.001, 1, 25), [], []
    claims = defaultdict[bool, list[Claim]](list)
    for sample in inputs.samples("cnr-2000", "rmat", local=True):
        both = dual(inputs, sample, LARGE, 128)
        _, sizes = both.entries()
        _, list_reads = both.lists.benefit(AccessCosts(), 0, both.lists.columns)
        rows = both.table.rows
        row_reads, lines = np.asarray(both.table.scores[:]), list[Line]()
        parts = (("lists", list_reads, sizes[rows:], LISTS_HOT), ("rows", row_reads, sizes[:rows], ROWS_HOT))
        for name, reads, own, (at, paper) in parts:
            *served, ours = (100 * x for x in concentration(reads, own, np.append(fractions, at)))
            lines += [Line(name, (100 * fractions).tolist(), served), Line(name, [100 * at], [100 * paper], PAPER)]
            what = f"{sample.name}: accesses to {name} served by {100 * at:.1f} % of the bytes of {name}"
            claims[sample.local].append((what, percent(paper), f"{ours:.0f} %"))
        panels.append(Panel(sample.title, "bytes, %", "accesses, %", lines, log="x"))
        about.append(sample.title)
    setting = (
        "Reads expected by `hybrid`, fanouts 15,10,5, batches of 256, rows of 512 B, lists with 8 B of offsets. Stars "
        f"are ogbn-papers100M in the paper. Graphs: {'; '.join(about)}."
    )
    together = side_by_side(claims[False], claims[True])
    return Figure("Concentration of lists and rows (section VII.A)", setting, panels, together)


def figure_18(inputs: Inputs) -> Figure:
    """Return predicted seconds of an iteration's accesses by the budget: rows alone, both, and entries one by one."""
    shares, panels, about = np.array([0, 0.3, 1, 2, 5, 10, 20, 40, 60]), [], []
    claims = defaultdict[bool, list[Claim]](list)
    for sample in inputs.samples("cnr-2000", "rmat", local=True):
        both = dual(inputs, sample, LARGE, 128)
        budgets = [int(share * both.bytes / 100) for share in shares]
        micro, whole = 1e6 / both.batches, both.seconds
        ways = {
            "rows alone": [both.left(budget, _ROWS_ONLY) for budget in budgets],
            "lists and rows": [both.left(budget, _AUTO) for budget in budgets],
            "entries one by one": [whole - saved for saved in knapsack(*both.entries(), budgets)],
        }
        lines = [Line(name, shares.tolist(), [micro * x for x in left]) for name, left in ways.items()]
        panels.append(Panel(sample.title, "memory, % of lists and rows", "µs per iteration, predicted", lines))
        at = int(np.argmax(shares == 5))
        gone = [100 * (1 - left[at] / whole) for left in list(ways.values())[:2]]
        last = 100 * ways["rows alone"][-1] / whole
        claims[sample.local] += [
            (f"{sample.name}: predicted time saved by 5 % of the bytes: rows alone, lists and rows", "-",
             f"{gone[0]:.0f} % and {gone[1]:.0f} %"),
            (f"{sample.name}: predicted time left when a larger cache of rows gains nothing", "-", f"{last:.0f} %"),
        ]  # fmt: skip
        about.append(sample.title)
    setting = (
        "Accesses alone, by the default costs of a PCIe 4.0 link (docs/adjacency-cache.md), without computing; "
        f"`hybrid`, fanouts 15,10,5, batches of 256, rows of 512 B. Graphs: {'; '.join(about)}."
    )
    together = side_by_side(claims[False], claims[True])
    return Figure("Time by the size of the cache (figure 18)", setting, panels, together)


def table_8(inputs: Inputs) -> Figure:
    """Return predicted gains of both caches over none and over one of rows, for the paper's four settings."""
    names = [f"{','.join(map(str, fanouts))}; {dim}" for fanouts, dim in SETTINGS]
    panels, claims, gains, about = [], list[tuple[str, str, str]](), [], []
    for sample in inputs.samples("cnr-2000", "rmat"):
        theirs, ratios = TABLE_8[sample.name]
        found = []
        for fanouts, dim in SETTINGS:
            both = dual(inputs, sample, fanouts, dim)
            budget = both.bytes // 10
            auto = both.left(budget, _AUTO)
            found.append((both.seconds / auto, both.left(budget, _ROWS_ONLY) / auto))
        gains += found
        lines = [Line(f"over {name}", names, [pair[at] for pair in found]) for at, name in enumerate(("none", "rows"))]
        lines += [
            Line(f"over {name}", names, [pair[at] for pair in ratios], PAPER)
            for at, name in enumerate(("none", "rows"))
        ]
        panels.append(Panel(f"{sample.name}; {theirs} in the paper", "fanouts; dimension", "times as fast", lines))
        about.append(sample.title)
        for name, ours, paper in zip(names, found, ratios, strict=True):
            what = f"{sample.name} ({theirs}), {name}: speedup over no cache and over rows"
            claims.append((what, f"{paper[0]} and {paper[1]}", f"{ours[0]:.2f} and {ours[1]:.2f}"))
    mean = np.mean(gains, axis=0)
    claims.append(
        (
            f"mean speedup (16 settings in the paper, {len(gains)} here)",
            "2.07 and 1.32",
            f"{mean[0]:.2f} and {mean[1]:.2f}",
        )
    )
    setting = (
        "Predicted time of accesses with a tenth of the bytes of lists and rows in GPU memory. The paper measures "
        f"whole iterations on 11 GB. `hybrid`, batches of 256. Graphs: {'; '.join(about)}."
    )
    return Figure("Both caches, over no cache and over a cache of rows (table VIII)", setting, panels, claims)


def figure_knapsack(inputs: Inputs) -> Figure:
    """Return what entries one by one save over prefixes, by the budget."""
    lines, claims, about = [], list[tuple[str, str, str]](), []
    for sample in inputs.samples():
        both = dual(inputs, sample, LARGE, 128)
        budgets = [int(share * both.bytes / 100) for share in BUDGETS]
        whole = both.seconds
        prefix = np.array([whole - both.left(budget, _AUTO) for budget in budgets])
        ratios = np.array(knapsack(*both.entries(), budgets)) / np.maximum(prefix, 1e-15)
        lines.append(Line(sample.name, list(BUDGETS), ratios.tolist()))
        text = ", ".join(f"{share:g} %: {ratio:.2f}" for share, ratio in zip(BUDGETS, ratios, strict=True))
        claims.append((f"{sample.name}: time saved by single entries / by prefixes, by memory", "-", text))
        about.append(sample.title)
    panel = Panel(
        "entries one by one over prefixes", "memory, % of lists and rows", "seconds saved, ratio", lines, log="x"
    )
    setting = (
        "Reads expected by `hybrid`, fanouts 15,10,5, rows of 512 B; the index of single entries is not counted. "
        f"Graphs: {'; '.join(about)}."
    )
    return Figure("Prefixes, and a knapsack of single entries", setting, [panel], claims)


FIGURES: dict[str, FigureMaker] = {
    "ducati-concentration": figure_concentration, "ducati-18": figure_18, "ducati-table-8": table_8,
    "ducati-knapsack": figure_knapsack,
}  # fmt: skip
