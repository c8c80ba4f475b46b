"""Drives that a GPU reads by itself: opened through BaM's module, and compared with the layout before they are used."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.storage import ALIGNMENT
from tiering.errors import CapabilityError, FormatError, InputError, RefusedError
from tiering.formats.layout import Layout, image_bytes
from tiering.loader.gpu.device import Device, PinnedBuffer, pinned
from tiering.loader.options import ReadOptions
from tiering.loader.process import ForkLock
from tiering.loader.tables.ssd import PageChecks
from tiering.readahead.disk_speed import DiskSpeed

PATIENCE = 30.0  # seconds without an answer, after which a drive is given up
SAMPLED = 256  # pages of each drive that are compared when it is opened
_PAIRS, _PAIR_READS = 4, 255  # pairs of queues of each drive for a list, and reads that each keeps in flight, at most
_TOGETHER = 4096  # pages that are compared, or measured, at a time
_MEASURED_SECONDS = 0.1
_SLOTS_SHARE = 1 / 4  # of a GPU's free memory for buffer slots
Shape = tuple[int, int, int, int, int]  # of a table, as of `SsdTables.rows`


class GpuDrives:
    """The drives of a layout's stripe files, which a GPU reads; one process has them for itself.

    Before anything else the kernel reads `SAMPLED` pages of each drive, with ``verify`` all of them. These are compared
    with the layout's checksums: `FormatError` says which drive holds something else.
    """

    def __init__(self, layout: Layout, device: Device, reading: ReadOptions) -> None:
        paths, pairs = reading.drives, _PAIRS if reading.depth == "auto" else -(-int(reading.depth) // _PAIR_READS)
        if len(paths) != layout.num_images:
            raise InputError(
                f"drives: expected {layout.num_images}, one per stripe file of {layout.path}, in their order, found "
                f"{len(paths)}"
            )
        self._layout, self.device, self._paths = layout, device, tuple(paths)
        self.unit_bytes = layout.unit_bytes
        entries = [layout.type_layout(name).ssd_rows for name in layout.tables]
        units, images = max(rows.first_unit + rows.num_units for rows in entries), layout.num_images
        self._pages = units * (layout.unit_bytes // layout.page_bytes)
        nbytes = [image_bytes(units, image, images, layout.unit_bytes) for image in range(images)]
        with self._errors():
            self.drives = cuda.Drives(device.index, list(paths), layout.page_bytes, nbytes, PATIENCE, pairs)
        self._compare(PageChecks(layout).arrays, reading.verify)

    def read(self, shape: Shape, unit_bytes: int, lists: tuple[int, int, int], out: int, stream: int) -> None:
        """Read rows, listed by `DriveRows.make_lists`, after what is on a stream, and wait for them."""
        with self._errors():
            self.drives.read(*lists, out, stream, *shape[1:], unit_bytes)

    @cached_property
    def speed(self) -> DiskSpeed:
        """Random pages per second of all drives; a read is a page, and many cost no less than one by one."""
        rows, memory = self._page_rows()
        rng, reads, start = np.random.default_rng(1), 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < _MEASURED_SECONDS or not reads:
            rows.read(np.sort(rng.integers(0, self._pages, _TOGETHER)), np.arange(_TOGETHER), memory.address)
            reads += _TOGETHER
        return DiskSpeed(reads / elapsed, reads / elapsed * max(ALIGNMENT, self._layout.page_bytes))

    def make_slots(self, name: str, nbytes: int) -> cuda.DeviceMemory:
        """Return memory of the GPU for buffer slots."""
        with cuda.device_errors(name):
            return cuda.allocate(self.device.index, nbytes)

    def fill(self, buffer: native.RowBuffer, tables: Sequence[tuple[Shape, int, int]]) -> SlotFiller:
        """Begin to fill an epoch's slots; `tables`: shape of each, number and address of its first slot."""
        return SlotFiller(self, buffer, tables)

    @property
    def slots_room(self) -> int:
        """Bytes of the GPU's memory that buffer slots may take."""
        return int(_SLOTS_SHARE * cuda.free_bytes(self.device.index))

    def _page_rows(self) -> tuple[DriveRows, cuda.DeviceMemory]:
        page = self._layout.page_bytes
        memory = cuda.allocate(self.device.index, _TOGETHER * page)
        return DriveRows(self, (self._pages, page, 0, page, 1), page), memory

    def _compare(self, sums: Sequence[npt.NDArray[np.uint32]], every: bool) -> None:
        page_bytes, images, index = self._layout.page_bytes, self._layout.num_images, self.device.index
        counts = [own.size if every else min(own.size, SAMPLED) for own in sums]
        chosen = [np.linspace(0, own.size - 1, n).astype(np.int64) for own, n in zip(sums, counts, strict=True)]
        pages = np.sort(np.concatenate([place * images + image for image, place in enumerate(chosen)]))
        (rows, memory), stream = self._page_rows(), cuda.Stream(index)
        found, address = pinned(index, _TOGETHER * page_bytes, np.uint8, "pages of drives")
        for begin in range(0, pages.size, _TOGETHER):
            part = pages[begin : begin + _TOGETHER]
            rows.read(part, np.arange(part.size), memory.address)
            cuda.copy(index, address, memory.address, part.size * page_bytes, stream.handle)
            stream.synchronize()
            hashes = native.page_hashes(found[: part.size * page_bytes], page_bytes)
            places, owners = np.divmod(part, images)
            expected = np.empty(part.size, np.uint32)
            for image, own in enumerate(sums):
                expected[owners == image] = own[places[owners == image]]
            if (wrong := np.flatnonzero(hashes != expected)).size:
                raise self._wrong(int(part[wrong[0]]), int(hashes[wrong[0]]), sums)

    def _wrong(self, page: int, found: int, sums: Sequence[npt.NDArray[np.uint32]]) -> FormatError:
        place, image = divmod(page, self._layout.num_images)
        others = [k for k, own in enumerate(sums) if k != image and place < own.size and own[place] == found]
        what = (
            f"it contains stripe file {others[0]}; name the drives in the order of the stripe files"
            if others
            else f"its page {place} (from byte {place * self._layout.page_bytes} on) does not match the layout's "
            "checksum: it is another drive, or the drive of another layout; copy the stripe file to it again"
        )
        return FormatError(f"{self._paths[image]}: expected stripe file {image} of {self._layout.path}: {what}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what the core refuses into `CapabilityError`, and errors of CUDA as everywhere."""
        what = f"{self._layout.path}: engine='bam'"
        try:
            with cuda.device_errors(what):
                yield
        except (ValueError, RefusedError) as error:
            raise CapabilityError(f"{what}: {error}") from None


class DriveRows:
    """A reader of a table's rows from drives to their places in memory of the GPU, where its lists lie, too."""

    def __init__(self, drives: GpuDrives, shape: Shape, unit_bytes: int) -> None:
        self._drives, self._shape, self._index = drives, (shape, unit_bytes), drives.device.index
        self._stream, what = cuda.Stream(self._index), "lists of rows on drives"
        self._written = [PinnedBuffer(self._index, dtype, what) for dtype in (np.int64, np.uint32, np.uint32)]
        self._lists: cuda.DeviceMemory | None = None
        self._room = 0

    def make_lists(self, count: int) -> tuple[int, int, int]:
        """Return the addresses at which the GPU lists up to `count` rows: rows, their positions, and their number."""
        if self._lists is None or self._room < count:
            self._room, self._lists = max(count, 1024) * 5 // 4, None
            self._lists = cuda.allocate(self._index, 12 * self._room + 16)
        begin = self._lists.address
        return begin, begin + 8 * self._room, begin + 12 * self._room

    def copy_listed(self, out: int, stream: int, max_sms: int) -> list[native.GatherStats]:
        """Read the rows that the GPU has listed, and wait for them."""
        self._drives.read(*self._shape, self.make_lists(0), out, stream)
        return []

    def read(self, rows: npt.NDArray[np.int64], targets: npt.NDArray[Any], out: int) -> None:
        """Read rows, ascending, to those numbers of `out`, and wait for them."""
        lists, values = self.make_lists(rows.size), (rows, targets, np.array([rows.size]))
        for buffer, given, address in zip(self._written, values, lists, strict=True):
            buffer.reserve(given.size)
            buffer.array[: given.size] = given
            nbytes = given.size * buffer.array.itemsize
            cuda.copy(self._index, address, buffer.address, nbytes, self._stream.handle)
        self._drives.read(*self._shape, lists, out, self._stream.handle)


class SlotFiller(threading.Thread):
    """A thread that reads rows from drives into buffer slots in memory of the GPU, as an epoch's plan requests them."""

    def __init__(self, drives: GpuDrives, buffer: native.RowBuffer, tables: Sequence[tuple[Shape, int, int]]) -> None:
        super().__init__(name="tiering-drives", daemon=True)
        self._device, self._buffer = drives.device, buffer
        self._tables = [(DriveRows(drives, shape, drives.unit_bytes), first, begin) for shape, first, begin in tables]
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Read until the epoch is over; an error ends it."""
        self._device.begin_thread()
        try:
            while len((asked := self._buffer.fill())[1]):
                table, rows, slots = asked
                reader, first, begin = self._tables[table]
                reader.read(rows, slots - np.uint32(first), begin)
        except Exception as error:
            self.error = error
            self._buffer.stop()


def open_drives(layout: Layout, device: Device, reading: ReadOptions) -> GpuDrives:
    """Return the drives of a layout; tables and loaders of this process share them."""
    key = (str(layout.path.absolute()), layout.digest, device.index, reading.drives, reading.depth)
    with _lock:
        drives = _in_use.get(key)
        if drives is None:
            _in_use[key] = drives = GpuDrives(layout, device, reading)
    return drives


_in_use: WeakValueDictionary[Any, GpuDrives] = WeakValueDictionary()
_lock = ForkLock()


@atexit.register
def _stop_all() -> None:
    """End reads that are under way: the interpreter's end waits for no drive."""
    for drives in list(_in_use.values()):
        drives.drives.stop()
