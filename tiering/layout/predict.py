"""What a layout will take: memory and disk, type by type, by the strategy that it will choose for the rows."""

from __future__ import annotations

from pathlib import Path

from tiering.formats.feature_rows import CHUNK_BYTES
from tiering.formats.features import FeatureTable
from tiering.formats.layout import SUM_BYTES, TypeLayout
from tiering.layout.tiers import TierPlan
from tiering.memory import Budget
from tiering.plan import StagePlan, Step, held_memory
from tiering.ranked_rows import predict_rows


def predict_layout(
    tiers: TierPlan,
    tables: dict[str, FeatureTable],
    out: Path,
    ssd: list[Path],
    budget: Budget,
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
    Memory: that of the rows (`tiering.ranked_rows.plan_rows`) and of the files being written (four pieces of 8 MiB
    each: those of one memory tier, or of all peers, and all images).
    """
    left = tiers.reading_budget(budget)
    steps = [_rows(entry, tables[name], tiers, left) for name, entry in tiers.entries.items()]
    steps.append(Step("graph", "copied" if copied else "hard links", 0, copied, copied))
    places = tiers.places(out, ssd)
    places[out] += copied
    return StagePlan("layout", out, tuple(steps), places, held_memory())


def _rows(entry: TypeLayout, table: FeatureTable, tiers: TierPlan, left: Budget) -> Step:
    """The rows of a type: read in rank order, copied into pieces, hashed, written in the background."""
    rows = predict_rows(table, table.row_order == "rank", left)
    written = sum(entry.rows(tier) for tier in ("gpu", "peer", "cpu")) * entry.row_bytes
    written += entry.ssd_rows.num_pages * (tiers.page_bytes + SUM_BYTES)
    return Step(
        f"rows of {entry.node_type}",
        rows.how,
        rows.plan.memory + tiers.writing_memory() + (0 if rows.plan.windows else _copies(entry, tiers)),
        rows.disk_read,
        written,
        rows.plan.bytes_scratch,
        table.rows,
        "row",
    )


def _copies(entry: TypeLayout, tiers: TierPlan) -> int:
    """Bytes that are copied of a chunk before they are written: rows of one peer, pages, pages of one image."""
    chunk = min(CHUNK_BYTES, entry.num_nodes * entry.row_bytes)
    peers = chunk // tiers.num_peers if tiers.num_peers > 1 and entry.rows("peer") else 0
    rows = min(chunk // entry.row_bytes, entry.rows("ssd"))
    place = entry.ssd_rows
    whole = place.stride == entry.row_bytes and tiers.page_bytes % place.stride == 0
    padded = rows * place.stride if not place.rows_per_page else -(-rows // place.rows_per_page) * tiers.page_bytes
    pages = 0 if whole or not rows else padded
    images = padded // tiers.num_images if rows and tiers.num_images > 1 else 0
    return max(peers, pages + images)
