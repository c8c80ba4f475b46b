"""Statistics: rows and bytes that each tier of a table served; where a loader's rows came from, what it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tiering.formats.layout import TIERS
from tiering.loader.batches.pipeline import StageTimes
from tiering.loader.process import ForkLock
from tiering.text.description import Described, Part, Table, to_text
from tiering.text.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from tiering import native

_EXTRACTION = ("disk", "copying", "assembling")  # what the threads that extract batches do, one after the other
_BACKGROUND = ("sampling", *_EXTRACTION, "conversion")
_SOURCES = {"ssd": "ssd, buffered", "read": "ssd, read"}  # names in tables: rows of the tier in memory, and from disk


@dataclass
class TierCounters:
    """Rows that one tier served since the last reset, and their bytes."""

    rows: int = 0
    bytes: int = 0


@dataclass
class Counters:
    """Totals of all gathers of a feature table since it was opened or reset; several threads may update them."""

    gathers: int = 0
    tiers: dict[str, TierCounters] = field(default_factory=lambda: {tier: TierCounters() for tier in TIERS})
    """Totals by tier: ``gpu``, ``peer``, ``cpu``, ``ssd``."""
    ssd_reads: int = 0
    """Reads of stripe files; fewer than rows where rows share a page or come twice in one call."""
    ssd_read_bytes: int = 0
    """Bytes read from stripe files, including those that alignment adds."""
    ssd_reads_in_place: int = 0
    """Reads into the output without a copy."""
    copy_seconds: float = 0.0
    """Wall time of copying rows from memory."""
    read_seconds: float = 0.0
    """Wall time of gathers that waited for reads, after the copies that overlap them."""

    def __post_init__(self) -> None:
        self._lock = ForkLock()

    @property
    def rows(self) -> int:
        """Rows served by all tiers."""
        return sum(tier.rows for tier in self.tiers.values())

    def add(self, stats: native.GatherStats, gathers: int = 1, rows: bool = True) -> None:
        """Count a gather by the host, or with no `gathers` one more part of it; without `rows` its reads alone."""
        with self._lock:
            if rows:
                self._add_rows(stats.rows, stats.bytes, gathers)
                self.copy_seconds += stats.copy_nanoseconds * 1e-9
            self.ssd_reads += stats.reads
            self.ssd_read_bytes += stats.read_bytes
            self.ssd_reads_in_place += stats.direct_reads
            self.read_seconds += max(0, stats.read_nanoseconds - stats.copy_nanoseconds) * 1e-9

    def add_tally(self, rows: Sequence[int], row_bytes: int, gathers: int) -> None:
        """Count gathers by a GPU: rows by tier. Their time is unknown: one kernel serves all tiers."""
        with self._lock:
            self._add_rows(rows, [row_bytes * count for count in rows], gathers)

    def _add_rows(self, rows: Sequence[int], nbytes: Sequence[int], gathers: int) -> None:
        self.gathers += gathers
        for tier, count, size in zip(self.tiers.values(), rows, nbytes, strict=True):
            tier.rows, tier.bytes = tier.rows + int(count), tier.bytes + int(size)

    def reset(self) -> None:
        """Begin again at zero."""
        with self._lock:
            vars(self).update({**vars(Counters()), "_lock": self._lock})

    def hit_rates(self) -> dict[str, float]:
        """Return the fraction of the rows that each tier served; zeros before the first gather."""
        total = max(1, self.rows)
        return {name: tier.rows / total for name, tier in self.tiers.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return all counters, JSON types only."""
        return asdict(self)

    def table(self) -> str:
        """Return a table for people: one line per tier."""
        shares = self.hit_rates()
        rows = [(t, format_count(n.rows), f"{shares[t]:.1%}", format_bytes(n.bytes)) for t, n in self.tiers.items()]
        lines = [f"copied from memory: {self.copy_seconds:.3f} s"]
        if self.ssd_reads:
            reads = f"ssd reads: {format_count(self.ssd_reads)} ({format_bytes(self.ssd_read_bytes)})"
            lines.append(f"{reads}, {self.read_seconds:.3f} s in addition to copying")
        return to_text([Table("", ("tier", "rows", "fraction of rows", "bytes"), rows), *lines]).rstrip()


