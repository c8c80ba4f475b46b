"""Feature tables: spread over tiers, or all in memory. What they share is in `rows`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import InputError
from tiering.formats.layout import Layout, SsdRows, TypeLayout, peer_rows
from tiering.loader.engines import describe, open_images
from tiering.loader.memory import ResidentRows, anonymous, load_rows
from tiering.loader.messages import warn_once
from tiering.loader.options import ReadOptions
from tiering.loader.page_checks import PageChecks
from tiering.loader.process import same_layout
from tiering.loader.rows import HostRows, make_table
from tiering.units import parse_threads

_LOAD_BYTES = 64 * 1024 * 1024
_DEFAULT = ReadOptions()


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
    reading
        Engine, depth, O_DIRECT, threads, and whether checksums are compared.
    """

    def __init__(self, layout: Layout, node_type: str, reading: ReadOptions = _DEFAULT) -> None:
        entry = layout.type_layout(node_type)
        self._reopened_by = (str(layout.path.absolute()), layout.digest, node_type, reading)
        self._checks = PageChecks(layout) if reading.verify and entry.rows("ssd") else None
        if reading.verify:
            layout.verify_tiers(node_type)
        self.reader = open_images(layout, entry, reading)
        """Open SSD images; ``None`` where the ssd tier is empty."""
        tiers = _load_tiers(layout, entry)
        self._resident = [rows for rows in tiers if rows is not None]
        gpu, *peers, cpu = (None if rows is None else rows.array for rows in tiers)
        no_rows = np.empty(0, np.uint8)
        shares = [no_rows if rows is None else rows for rows in peers]
        checksums = [] if self._checks is None else self._checks.arrays
        table = make_table(layout, entry, self.reader, checksums, (gpu, shares, cpu))
        super().__init__(str(layout.path), entry, table, parse_threads(reading.threads))
        if entry.rows("gpu") + entry.rows("peer"):
            warn_once(
                f"{layout.path}: the gpu and peer tiers live in host memory, because they were opened with device='cpu'"
            )

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
            return describe(self.reader)
        return "host memory" if tier == "cpu" else "host memory (opened with device='cpu')"

    def _refuse_damage(self, stats: native.GatherStats) -> None:
        if (checks := self._checks) is not None:
            checks.refuse(stats, self.node_type)


def _reopen(path: str, digest: str, node_type: str, reading: ReadOptions) -> TieredFeatures:
    return TieredFeatures(same_layout(path, digest), node_type, reading)


class MemoryFeatures(HostRows):
    """The same rows, all in host memory: the yardstick for the tiers, and what small graphs use.

    Parameters
    ----------
    node_type
        Name, for messages.
    table
        Shape (rows, dim), row = rank. C-contiguous tables are used as they are, others are copied.
    dtype
        Element type if the array's own does not say it (``bfloat16`` as ``uint16``).
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


def _load_tiers(layout: Layout, entry: TypeLayout) -> list[ResidentRows | None]:
    """The gpu tier, each peer's share, the cpu tier; ``None`` where there are no rows."""

    def load(tier: str, rows: int, peer: int = 0) -> ResidentRows | None:
        return load_rows(layout.tier_path(entry.node_type, tier, peer), rows * entry.row_bytes) if rows else None

    peers, shared = layout.num_peers, entry.rows("peer")
    shares = [load("peer", peer_rows(shared, peer, peers), peer) for peer in range(peers if shared else 0)]
    return [load("gpu", entry.rows("gpu")), *shares, load("cpu", entry.rows("cpu"))]
