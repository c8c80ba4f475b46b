"""Feature rows of one table of a layout, gathered by a GPU."""

from __future__ import annotations

from tiering.formats.layout import Layout
from tiering.loader.gpu.device import Device, check_process, parse_sms, pinned_address
from tiering.loader.gpu.rows import STAGING_BYTES, GpuRows, StagedRows
from tiering.loader.gpu.tiers import load_tiers
from tiering.loader.options import ReadOptions
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.ssd import PageChecks, describe, make_table, open_images, preload_ssd_rows
from tiering.units import parse_threads

_DEFAULT = ReadOptions()


class GpuFeatures(GpuRows):
    """Feature rows over the four tiers of a layout, gathered by a GPU; made by `TieredLayout.features`.

    Rows of the ssd tier come through pinned buffers, unless pinned memory holds them already: all of them (`preload`),
    or those of a batch in buffer slots. `group`: the processes that share the peer tier.
    """

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        device: Device,
        reading: ReadOptions = _DEFAULT,
        *,
        max_sms: int | str = "auto",
        group: PeerGroup | None = None,
    ) -> None:
        entry = layout.type_layout(node_type)
        if reading.verify:
            layout.verify_tiers(node_type)
        reader, sms = open_images(layout, entry, reading), parse_sms(max_sms)
        super().__init__(str(layout.path), load_tiers(layout, entry, device, group), sms, reader)
        self._layout, self._reading = layout, reading
        self._sharing = group  # of host memory
        self._checks = PageChecks(layout) if reading.verify and reader is not None else None
        self.preloaded = False  # whether all rows of the ssd tier lie in pinned host memory

    def preload(self) -> None:
        """Read all rows of the ssd tier into pinned host memory, shared by the tables of this process or group."""
        check_process(self._process)
        with self._lock:
            if self.closed:
                raise self._closed_error()
            if self.reader is None:
                return
            rows = preload_ssd_rows(self._layout, self._entry, self._reading, self._checks, self._sharing)
            self._table = self.table_over(
                pinned_address(rows, self.device.index, f"{self._what}: rows of the ssd tier")
            )
            self._memory.owners.append(rows)
            self._done.wait()  # the GPU may still copy from the buffers
            self.preloaded, self.reader, self._staged = True, None, None

    def _make_staging(self) -> StagedRows | None:
        if self.reader is None:
            return None
        checks, node_type = self._checks, self.node_type
        table = make_table(self._layout, self._entry, self.reader, checks)
        what = f"{self._what}: buffers for rows of the ssd tier"
        threads = parse_threads(self._reading.threads)
        return StagedRows(
            table, self.row_bytes, self.device, threads, STAGING_BYTES, what,
            lambda page: None if checks is None else checks.refuse(page, node_type),
        )  # fmt: skip

    def _place(self, tier: str) -> str:
        if tier != "ssd" or self.closed:
            return super()._place(tier)
        return "pinned host memory (read from SSD)" if self.preloaded else describe(self.reader)
