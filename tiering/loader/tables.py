"""The feature tables of an open layout: opened when they are asked for, shared by all who ask for the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tiering.formats.layout import Layout
from tiering.loader.features import TieredFeatures
from tiering.loader.options import DeviceOptions, ReadOptions
from tiering.loader.process import ForkLock
from tiering.loader.rows import FeatureRows

if TYPE_CHECKING:
    from tiering.loader.gpu.features import GpuFeatures

Table = TypeVar("Table", bound=FeatureRows)


class FeatureTables:
    """Tables of one layout; the same arguments give the same open table."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        """The layout on disk."""
        self._tables: dict[tuple[Any, ...], FeatureRows] = {}
        self._lock = ForkLock()

    def on_host(self, node_type: str, reading: ReadOptions) -> TieredFeatures:
        """A table whose rows arrive in host memory."""
        return self._opened((node_type, reading), lambda: TieredFeatures(self.layout, node_type, reading))

    def open(self, node_type: str, reading: ReadOptions, where: DeviceOptions) -> TieredFeatures | GpuFeatures:
        """A table whose rows arrive where it is told; see `TieredLayout.features`."""
        if (index := where.index) is None:
            return self.on_host(node_type, reading)
        from tiering.loader.gpu.device import open_device
        from tiering.loader.gpu.features import GpuFeatures
        from tiering.loader.gpu.peers import find_group

        group = find_group(where.peers)
        return self._opened(
            (node_type, reading, index, where.max_sms, group),
            lambda: GpuFeatures(
                self.layout, node_type, open_device(index), reading, max_sms=where.max_sms, group=group
            ),
        )

    def close(self) -> None:
        """Close every table."""
        with self._lock:
            for table in self._tables.values():
                table.close()
            self._tables.clear()

    def _opened(self, key: tuple[Any, ...], open_table: Callable[[], Table]) -> Table:
        """The table that goes by `key`, opened if it is not."""
        with self._lock:
            table = self._tables.get(key)
            if table is None or table.closed:
                self._tables[key] = table = open_table()
            return cast("Table", table)
