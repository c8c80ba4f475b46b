"""What bringing rows into rank order will take: disk and time."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.random_rows import measure_rows
from tiering.artifacts.streaming import bytes_on_disk, uncached_bytes
from tiering.execution import Budget
from tiering.execution.costs import kernel_seconds, read_seconds, write_seconds
from tiering.execution.rates import Rates
from tiering.formats.feature_rows import CHUNK_BYTES, map_rows
from tiering.formats.features import FeatureTable
from tiering.ranked_rows.plan import RowPlan, plan_rows


@dataclass(frozen=True)
class RowForecast:
    """What bringing rows into rank order takes, while something is done with each chunk."""

    plan: RowPlan
    disk_read: int
    """Bytes read from disk, scratch apart."""
    before: float
    """Seconds before the first row, and between windows."""
    loading: float
    """Seconds that chunks take to arrive while the ones before are written, the disk apart."""
    reading: float
    """Seconds of the disk meanwhile."""
    one_disk: bool
    """The rows are read from the disk that the result is written to."""
    threads: int = 1
    """Threads that load."""
    chunk_share: float = 0.0
    """Share of the rows that a chunk has."""

    @property
    def how(self) -> str:
        """The strategy in words."""
        return self.plan.strategy if self.plan.strategy != "passes" else f"{self.plan.passes} passes"

    def seconds_with(self, writing: float, compute: float = 0.0) -> float:
        """Seconds in all, where writing keeps the disk busy so long, and one thread has so much to compute for it."""
        disk = self.reading + writing if self.one_disk else max(self.reading, writing)
        ends = (self.loading + self.reading + writing) * self.chunk_share  # nothing is beside the first and the last
        return self.before + max(disk, compute, self.loading + compute / self.threads) + ends


def predict_rows(
    table: FeatureTable, in_order: bool, budget: Budget, rates: Rates, *, cached: bool = False
) -> RowForecast:
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
    share = min(1.0, CHUNK_BYTES / max(1, table.bytes))
    once = 0 if cached else _uncached(table, plan)
    reading = read_seconds(once, rates.source)
    moving = kernel_seconds("row", table.rows, rates, table.rows, table.row_bytes)
    moving += kernel_seconds("row byte", table.bytes, rates)
    if plan.strategy == "random":
        speed = measure_rows(table.path, table.offset, table.rows, table.row_bytes)
        reading = table.rows / speed.rows
        return RowForecast(plan, plan.bytes_read, 0.0, moving, reading, rates.one_disk, rates.threads, share)
    if plan.strategy in ("in order", "gather"):
        return RowForecast(plan, once, 0.0, moving, reading, rates.one_disk, rates.threads, share)
    if plan.strategy == "passes":
        passes = plan.passes
        streaming = kernel_seconds("row", passes * table.rows, rates) + moving
        copying = kernel_seconds("row byte", table.bytes, rates)
        return RowForecast(
            plan, passes * once, max(passes * reading, streaming), copying, 0.0, rates.one_disk, rates.threads, share
        )
    scratch = write_seconds(plan.bytes_scratch, rates.target)
    first = max(reading + scratch if rates.one_disk else max(reading, scratch), moving)
    return RowForecast(
        plan, once, first, 2 * moving, read_seconds(plan.bytes_scratch, rates.target), True, rates.threads, share
    )


def _uncached(table: FeatureTable, plan: RowPlan) -> int:
    """Bytes of a table that are read from disk each time; streams read all of it or nothing."""
    if not table.path.exists():  # it will have been written past the page cache
        return table.bytes
    rows = map_rows(table, random=False)
    return bytes_on_disk([rows]) if plan.windows else uncached_bytes(rows)
