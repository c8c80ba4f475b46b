"""Statistics of a loader: where its rows came from, and which stage training waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tiering.description import Described, Line, Part, Table
from tiering.loader.batches.pipeline import StageTimes
from tiering.units import format_bytes, format_count, format_share

_WAITED = 0.05  # of the time: up to this, waiting of training does not count as waiting for the loader


@dataclass(frozen=True)
class LoaderStats(Described):
    """Totals of a loader since it was made, or since `Loader.reset_counters`."""

    batches: int
    """Batches handed over."""
    rows: dict[str, int]
    """Feature rows by source: ``gpu``, ``peer``, ``cpu`` (memory tiers), ``ssd`` (rows of the ssd tier in memory or in
    the buffer) and ``read`` (rows read from disk for the batch)."""
    bytes: int
    """Bytes of these rows."""
    seconds: dict[str, float]
    """Seconds of ``training`` (the consumer works) and ``waiting`` (for a batch); of the background's ``sampling`` and
    ``extraction``, over their threads; of extraction ``copying`` and ``disk`` (waiting for reads)."""
    reads: int
    """Read requests to stripe files."""
    read_bytes: int
    """Bytes of these requests."""
    buffer: dict[str, Any] | None
    """Counters of the buffer in front of the ssd tier; ``None`` where there is none."""
    workers: int
    """Threads that sample."""

    @property
    def hit_rates(self) -> dict[str, float]:
        """Fraction of the rows by source."""
        total = max(1, sum(self.rows.values()))
        return {place: rows / total for place, rows in self.rows.items()}

    @property
    def read_per_used(self) -> float:
        """Bytes read from disk per byte of the rows that were read; 0 where none was."""
        used = self.rows["read"] * self.bytes / max(1, sum(self.rows.values()))
        return self.read_bytes / used if used else 0.0

    @property
    def bound_by(self) -> str:
        """The bound of an epoch's time: ``training``, ``disk``, ``copying`` or ``sampling``; ``nothing`` yet."""
        seconds = self.seconds
        whole = seconds["training"] + seconds["waiting"]
        if not self.batches or not whole:
            return "nothing"
        if seconds["waiting"] < _WAITED * whole:
            return "training"
        stages = {
            "sampling": seconds["sampling"] / self.workers,
            "disk": seconds["disk"],
            "copying": seconds["extraction"] - seconds["disk"],
        }
        return max(stages, key=lambda stage: stages[stage])

    def as_dict(self) -> dict[str, Any]:
        """Return all statistics, JSON types only."""
        derived = {name: getattr(self, name) for name in ("hit_rates", "read_per_used", "bound_by")}
        return {**asdict(self), **derived}

    def line(self) -> str:
        """Return one line for people."""
        whole = max(1e-9, self.seconds["training"] + self.seconds["waiting"])
        held = 1.0 - self.hit_rates["read"]
        return (
            f"{format_bytes(self.bytes / whole)}/s of rows, {held:.1%} held, read {format_bytes(self.read_bytes)} "
            f"({self.read_per_used:.1f} of what was used), waited {self.seconds['waiting'] / whole:.0%}, "
            f"bound by: {self.bound_by}"
        )

    def table(self) -> str:
        """Return a table for people."""
        lines = [f"{'rows from':<10}{'rows':>14}{'share':>9}"]
        lines += [f"{place:<10}{format_count(n):>14}{self.hit_rates[place]:>9.1%}" for place, n in self.rows.items()]
        lines += [f"{name:<10}{seconds:>12.3f} s" for name, seconds in self.seconds.items()]
        return "\n".join([*lines, *self._sums()])

    def describe(self) -> list[Part]:
        """Return what `table` says."""
        total = sum(self.rows.values())
        rows = [(place, format_count(count), format_share(count, total)) for place, count in self.rows.items()]
        seconds = [(name, f"{spent:.3f}") for name, spent in self.seconds.items()]
        tables = Table("Rows", ("from", "rows", "share"), rows), Table("Time", ("spent on", "seconds"), seconds)
        return [*tables, *map(Line, self._sums())]

    def _sums(self) -> list[str]:
        amounts = (
            f"{format_count(self.batches)} batches, {format_bytes(self.bytes)} of rows; "
            f"{format_count(self.reads)} reads, {format_bytes(self.read_bytes)}, {self.read_per_used:.2f} x those used"
        )
        return [amounts, f"bound by: {self.bound_by}"]


def collect(
    times: StageTimes, tables: Mapping[str, Mapping[str, Any]], buffer: dict[str, Any] | None, workers: int
) -> LoaderStats:
    """Return the statistics from the counters of the stages, of each table (`Counters.as_dict`) and of the buffer."""
    rows = dict.fromkeys(("gpu", "peer", "cpu", "ssd", "read"), 0)
    nbytes = reads = read_bytes = read_rows = 0
    copying = disk = 0.0
    for counters in tables.values():
        for tier, served in counters["tiers"].items():
            rows[tier] += served["rows"]
            nbytes += served["bytes"]
        reads, read_bytes = reads + counters["ssd_reads"], read_bytes + counters["ssd_read_bytes"]
        read_rows += counters["tiers"]["ssd"]["rows"] if counters["ssd_reads"] else 0
        copying, disk = copying + counters["copy_seconds"], disk + counters["read_seconds"]
    if buffer is not None:
        reads, read_bytes = reads + buffer["reads"], read_bytes + buffer["read_bytes"]
        read_rows, disk = read_rows + buffer["rows_read"], disk + buffer["wait_seconds"]
    rows["read"] = min(read_rows, rows["ssd"])
    rows["ssd"] -= rows["read"]
    seconds = {
        "training": times.consumer, "waiting": times.starved, "sampling": times.busy.get("sampling", 0.0),
        "extraction": times.busy.get("extraction", 0.0), "copying": copying, "disk": disk,
    }  # fmt: skip
    return LoaderStats(times.batches, rows, nbytes, seconds, reads, read_bytes, buffer, workers)
