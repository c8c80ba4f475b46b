"""Rows gathered by a GPU into its memory, whatever they come from, and the rows of a layout's table."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.errors import CapabilityError, InputError
from tiering.formats.layout import TIERS, Layout
from tiering.loader.gpu.device import Device, PinnedBuffer, auto_sms, check_process, parse_sms, pinned, pinned_address
from tiering.loader.gpu.drives import DriveRows, open_drives
from tiering.loader.gpu.memory import MemoryTiers, load_codec, load_tiers
from tiering.loader.options import ReadOptions
from tiering.loader.process import warn_once
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.stats import Counters
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.gather import FeatureRows, as_ids, check_out
from tiering.loader.tables.ssd import PageChecks, describe, make_table, open_images, preload_ssd_rows, warn_of_fallback
from tiering.readahead.config import SsdTables
from tiering.text.units import parse_threads

if TYPE_CHECKING:
    import torch

STAGING_BYTES = 32 * 1024 * 1024
"""Bytes of one of the two buffers of `StagedRows`: reads into one fill the queues of the SSDs many times over."""


class StagedRows:
    """A copier of rows of the ssd tier of `table` to a result on the GPU, one gather at a time.

    The host reads into one of two pinned buffers while the GPU copies the other; `refuse` takes a turn's damaged page.
    """

    def __init__(
        self,
        table: native.TieredTable,
        row_bytes: int,
        device: Device,
        threads: int,
        nbytes: int,
        what: str,
        refuse: Callable[[int], None] = lambda page: None,
        codec: cuda.CodecParts | None = None,
        out_bytes: int = 0,
    ) -> None:
        self._table, self._row_bytes, self._threads, self._refuse = table, row_bytes, threads, refuse
        self._out_bytes = out_bytes or row_bytes
        self._room = max(1, nbytes // row_bytes)
        self._turns, ends = [], [0, 0, self._room, self._room]
        for _ in range(2):
            array, address = pinned(device.index, self._room * row_bytes, np.uint8, what)
            source = cuda.RowTable(device.index, row_bytes, ends, 0, [], address, codec=codec)
            self._turns.append((array, source, cuda.Event(device.index)))
        self._listed, self._positions = (PinnedBuffer(device.index, t, what) for t in (np.int64, np.uint32))
        self._num_listed, self._num_address = pinned(device.index, 1, np.uint32, what)

    def make_lists(self, count: int) -> tuple[int, int, int]:
        """Return the addresses at which the GPU lists up to `count` rows: rows, their positions, and their number."""
        self._listed.reserve(count)
        self._positions.reserve(count)
        return self._listed.address, self._positions.address, self._num_address

    def copy_listed(self, out: int, stream: int, max_sms: int) -> list[native.GatherStats]:
        """Copy the rows that the GPU has listed; see `copy`."""
        listed = self._listed.array[: int(self._num_listed[0])]
        return self.copy(listed, self._positions.address, out, stream, max_sms)

    def copy(
        self, wanted: npt.NDArray[np.int64], positions: int, out: int, stream: int, max_sms: int
    ) -> list[native.GatherStats]:
        """Read rows, by number within the ssd tier, and put their copies on `stream`; returns what was read, by turn.

        `positions`: address of the row of the result `out` for each of them, uint32; 0: in order.
        """
        stats = []
        for start in range(0, len(wanted), self._room):
            ids = np.ascontiguousarray(wanted[start : start + self._room])
            self._turns.reverse()
            array, source, copied = self._turns[0]
            copied.wait()  # an event that was never recorded is over
            rows = array[: ids.size * self._row_bytes].reshape(ids.size, -1)
            stats.append(self._table.gather(ids, rows, self._threads))
            warn_of_fallback(stats[-1])
            self._refuse(stats[-1].bad_page)
            into, at = (out, positions + 4 * start) if positions else (out + start * self._out_bytes, 0)
            source.gather(0, ids.size, into, stream, places=at, max_sms=max_sms)
            copied.record(stream)
        return stats


@dataclass(frozen=True)
class SlotRows:
    """Rows of the ssd tier that lie in buffer slots. Tensors are on the GPU."""

    table: cuda.RowTable  # all rows; see GpuRows.table_over
    slots: torch.Tensor  # slot of each id's row, 4 bytes, or NO_SLOT; ignored for ids of memory tiers
    ids: torch.Tensor | None = None  # ids of a part of a batch; None: those of the batch
    positions: torch.Tensor | None = None  # row of the result for each id of a part of a batch; None: all, in order


class GpuRows(FeatureRows):
    """Rows over four tiers, gathered by a GPU: three lie in `memory`, the ssd tier's come by `_make_staging`."""

    def __init__(
        self, where: str, memory: MemoryTiers, max_sms: int | None, reader: native.SsdReader | None = None,
        delivery: Delivery | None = None,
    ) -> None:  # fmt: skip
        device, entry = memory.device, memory.entry
        super().__init__(where, entry, reader, delivery)
        self._what, self._process, self.device, self._memory = memory.name, os.getpid(), device, memory
        self._staged: StagedRows | DriveRows | None = None
        self._group = memory.group
        # Whether some rows come over the link to host memory.
        self.reads_host = bool(memory.cpu or entry.rows("ssd") or "host memory" in memory.peer_places)
        self.max_sms = auto_sms(device, self.reads_host) if max_sms is None else max_sms
        self._ends = [entry.ranges[tier][1] for tier in TIERS]
        self._table = self.table_over(0)
        self._requester = cuda.RequestGatherer(device.index)
        self._first_bad, self._first_bad_address = pinned(device.index, 1, np.uint64, self._what)
        self._prepared = cuda.Event(device.index)
        self._counted = [0] * len(TIERS)
        self._uncounted = 0
        self._done = cuda.Event(device.index)
        self._lock = threading.Lock()

    @property
    def counters(self) -> Counters:
        """Rows that each tier served since open or `reset_counters`; waits for gathers that are under way."""
        check_process(self._process)
        with self._lock:
            self._count()
        return self._counters

    def gather(
        self, ids: Any, out: torch.Tensor | None = None, *, checked: bool = True, decoded: bool = True
    ) -> torch.Tensor:
        """Return rows of `ids`, in request order, on this table's GPU and the caller's stream.

        As `TieredFeatures.gather`, with its errors, and errors of a forked child, and of a process that shares the peer
        tier and has ended; ids may lie on the GPU, `out` does, `decoded` is ``True``. Without `checked` nobody waits
        for a check: `out` keeps its rows for ids out of range, and nothing outside is read or written.

        The host waits for the ids alone: where they are checked, and where it must read rows of an ssd tier that is not
        preloaded. Several threads may call; they take turns.
        """
        check_process(self._process)
        import torch

        if not decoded:
            raise CapabilityError(f"{self._what}: decoded=False: stored rows can be delivered only to device='cpu'")
        dtype: torch.dtype = getattr(torch, self.dtype)
        wanted = self.ids_on_device(ids)
        if out is None:
            try:
                out = self.device.empty((len(wanted), self.dim), dtype)
            except RuntimeError as error:  # torch's word for it
                raise self._no_room(len(wanted)) from error
        else:
            check_out(out, (len(wanted), self.dim), dtype, self.device.torch_device)
        self.gather_into(wanted.data_ptr(), len(wanted), out.data_ptr(), self.device.current(), checked=checked)
        return out

    def table_over(self, staged: int) -> cuda.RowTable:
        """Return a table of all rows; `staged`: address of the ssd tier, by slot or by rank (0: not in memory)."""
        memory = self._memory
        return cuda.RowTable(
            self.device.index, self.row_bytes, self._ends, memory.gpu, memory.peers, memory.cpu, staged, memory.codec
        )

    def gather_into(
        self, ids: int, count: int, out: int, stream: int, *, checked: bool = False, ahead: SlotRows | None = None
    ) -> None:
        """Gather by the addresses of `count` ranks and of their rows, on any stream; it waits for none read `ahead`."""
        check_process(self._process)
        with self._lock:
            if self.closed:
                raise self._closed_error()
            if self._group is not None:
                self._group.check()
            with cuda.device_errors(self._what):
                cuda.wait_event(stream, self._done)  # what the gather before used, on whatever stream, is used again
                try:
                    self._gather(ids, count, out, stream, checked, ahead)
                finally:  # also what a gather that fails has put there
                    self._done.record(stream)

    def gather_part(self, part: SlotRows, out: int, stream: int) -> None:
        """Gather another part of a batch into its result `out`, after `gather_into` with the first, which counts."""
        assert part.ids is not None and part.positions is not None
        check_process(self._process)
        with self._lock, cuda.device_errors(self._what):
            cuda.wait_event(stream, self._done)
            part.table.gather(
                part.ids.data_ptr(), len(part.ids), out, stream,
                places=part.positions.data_ptr(), slots=part.slots.data_ptr(), max_sms=self.max_sms,
            )  # fmt: skip
            self._done.record(stream)

    def close(self) -> None:
        """Release memory and descriptors, after gathers that are under way.

        Processes that share the peer tier all close: each keeps its share until the others have closed or ended.
        """
        check_process(self._process)
        with self._lock:
            if self.closed:
                return
            self._count()
            self._done.wait()
            super().close()
            self._staged = None
            self._requester = cuda.RequestGatherer(self.device.index)
            self._table = cuda.RowTable(self.device.index, self.row_bytes, [0, 0, 0, 0], 0, [], 0)
            if self._group is not None and self._memory.topic:
                own = [memory for memory in self._memory.owners if isinstance(memory, cuda.DeviceMemory)]
                self._memory.owners = own  # closes what was opened of the others, before they are told
                if not self._group.leave(self._memory.topic):
                    seconds = f"{self._group.timeout:g} s"
                    warn_once(f"{self._where}: peers did not close within {seconds}; GPU memory stays allocated")
                    _kept.extend(own)
            self._memory.owners = []

    def _gather(self, ids: int, count: int, out: int, stream: int, checked: bool, ahead: SlotRows | None) -> None:
        table, slots = (self._table, 0) if ahead is None else (ahead.table, ahead.slots.data_ptr())
        staged = None
        if ahead is None:  # made when first needed
            staged = self._staged = self._staged or self._make_staging()
        lists = (0, 0, 0)
        if staged is not None:
            self._done.wait()  # the GPU may still read the lists of the gather before
            lists = staged.make_lists(count)
        by_address = self.reads_host  # host memory is read page after page; of other memory any order is as good
        first_bad = self._first_bad_address if checked else 0
        if checked:
            self._first_bad[0] = count
        cuda.with_room(lambda: self._requester.prepare(table, ids, count, stream, by_address, slots, first_bad, *lists))
        if checked or staged is not None:
            self._prepared.record(stream)
            self._prepared.wait()
        if checked:
            self._check_ids(ids, count, stream)
        self._requester.gather(table, out, stream, self.max_sms)
        self._uncounted += 1
        if staged is not None:
            for stats in staged.copy_listed(out, stream, self.max_sms):
                self._counters.add(stats, rows=False)

    def _make_staging(self) -> StagedRows | DriveRows | None:
        """Return the buffers for rows of the ssd tier; ``None`` if all rows lie in memory."""
        return None

    def _check_ids(self, ids: int, count: int, stream: int) -> None:
        place = int(self._first_bad[0])
        if place == count:
            return
        wrong, address = pinned(self.device.index, 1, np.int64, self._where)
        cuda.copy(self.device.index, address, ids + 8 * place, 8, stream)
        self._done.record(stream)
        self._done.wait()
        raise InputError(f"{self._what}: ids[{place}] is {wrong[0]}; expected ranks 0 .. {self._entry.num_nodes - 1}")

    def _count(self) -> None:
        """Wait for the GPU, and add what it has counted since the last time to the counters."""
        if not self._uncounted:
            return
        self._done.wait()
        totals = self._requester.totals()
        rows = [now - before for now, before in zip(totals, self._counted, strict=True)]
        self._counters.add_tally(rows, self.row_bytes, self._uncounted)
        self._counted, self._uncounted = totals, 0

    def ids_on_device(self, ids: Any) -> torch.Tensor:
        """Return ids as int64 on this table's GPU; `CapabilityError` in a forked child."""
        check_process(self._process)
        import torch

        if self.device.has(ids) and ids.dtype in (torch.int32, torch.int64) and ids.dim() == 1:
            wide: torch.Tensor = ids.to(torch.int64).contiguous()
            if wide is not ids:
                self.device.keep([wide])
            return wide
        if hasattr(ids, "device") and getattr(ids.device, "type", "cpu") != "cpu" and not self.device.has(ids):
            raise InputError(f"ids: expected them on {self.device.name} or in host memory, found {ids.device}")
        return self.device.upload(as_ids(ids))

    def _place(self, tier: str) -> str:
        if self.closed:
            return "closed"
        if tier == "peer":
            return ", ".join(self._memory.peer_places)
        return self.device.name if tier == "gpu" else "pinned host memory"

    def __del__(self) -> None:
        if (done := getattr(self, "_done", None)) and self._process == os.getpid():
            done.wait()  # memory that a kernel reads is not unpinned under it


