"""What a layout will take: memory, disk and time, type by type, by the strategy that it will choose for the rows."""

from __future__ import annotations

from pathlib import Path

from tiering.execution import Budget
from tiering.execution.costs import SYNCS_OF_STAGE, kernel_seconds, read_seconds, write_seconds
from tiering.execution.memory import own_memory
from tiering.execution.plan import StagePlan, Step
from tiering.execution.rates import Rates
from tiering.formats.features import FeatureTable
from tiering.formats.layout import TypeLayout
from tiering.layout.tiers import TierPlan
from tiering.ranked_rows import predict_rows


def predict_layout(
    tiers: TierPlan,
    tables: dict[str, FeatureTable],
    out: Path,
    ssd: list[Path],
    budget: Budget,
    rates: Rates,
    *,
    copied: int = 0,
) -> StagePlan:
    """Plan of a layout.

    Parameters
    ----------
    tiers
        As `tiering.layout.tiers.plan_layout` decides.
    ssd
        Directories of the SSD images.
    copied
        Bytes of the graph where it cannot be hard-linked into the layout.

    Raises
    ------
    BudgetError
        Where the layout would.

    Notes
    -----
    Memory: that of the rows (`tiering.ranked_rows.plan_rows`) and of the files being written (three pieces of 8 MiB
    each: those of one memory tier, or of all peers, and all images).
    """
    left = tiers.reading_budget(budget)
    steps = [_rows(entry, tables[name], tiers, left, rates) for name, entry in tiers.entries.items()]
    seconds = read_seconds(copied, rates.source) + write_seconds(copied, rates.target)
    seconds += SYNCS_OF_STAGE * rates.target.sync
    steps.append(Step("graph", "copied" if copied else "hard links", 0, copied, copied, 0, seconds))
    places = {out: tiers.tier_bytes() + copied}
    for folder, nbytes in zip(ssd, tiers.images(), strict=False):
        places[folder] = places.get(folder, 0) + nbytes
    return StagePlan("layout", out, tuple(steps), places, own_memory())


def _rows(entry: TypeLayout, table: FeatureTable, tiers: TierPlan, left: Budget, rates: Rates) -> Step:
    """The rows of a type: read in rank order, copied into pieces, hashed, written in the background."""
    rows = predict_rows(table, table.row_order == "rank", left, rates)
    written = sum(entry.rows(tier) for tier in ("gpu", "peer", "cpu")) * entry.row_bytes
    written += entry.ssd_rows.num_pages * tiers.page_bytes
    return Step(
        f"rows of {entry.node_type}",
        rows.how,
        rows.plan.memory + tiers.writing_memory(),
        rows.disk_read,
        written,
        rows.plan.bytes_scratch,
        rows.seconds_with(write_seconds(written, rates.target), kernel_seconds("append", written, rates)),
        table.rows,
        "row",
    )