@dataclass(frozen=True)
class LoaderStats(Described):
    """Totals of a loader since it was made, or since `Loader.reset_counters`."""

    batches: int
    """Batches handed over."""
    rows: dict[str, int]
    """Feature rows by source: ``gpu``, ``peer``, ``cpu`` (memory tiers), ``ssd`` (rows of the ssd tier in memory, the
    buffer or the page cache) and ``read`` (rows read from disk for the batch)."""
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
    lists: dict[str, Any] | None = None
    """Reads of neighbor lists by windows of batches: batches sampled, ``reads``, ``read_bytes``, ``read_seconds`` and
    batches of the ``largest_window``; ``None`` where lists are mapped."""

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
        """Return the statistics as one line for people."""
        whole, waited = max(1e-9, self.wall), sum(self.waited.values())
        held = 1.0 - self.hit_rates["read"]
        return (
            f"{format_bytes(self.bytes / whole)}/s of rows, {held:.1%} from memory, read "
            f"{format_bytes(self.read_bytes)} ({self.read_per_used:.1f} bytes per byte used), waited "
            f"{waited / whole:.0%}, bound by: {self.bound_by}"
        )

    def table(self) -> str:
        """Return the parts of `describe` as text."""
        return to_text(self.describe()).rstrip()

    def describe(self) -> list[Part]:
        """Return tables of the rows by source and of the time by stage, and sums."""
        total, share = sum(self.rows.values()), self.read_per_used
        rows = [(_SOURCES.get(at, at), format_count(n), format_share(n, total)) for at, n in self.rows.items() if n]
        threads = self.threads | dict.fromkeys(_EXTRACTION, self.threads.get("extraction", 1))
        own = {stage: f"{seconds:.3f}" for stage, seconds in self.seconds.items()}
        of_wall = {**{stage: self.seconds[stage] for stage in ("training", "setup")}, **self.waited}
        times = [(s, own.get(s, ""), threads.get(s, ""), f"{seconds:.3f}") for s, seconds in of_wall.items()]
        amounts = (
            f"{format_count(self.batches)} batches, {format_bytes(self.bytes)} of rows; {format_count(self.reads)} "
            f"disk reads, {format_bytes(self.read_bytes)}, {share:.2f} bytes read per byte used"
        )
        accounted = f"wall time {self.wall:.3f} s; the table accounts for {sum(of_wall.values()):.3f} s"
        return [
            Table("Rows", ("source", "rows", "fraction of rows"), rows),
            Table("Time", ("stage", "work seconds", "threads", "wall seconds"), times),
            *(amounts, *self.lists_read(), accounted, f"bound by: {self.bound_by}"),
        ]

    def lists_read(self) -> list[str]:
        """Return the cost of reading neighbor lists, per batch, in words."""
        if self.lists is None:
            return []
        names = ("batches", "largest_window", "reads", "read_bytes", "read_seconds")
        batches, largest, reads, nbytes, seconds = (self.lists[name] for name in names)
        each = max(1, batches)
        return [
            f"neighbor lists of {format_count(batches)} batches, sampled in windows of up to "
            f"{format_count(largest)}: {format_count(reads // each)} reads, {format_bytes(nbytes / each)} and "
            f"{seconds / each:.4f} s per batch"
        ]


def collect(
    times: StageTimes,
    tables: Mapping[str, Mapping[str, Any]],
    buffer: dict[str, Any] | None,
    lists: dict[str, Any] | None = None,
) -> LoaderStats:
    """Return the statistics from counters: of the stages, each table (`Counters.as_dict`), the buffer and the lists."""
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
    return LoaderStats(
        times.batches, rows, nbytes, seconds, waits, times.wall, reads, read_bytes, buffer, threads, lists
    )
