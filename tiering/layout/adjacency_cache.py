"""Divide a GPU's memory between feature rows and adjacency lists (DUCATI's dual cache; Zhang et al., SIGMOD'23).

The GPU holds a prefix of the feature rows in placement order, and of the columns of each relation. A prefix saves the
seconds per epoch that its accesses would take longer from host memory: expected accesses times `AccessCosts`. Lists are
taken greedily by seconds per byte, block by block; rows get the rest. The best of these divisions is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.adjacency_prefix import AdjacencyPrefix
from tiering.layout.cost_model import (
    AccessCosts,
    AdjacencyLists,
    LowerTiers,
    list_prefixes,
    prefix_sums,
    row_prefixes,
    split_memory,
)
from tiering.layout.inputs import LayoutInput
from tiering.layout.options import LayoutOptions
from tiering.layout.tiers import RankedTable, longest_prefix
from tiering.memory import Budget
from tiering.run.plan import StepEstimate
from tiering.text.units import Size, format_bytes, format_count, format_small_seconds

HOST = LowerTiers()  # host memory alone


@dataclass(frozen=True)
class CacheBenefit:
    """Expected reads of feature rows, or of adjacency lists, per epoch, and the part that the GPU's memory serves.

    `seconds` per epoch were saved if the GPU held everything; those served save `saved`.
    """

    reads: float
    served: float
    seconds: float
    saved: float

    @property
    def hit_rate(self) -> float:
        """Fraction of the reads that is served; 0 where there are none."""
        return self.served / self.reads if self.reads else 0.0


@dataclass(frozen=True)
class CacheSplit:
    """A division of `budget` bytes of a GPU's memory: feature rows by node type, and adjacency lists by relation."""

    mode: str  # ``auto``, or the share of the lists that the user gave
    budget: int
    rows: dict[str, int]
    feature_bytes: int
    lists: dict[str, AdjacencyPrefix]
    features: CacheBenefit
    adjacency: CacheBenefit

    @property
    def adjacency_bytes(self) -> int:
        """Bytes of the adjacency lists."""
        return sum(prefix.bytes for prefix in self.lists.values())

    @property
    def saved(self) -> float:
        """Seconds saved per epoch by features and lists, which ``auto`` maximizes."""
        return self.features.saved + self.adjacency.saved

    @property
    def gpu(self) -> Size | None:
        """Size of the gpu tier of feature rows; ``None`` if it holds none."""
        return Size(format_bytes(self.feature_bytes), bytes=self.feature_bytes) if self.feature_bytes else None

    def to_body(self) -> dict[str, Any]:
        """Return the fields of a layout's body."""
        split: dict[str, Any] = {"mode": self.mode, "budget_bytes": self.budget}
        split |= {"adjacency_bytes": self.adjacency_bytes, "feature_bytes": self.feature_bytes}
        split["predicted"] = {"adjacency": vars(self.adjacency).copy(), "features": vars(self.features).copy()}
        return {"adjacency": {key: dict(vars(prefix)) for key, prefix in self.lists.items()}, "split": split}

    def __str__(self) -> str:
        whole = self.features.seconds + self.adjacency.seconds
        return (
            f"adjacency cache {self.mode}: of {format_bytes(self.budget)}, adjacency lists take "
            f"{format_bytes(self.adjacency_bytes)} and serve {100 * self.adjacency.hit_rate:.1f} % of the list reads, "
            f"feature rows take {format_bytes(self.feature_bytes)} and serve {100 * self.features.hit_rate:.1f} % of "
            f"the feature reads; saved per epoch: {format_small_seconds(self.saved)} of {format_small_seconds(whole)}"
        )


def divide_gpu(
    source: LayoutInput, share: Size, options: LayoutOptions, budget: Budget
) -> tuple[CacheSplit, StepEstimate]:
    """Divide the memory of a GPU between feature rows and adjacency lists, which get a `share`; also say the step.

    Cost: one pass over the order, its scores and ``indptr``; reads of lists are looked up at random. Memory:
    `split_memory`.
    """
    total = gpu_budget(options.capacities.gpu, source.rows, source.lists)
    columns = sum(lists.columns for lists in source.lists)
    what = f"adjacency cache: positions of {format_count(columns)} adjacency lists"
    budget.require(need := split_memory(sum(table.rows for table in source.rows), columns), what)
    lower = LowerTiers.of(options.capacities, source.bytes, len(options.folders))
    step = StepEstimate("adjacency cache", "done now", memory=need, amount=columns, unit="list")
    return plan_split(share, total, source.rows, source.lists, options.costs, lower), step


