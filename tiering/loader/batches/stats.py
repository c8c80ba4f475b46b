"""Statistics of a loader: where its rows came from, and which stage training waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tiering.loader.batches.pipeline import StageTimes
from tiering.text.description import Described, Line, Part, Table, to_text
from tiering.text.units import format_bytes, format_count, format_share

_EXTRACTION = ("disk", "copying", "assembling")  # what the threads that extract batches do, one after the other
_BACKGROUND = ("sampling", *_EXTRACTION, "conversion")


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
    """Seconds of each stage's own work, over its threads: ``training`` (the consumer), ``setup`` (before the first
    batch and after the last), ``sampling``; of extraction ``disk`` (waiting for reads), ``copying`` rows and
    ``assembling`` (all else, such as labels, and rows of tables that count nothing); ``conversion`` for PyG or DGL."""
    waited: dict[str, float]
    """Seconds that training waited, by the stage that the batch was in; ``handover``: in none. With ``training`` and
    ``setup`` these add up to `wall`."""
    wall: float
    """Wall seconds of the epochs."""
    reads: int
    """Read requests to stripe files."""
    read_bytes: int
    """Bytes of these requests."""
    buffer: dict[str, Any] | None
    """Counters of the buffer in front of the ssd tier; ``None`` where there is none."""
    threads: dict[str, int]
    """Threads of ``sampling``, ``extraction`` and ``conversion``."""

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
        """The bound of an epoch's time: the stage whose threads were busy longest; of extraction, its longest part.

        One of the stages in `seconds`, or ``handover``; ``nothing`` yet.
        """
        if not self.batches:
            return "nothing"
        busy = {stage: self.seconds[stage] for stage in ("training", "setup", "sampling", "conversion")}
        busy |= {"extraction": sum(self.seconds[part] for part in _EXTRACTION), "handover": self.waited["handover"]}
        stage = max(busy, key=lambda stage: busy[stage] / self.threads.get(stage, 1))
        return stage if stage != "extraction" else max(_EXTRACTION, key=lambda part: self.seconds[part])

    def as_dict(self) -> dict[str, Any]:
        """Return all statistics, JSON types only."""
        derived = {name: getattr(self, name) for name in ("hit_rates", "read_per_used", "bound_by")}
        return {**asdict(self), **derived}

    def line(self) -> str:
        """Return one line for people."""
        whole, waited = max(1e-9, self.wall), sum(self.waited.values())
        held = 1.0 - self.hit_rates["read"]
        return (
            f"{format_bytes(self.bytes / whole)}/s of rows, {held:.1%} held, read {format_bytes(self.read_bytes)} "
            f"({self.read_per_used:.1f} of what was used), waited {waited / whole:.0%}, "
            f"bound by: {self.bound_by}"
        )

    def table(self) -> str:
        """Return what `describe` says, as text."""
        return to_text(self.describe()).rstrip()

    def describe(self) -> list[Part]:
        """Return tables of the rows by source and of the time by stage, and sums."""
        total, share = sum(self.rows.values()), self.read_per_used
        rows = [(place, format_count(count), format_share(count, total)) for place, count in self.rows.items()]
        threads = self.threads | dict.fromkeys(_EXTRACTION, self.threads.get("extraction", 1))
        own = {stage: f"{seconds:.3f}" for stage, seconds in self.seconds.items()}
        of_wall = {**{stage: self.seconds[stage] for stage in ("training", "setup")}, **self.waited}
        times = [(s, own.get(s, ""), threads.get(s, ""), f"{seconds:.3f}") for s, seconds in of_wall.items()]
        amounts = (
            f"{format_count(self.batches)} batches, {format_bytes(self.bytes)} of rows; "
            f"{format_count(self.reads)} reads, {format_bytes(self.read_bytes)}, {share:.2f} x those used"
        )
        accounted = f"wall time {self.wall:.3f} s, of which {sum(of_wall.values()):.3f} s are accounted for above"
        return [
            Table("Rows", ("from", "rows", "share"), rows),
            Table("Time", ("spent on", "own seconds", "threads", "of wall time"), times),
            *map(Line, (amounts, accounted, f"bound by: {self.bound_by}")),
        ]


def collect(times: StageTimes, tables: Mapping[str, Mapping[str, Any]], buffer: dict[str, Any] | None) -> LoaderStats:
    """Return the statistics from the counters of the stages, of each table (`Counters.as_dict`) and of the buffer."""
    rows = dict.fromkeys(("gpu", "peer", "cpu", "ssd", "read"), 0)
    nbytes = reads = read_bytes = read_rows = 0
    copying = disk = 0.0
    if buffer is not None:
        reads, read_bytes, read_rows, disk = (buffer[n] for n in ("reads", "read_bytes", "rows_read", "wait_seconds"))
    for counters in tables.values():
        for tier, served in counters["tiers"].items():
            rows[tier] += served["rows"]
            nbytes += served["bytes"]
        reads, read_bytes = reads + counters["ssd_reads"], read_bytes + counters["ssd_read_bytes"]
        read_rows += counters["tiers"]["ssd"]["rows"] if counters["ssd_reads"] else 0
        copying, disk = copying + counters["copy_seconds"], disk + counters["read_seconds"]
    rows["read"] = min(read_rows, rows["ssd"])
    rows["ssd"] -= rows["read"]
    extraction = times.busy.get("extraction", 0.0)
    copying = min(copying, extraction)
    disk = min(disk, extraction - copying)  # tables that loaders share count for all of them
    parts = {"disk": disk, "copying": copying, "assembling": extraction - copying - disk}
    share = times.waited.get("extraction", 0.0) / max(extraction, 1e-12)
    spent = {**times.spent, **times.busy, **parts}
    seconds = {stage: spent.get(stage, 0.0) for stage in ("training", "setup", *_BACKGROUND)}
    waited = {**times.waited, **{part: share * own for part, own in parts.items()}}
    waits = {stage: waited.get(stage, 0.0) for stage in (*_BACKGROUND, "handover")}
    threads = dict(times.threads)
    return LoaderStats(times.batches, rows, nbytes, seconds, waits, times.wall, reads, read_bytes, buffer, threads)