_kept: list[cuda.DeviceMemory] = []  # shares that a peer which did not answer may still read


class GpuFeatures(GpuRows):
    """Feature rows over the four tiers of a layout, gathered by a GPU; made by `TieredLayout.features`.

    Rows of the ssd tier come through pinned buffers, unless pinned memory holds them already: all of them (`preload`),
    or a batch's rows in buffer slots. `group`: the processes that share the peer tier.
    """

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        device: Device,
        reading: ReadOptions,
        *,
        max_sms: int | str = "auto",
        group: PeerGroup | None = None,
    ) -> None:
        entry = layout.type_layout(node_type)
        sms, delivery = parse_sms(max_sms), Delivery.of(layout, entry, reading.dtype)
        if reading.verify:
            layout.verify_tiers(node_type)
        bam = reading.engine == "bam" and bool(entry.rows("ssd"))
        if bam:
            delivery.refuse_decoding(layout, entry)
        self.drives = open_drives(layout, device, reading) if bam else None
        reader = None if bam else open_images(layout, entry, reading)
        memory = load_tiers(layout, entry, device, reading, group)
        load_codec(memory, delivery)
        super().__init__(str(layout.path), memory, sms, reader, delivery)
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
            rows = preload_ssd_rows(self._layout, self._entry, self.reader, self._reading, self._checks, self._sharing)
            address = pinned_address(rows, self.device.index, f"{self._what}: rows of the ssd tier")
            self._table = self.table_over(address)
            self._memory.owners.append(rows)
            self._done.wait()  # the GPU may still copy from the buffers
            self.preloaded, self.reader, self._staged = True, None, None

    def _make_staging(self) -> StagedRows | DriveRows | None:
        if self.drives is not None:
            shape = SsdTables.of(self._layout, [self.node_type]).rows[0]
            return DriveRows(self.drives, shape, self._layout.unit_bytes)
        if self.reader is None:
            return None
        checks, node_type = self._checks, self.node_type
        table = make_table(self._layout, self._entry, self.reader, checks)
        what = f"{self._what}: buffers for rows of the ssd tier"
        return StagedRows(
            table, self.row_bytes, self.device, parse_threads(self._reading.threads), STAGING_BYTES, what,
            lambda page: None if checks is None else checks.refuse(page, node_type), self._memory.codec, self.out_bytes,
        )  # fmt: skip

    def _place(self, tier: str) -> str:
        if tier != "ssd" or self.closed:
            return super()._place(tier)
        if self.drives is not None:
            return "drives (read by the GPU)"
        return "pinned host memory (read from SSD)" if self.preloaded else describe(self.reader)

    @property
    def engine(self) -> str | None:
        """Engine that reads the ssd tier; ``None`` where that tier is empty."""
        return "bam" if self.drives is not None else super().engine

    def close(self) -> None:
        """Release memory, descriptors and drives, after gathers that are under way."""
        super().close()
        self.drives = None