def gpu_budget(gpu: Size | None, tables: Sequence[RankedTable], relations: Sequence[AdjacencyLists]) -> int:
    """Return the bytes to divide: `gpu`, which is a share of all feature bytes, or with ``auto`` all rows and lists."""
    if gpu is None:
        raise InputError(
            "adjacency cache: needs GPU memory to divide; give --gpu SIZE such as 8GiB, or omit --adjacency-cache"
        )
    features = sum(table.rows * table.row_bytes for table in tables)
    everything = features + sum(lists.bytes for lists in relations)
    budget = everything if gpu.auto else gpu.of(features)
    if not budget:
        raise InputError(
            f"gpu: {gpu.text} of {format_bytes(features)} feature data is no memory to divide; give a size such as 1GiB"
        )
    if budget > everything:
        raise InputError(
            f"gpu: {gpu.text} is more than all feature data and adjacency lists ({format_bytes(everything)}); give "
            "at most that size"
        )
    return budget


def plan_split(
    share: Size,
    budget: int,
    tables: Sequence[RankedTable],
    relations: Sequence[AdjacencyLists],
    costs: AccessCosts,
    lower: LowerTiers = HOST,
) -> CacheSplit:
    """Divide `budget` bytes between feature rows and adjacency lists, which are taken greedily (`list_prefixes`).

    With a share, lists are taken as long as they fit into it; rows get the rest. With ``auto``, so many are taken that
    lists and rows together save most seconds per epoch, of equal divisions the fewest lists: the best pair of prefixes
    with one relation, at most a run of blocks of one relation less than the best with several.
    """
    prefixes = list_prefixes(relations, costs)
    if share.fraction is not None:
        point = int(np.searchsorted(prefixes.bytes, int(budget * share.fraction), side="right")) - 1
    else:
        reach = int(np.searchsorted(prefixes.bytes, budget, side="right"))
        rows, left = row_prefixes(tables, costs, lower), budget - prefixes.bytes[:reach]
        gpu, peer, cpu = (np.searchsorted(rows.bytes, left + more, side="right") - 1 for more in lower.ends)
        saved = costs.saved_by_tiers(rows.sums[0, gpu], rows.sums[0, peer], rows.sums[1, cpu])
        point = int(np.argmax(prefixes.sums[0, :reach] + saved))
    rest = budget - int(prefixes.bytes[point])
    ends = longest_prefix(tables, rest)
    columns = [prefixes.table_end(relation, point) for relation in range(len(relations))]
    held = {
        lists.relation: AdjacencyPrefix.of(count, int(lists.indptr[count]), lists.size)
        for lists, count in zip(relations, columns, strict=True)
        if count
    }
    held_rows = {table.node_type: end for table, end in zip(tables, ends, strict=True)}
    features = sum(end * table.row_bytes for table, end in zip(tables, ends, strict=True))
    adjacency = CacheBenefit(*(float(sums[at]) for sums in prefixes.sums[::-1] for at in (-1, point)))
    served = _feature_benefit(tables, rest, costs, lower)
    return CacheSplit(share.text, budget, held_rows, features, held, served, adjacency)


def _feature_benefit(
    tables: Sequence[RankedTable], gpu_bytes: int, costs: AccessCosts, lower: LowerTiers
) -> CacheBenefit:
    """Return the benefit of exact prefixes of rows, compared with a layout without a gpu tier."""
    reach = [longest_prefix(tables, size + more) for size in (0, gpu_bytes) for more in lower.ends]
    reads = served = seconds = saved = 0.0
    for index, table in enumerate(tables):
        on_gpu, on_ssd = costs.feature(table.row_bytes), lower.ssd_seconds(table.row_bytes, costs)
        *sums, everything = prefix_sums(table.scores, [*(ends[index] for ends in reach), table.rows])
        without, with_gpu = (
            costs.saved_by_tiers(on_gpu * gpu, on_gpu * peer, on_ssd * cpu) for gpu, peer, cpu in (sums[:3], sums[3:])
        )
        reads, served = reads + everything, served + sums[3]
        seconds += (on_gpu + on_ssd) * everything - without
        saved += with_gpu - without
    return CacheBenefit(reads, served, seconds, saved)
