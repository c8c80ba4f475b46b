"""Feature rows of one node type where a GPU reads them; they arrive in its memory."""

from __future__ import annotations

from collections.abc import Callable

from tiering.formats.layout import Layout
from tiering.loader.gpu.device import Device, check_process, parse_sms, pinned_address
from tiering.loader.gpu.rows import GpuRows
from tiering.loader.gpu.tiers import STAGING_BYTES, StagedRows, load_tiers
from tiering.loader.options import ReadOptions
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.preload import preload_ssd_rows
from tiering.loader.tables.ssd import PageChecks, describe, make_table, open_images
from tiering.units import parse_threads

_DEFAULT = ReadOptions()


class GpuFeatures(GpuRows):
    """Feature rows over the four tiers of a layout, gathered by a GPU.

    The gpu tier lies in its memory; peers' shares in theirs, where it reaches them, else in host memory; the cpu tier
    in pinned host memory that it reads by itself; rows of the ssd tier come through pinned buffers of `staging_bytes`,
    unless they lie in pinned memory already: all of them (`preload`), or those of a batch in the slots of a buffer.
    One kernel serves what lies in memory, on up to `max_sms` multiprocessors, so that training keeps the others (0:
    all; ``auto``: a tenth where some rows come over PCIe, all where none does). `group` are the
    processes that share the peer tier.
    Opened by `TieredLayout.features`; where memory does not suffice, nothing stays allocated.
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
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        entry = layout.type_layout(node_type)
        if reading.verify:
            layout.verify_tiers(node_type)
        reader, sms = open_images(layout, entry, reading), parse_sms(max_sms)
        memory = load_tiers(layout, entry, device, group)
        super().__init__(str(layout.path), entry, device, memory, max_sms=sms, reader=reader, group=group)
        self._layout, self._reading, self._staging_bytes = layout, reading, staging_bytes
        self._sharing = group  # of host memory
        self.preloaded = False
        """Whether all rows of the ssd tier lie in pinned host memory."""

    def preload(self) -> None:
        """Read all rows of the ssd tier into pinned host memory; gathers read them there from then on.

        Tables of this process share the memory, and those of a group. Cost: every page is read once, in order.
        """
        check_process(self._process)
        with self._lock:
            if self.closed:
                raise self._closed_error()
            if self.reader is None:
                return
            checks = PageChecks(self._layout) if self._reading.verify else None
            rows = preload_ssd_rows(self._layout, self._entry, self._reading, checks, self._sharing)
            self._table = self.table_over(
                pinned_address(rows, self.device.index, f"{self._what}: rows of the ssd tier")
            )
            self._memory.owners.append(rows)
            self._done.wait()  # the GPU may still copy from the buffers
            self.preloaded, self.reader, self._staged, self._requests = True, None, None, None

    def _make_staging(self) -> StagedRows | None:
        if self.reader is None:
            return None
        checks = PageChecks(self._layout) if self._reading.verify else None
        table = make_table(self._layout, self._entry, self.reader, checks)
        what = f"{self._what}: buffers for rows of the ssd tier"
        threads = parse_threads(self._reading.threads)
        return StagedRows(table, self.row_bytes, self.device, threads, self._staging_bytes, what, self._refuse(checks))

    def _refuse(self, checks: PageChecks | None) -> Callable[[int], None] | None:
        return None if checks is None else lambda bad_page: checks.refuse(bad_page, self.node_type)

    def _place(self, tier: str) -> str:
        if tier != "ssd" or self.closed:
            return super()._place(tier)
        return "pinned host memory (read from SSD)" if self.preloaded else describe(self.reader)
