"""Feature tables: spread over tiers, or all in memory. What they share is in `rows`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.held import shown
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import FormatError, InputError
from tiering.formats.layout import TIERS, Layout, SsdRows, TypeLayout, image_bytes, peer_rows
from tiering.loader.engines import DEFAULT_DEPTH, open_reader
from tiering.loader.memory import ResidentRows, anonymous, load_rows
from tiering.loader.page_checks import PageChecks
from tiering.loader.reopen import same_layout
from tiering.loader.rows import HostRows
from tiering.loader.warn import warn_once
from tiering.units import parse_threads

_LOAD_BYTES = 64 * 1024 * 1024


class TieredFeatures(HostRows):
    """Feature rows of one node type over the four tiers of a layout.

    The rows arrive in host memory, and the gpu and peer tiers live there too; a warning says so once. On a GPU:
    `tiering.loader.gpu.features.GpuFeatures`.

    Parameters
    ----------
    layout
        The layout artifact.
    node_type
        A type with features.
    engine
        ``auto``, ``io_uring``, ``threads`` or ``mmap`` for the ssd tier.
    depth
        SSD reads in flight at most.
    direct
        ``auto``, ``on`` or ``off``: O_DIRECT reads.
    threads
        Threads that copy rows from memory.
    verify
        Whether files of the memory tiers, and each page of the ssd tier, are compared with their checksums.
    """

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        *,
        engine: str = "auto",
        depth: int = DEFAULT_DEPTH,
        direct: str = "auto",
        threads: int | str | None = "auto",
        verify: bool = False,
    ) -> None:
        entry = layout.type_layout(node_type)
        reading = {"engine": engine, "depth": depth, "direct": direct, "threads": threads, "verify": verify}
        self._reopened_by = (str(layout.path.absolute()), layout.digest, node_type, reading)
        self.reader = None
        """Open SSD images; ``None`` where the ssd tier is empty."""
        self._checks = PageChecks(layout) if verify and entry.rows("ssd") else None
        if verify:
            layout.verify_tiers(node_type)
        if entry.rows("ssd"):
            check_images(layout, entry)
            self.reader = open_reader(layout.image_places, layout.page_bytes, engine, depth, direct)
        gpu, peers, cpu = _load_tiers(layout, entry)
        ssd = entry.ssd_rows
        table = native.TieredTable(
            entry.row_bytes,
            [entry.ranges[tier][1] for tier in TIERS],
            None if gpu is None else gpu.array,
            [peer.array for peer in peers],
            None if cpu is None else cpu.array,
            self.reader,
            ssd.first_page,
            ssd.stride,
            ssd.rows_per_page,
            layout.page_bytes,
            [] if self._checks is None else self._checks.arrays,
        )
        super().__init__(str(layout.path), entry, table, parse_threads(threads))
        self._resident: list[ResidentRows] = [rows for rows in (gpu, *peers, cpu) if rows is not None]
        self._warn_host_tiers()

    @property
    def engine(self) -> str | None:
        """Engine that reads the ssd tier; ``None`` where that tier is empty."""
        return None if self.reader is None else self.reader.engine

    def close(self) -> None:
        """Give memory and descriptors back; memory shared with another open table stays until that is closed."""
        super().close()
        self._resident = []
        self.reader = self._checks = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise self._closed_error()
        return _reopen, self._reopened_by

    def _place(self, tier: str) -> str:
        if tier == "ssd":
            if self.reader is None:
                return "closed"
            return f"{self.reader.engine}, {'direct' if self.reader.direct else 'buffered'} reads"
        return "host memory" if tier == "cpu" else "host memory (opened with device='cpu')"

    def _refuse_damage(self, stats: native.GatherStats) -> None:
        if (checks := self._checks) is not None:
            checks.refuse(stats, self.node_type)

    def _warn_host_tiers(self) -> None:
        if self._entry.rows("gpu") + self._entry.rows("peer"):
            warn_once(
                f"{self._where}: the gpu and peer tiers live in host memory, because they were opened with device='cpu'"
            )


def _reopen(path: str, digest: str, node_type: str, reading: dict[str, Any]) -> TieredFeatures:
    return TieredFeatures(same_layout(path, digest), node_type, **reading)


class MemoryFeatures(HostRows):
    """The same rows, all in host memory: the yardstick for the tiers, and what small graphs use.

    Parameters
    ----------
    node_type
        Name, for messages.
    table
        Shape (rows, dim), row = rank. C-contiguous tables are used as they are, others are copied.
    dtype
        Element type if the array's own does not say it (``bfloat16`` held as ``uint16``).
    """

    def __init__(
        self,
        node_type: str,
        table: npt.NDArray[Any],
        dtype: str | None = None,
        threads: int | str | None = "auto",
    ) -> None:
        if table.ndim != 2:
            raise InputError(f"{node_type}: expected a table of shape (rows, dim), found {table.shape}")
        rows, dim = table.shape
        none = (0, 0)
        ranges = {"gpu": none, "peer": none, "cpu": (0, rows), "ssd": (rows, rows)}
        entry = TypeLayout(node_type, rows, dim, dtype or table.dtype.name, ranges, SsdRows(0, 0, 1, 0))
        flat = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        native_table = native.TieredTable(entry.row_bytes, [0, 0, rows, rows], None, [], flat, None)
        super().__init__("features in memory", entry, native_table, parse_threads(threads))

    @classmethod
    def load(cls, features: HostRows) -> MemoryFeatures:
        """Copy all rows of `features` into memory. Cost: every row is read once, in order, 64 MiB at a time."""
        rows, dim = features.shape
        dtype = storage_dtype(features.dtype)
        table = anonymous(rows * features.row_bytes).view(dtype).reshape(rows, dim)
        step = max(1, _LOAD_BYTES // features.row_bytes)
        for start in range(0, rows, step):
            ids = np.arange(start, min(rows, start + step), dtype=np.int64)
            features.gather_numpy(ids, out=table[start : start + len(ids)])
        return cls(features.node_type, table, features.dtype)

    def __repr__(self) -> str:
        return f"<MemoryFeatures {self.node_type!r} {self.shape} {self.dtype}>"


def _load_tiers(
    layout: Layout, entry: TypeLayout
) -> tuple[ResidentRows | None, list[ResidentRows], ResidentRows | None]:
    def load(tier: str, rows: int, peer: int = 0) -> ResidentRows | None:
        if rows == 0:
            return None
        return load_rows(layout.tier_path(entry.node_type, tier, peer), rows * entry.row_bytes)

    peers = []
    for peer in range(layout.num_peers if entry.rows("peer") else 0):
        rows = peer_rows(entry.rows("peer"), peer, layout.num_peers)
        empty = ResidentRows(layout.path, np.empty(0, np.uint8))
        peers.append(load("peer", rows, peer) or empty)
    return load("gpu", entry.rows("gpu")), peers, load("cpu", entry.rows("cpu"))


def check_images(layout: Layout, entry: TypeLayout) -> None:
    """Sizes again: images lie outside the layout and may have changed since it was opened."""
    last_page = entry.ssd_rows.first_page + entry.ssd_rows.num_pages
    for index, path in enumerate(layout.image_places):
        needed = image_bytes(last_page, index, layout.num_images, layout.page_bytes)
        if path.is_file() and path.stat().st_size < needed:
            raise FormatError(
                f"{shown(path)}: ssd image {index} of {layout.path} needs at least {needed} bytes, "
                f"found {path.stat().st_size}; make the layout again"
            )
