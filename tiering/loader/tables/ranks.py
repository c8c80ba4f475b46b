"""Rows of a memory tier: from its own file, or by rank from all files of a layout where a view has other tiers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.formats.layout import MEMORY_TIERS, Layout, TypeLayout, tier_file
from tiering.loader.options import ReadOptions
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.resident import SharedBlock, get_or_fill, load_rows
from tiering.loader.tables.ssd import PageChecks, make_table, open_images
from tiering.text.units import parse_threads

Rows = npt.NDArray[np.uint8]
_PIECE = 32 << 20  # bytes that are read at a time


@dataclass(frozen=True)
class TierPart:
    """The rows of a memory tier of a table, or of one share of the peer tier."""

    layout: Layout
    entry: TypeLayout
    tier: str
    reading: ReadOptions
    share: int = 0

    @property
    def ranks(self) -> range:
        """Ranks of the rows."""
        begin, end = self.entry.ranges[self.tier]
        return range(begin + self.share, end, self.layout.num_peers if self.tier == "peer" else 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return len(self.ranks) * self.entry.row_bytes

    @property
    def file(self) -> Path | None:
        """The file of these rows and no others; ``None`` if there is none."""
        stored = self.layout.stored.type_layout(self.entry.node_type)
        same = stored.ranges[self.tier] == self.entry.ranges[self.tier]
        return self.layout.tier_path(stored.node_type, self.tier, self.share) if same else None

    def load(self, group: PeerGroup | None) -> SharedBlock:
        """Return the rows in host memory, which the tables of this process or group share."""
        if self.file is not None:
            return load_rows(self.file, self.nbytes, group)
        layout, files = self.layout, self._open()  # now: checksums of pages are shared blocks, too
        key = str(layout.path.absolute()), layout.digest, self.entry.node_type, self.ranks, self.reading.verify
        what = f"{layout.path}: rows of {self.entry.label} of the {self.tier} tier"
        return get_or_fill(what, key, self.nbytes, lambda rows: deque(self._read(*files, rows), 0).clear(), group)

    def pieces(self) -> Iterator[Rows]:
        """Yield the bytes of the rows in order, some MiB at a time."""
        return self._read(*self._open())

    def _open(self) -> tuple[native.TieredTable, PageChecks | None]:
        """Return a table of the layout's rows in their files, of which the memory tiers' are mapped."""
        layout, name, reading = self.layout.stored, self.entry.node_type, self.reading
        if reading.engine == "bam":  # the host reads the stripe files
            reading = replace(reading, engine="auto", drives=())
        entry, checks = layout.type_layout(name), PageChecks(layout) if reading.verify else None
        gpu, *peers, cpu = [
            layout.manifest.array(tier_file(name, tier, share, layout.num_peers)).reshape(-1).view(np.uint8)
            if rows
            else np.empty(0, np.uint8)
            for tier in MEMORY_TIERS
            for share, rows in enumerate(entry.file_rows(tier, layout.num_peers))
        ]
        return make_table(layout, entry, open_images(layout, entry, reading), checks, (gpu, peers, cpu)), checks

    def _read(self, table: native.TieredTable, checks: PageChecks | None, out: Rows | None = None) -> Iterator[Rows]:
        """Yield the rows by pieces, of `out` if it is given, which they fill."""
        step, threads = max(1, _PIECE // self.entry.row_bytes), parse_threads(self.reading.threads)
        for at in range(0, len(self.ranks), step):
            part = self.ranks[at : at + step]
            size, begin = len(part) * self.entry.row_bytes, at * self.entry.row_bytes
            rows = np.empty(size, np.uint8) if out is None else out[begin : begin + size]
            stats = table.gather(np.arange(part.start, part.stop, part.step), rows.reshape(len(part), -1), threads)
            if checks is not None:
                checks.refuse(stats.bad_page, self.entry.node_type)
            yield rows
