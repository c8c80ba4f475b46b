"""Counters of a feature table: rows and bytes that each tier served, time of copying and reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tiering.formats.layout import TIERS
from tiering.loader.process import ForkLock
from tiering.text.description import Line, Table, to_text
from tiering.text.units import format_bytes, format_count

if TYPE_CHECKING:
    from tiering import native


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
        return to_text([Table("", ("tier", "rows", "share", "bytes"), rows), *map(Line, lines)]).rstrip()
