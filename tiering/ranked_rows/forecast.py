"""What bringing rows into rank order will take of the disks."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.streaming import bytes_on_disk, uncached_bytes
from tiering.formats.feature_rows import map_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget
from tiering.ranked_rows.plan import RowPlan, plan_rows


@dataclass(frozen=True)
class RowForecast:
    """What bringing rows into rank order takes."""

    plan: RowPlan
    disk_read: int
    """Bytes read from disk, scratch apart."""

    @property
    def how(self) -> str:
        """The strategy in words."""
        return self.plan.strategy if self.plan.strategy != "passes" else f"{self.plan.passes} passes"


def predict_rows(table: FeatureTable, in_order: bool, budget: Budget, *, cached: bool = False) -> RowForecast:
    """What `RankedRows` takes.

    Parameters
    ----------
    cached
        The page cache holds the table; else that is looked at.

    Raises
    ------
    BudgetError
        As `plan_rows`.
    """
    plan = plan_rows(table, in_order, budget)
    if plan.strategy == "random":
        return RowForecast(plan, plan.bytes_read)
    return RowForecast(plan, 0 if cached else plan.passes * _uncached(table, plan))


def _uncached(table: FeatureTable, plan: RowPlan) -> int:
    """Bytes of a table that are read from disk each time; streams read all of it or nothing."""
    if not table.path.exists():  # it will have been written past the page cache
        return table.bytes
    rows = map_rows(table, random=False)
    return bytes_on_disk([rows]) if plan.windows else uncached_bytes(rows)
