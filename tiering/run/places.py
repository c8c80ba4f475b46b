"""Places of items in files: how items are dealt out over files, and the memory of a window of a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import ALIGNMENT, AnyArray, Bytes, aligned_bytes
from tiering.run.grid import Int64Array
from tiering.run.pieces import Columns


class Window(NamedTuple):
    """Consecutive whole blocks of a file."""

    file: int  # number of the file
    block: int  # number of the first block
    begin: int  # first byte of the file
    end: int


class WindowBuffer:
    """The memory of a window, zeros, and of what items at its edges have outside."""

    def __init__(self, window: Window, reach: int, allocate: Callable[[int], Bytes] = aligned_bytes) -> None:
        """`reach`: bytes that an item may have beyond an edge; `allocate` returns memory."""
        head = min(reach, window.begin)
        at = -head % ALIGNMENT  # so that the window itself is aligned, for direct writes
        self.window, self._low, self._at = window, window.begin - head, at
        self._memory = allocate(at + head + window.end - window.begin + reach)
        self.data = self.span(window.begin, window.end)
        if allocate is not aligned_bytes:  # which are zeros
            self.data[:] = 0

    def span(self, begin: int, end: int) -> Bytes:
        """Return the memory of bytes [begin, end) of the file."""
        return self._memory[self._at + begin - self._low : self._at + end - self._low]

    def items(self, begin: int, count: int, item_bytes: int, grain: int) -> Bytes:
        """Return `count` items, the first at byte `begin` of the file, each `grain` bytes after the one before."""
        at = self._at + begin - self._low
        items: Bytes = np.ndarray((count, item_bytes), np.uint8, self._memory.data, at, (grain, 1))
        return items


@dataclass(frozen=True)
class Lane:
    """Items [first, end) that are dealt out over files in turn, unit by unit: JSON types."""

    first: int
    end: int
    files: Sequence[int]  # numbers of the files; unit u goes to file u mod n, as its unit u div n
    stride: int  # bytes from item to item in a unit
    per_unit: int = 1
    unit_bytes: int = 0  # 0: `stride`
    first_unit: int = 0
    base: int = 0  # bytes of each file before its first unit, where items are not read in order

    @property
    def unit(self) -> int:
        """Bytes of a unit."""
        return self.unit_bytes or self.stride

    def items(self, window: Window) -> tuple[int, int]:
        """Return the items among which are all that reach into a window, half-open; none if it has no others."""
        if window.file not in self.files:
            return 0, 0
        count, turn = len(self.files), self.files.index(window.file)
        begin, end = max(0, window.begin - self.base), max(0, window.end - self.base)
        units = (begin // self.unit * count, (-(-end // self.unit) - 1) * count + 1)
        low, high = (self.first + (unit + turn - self.first_unit) * self.per_unit for unit in units)
        return max(low, self.first), min(high, self.end)

    def begins(self, items: AnyArray) -> tuple[Int64Array | int, Int64Array]:
        """Return the turn of the file of each item, and the byte in the file at which the item begins."""
        units = items.astype(np.int64) - self.first
        if self.per_unit == len(self.files) == 1:
            return 0, self.base + (units + self.first_unit) * self.unit
        units, slots = np.divmod(units, self.per_unit)
        units, turns = np.divmod(units + self.first_unit, len(self.files))
        return turns, self.base + units * self.unit + slots * self.stride

    def missing(self, files: Sequence[FileWriter]) -> int:
        """Return the first item that begins behind what a file has from its front."""
        own = ((files[number], turn) for turn, number in enumerate(self.files) if number >= 0)
        units = (file.end // self.unit * len(self.files) + turn for file, turn in own if file.end < file.nbytes)
        unit = min(units, default=self.first_unit + self.end)
        return min(self.end, max(self.first, self.first + (unit - self.first_unit) * self.per_unit))

    def copies(self, item_bytes: int, nbytes: int) -> int:
        """Return the memory of what `deal` copies of so many bytes of items."""
        gaps = self.per_unit * item_bytes < self.unit
        padded = nbytes * self.unit // (self.per_unit * item_bytes)
        return (padded + self.unit if gaps else 0) + (padded // len(self.files) if len(self.files) > 1 else 0)

    def deal(self, first: int, items: Bytes) -> Iterator[tuple[int, int, Bytes]]:
        """Yield the file, the first byte in it, and the units, of items from number `first` on, which begins a unit."""
        whole = len(items) // self.per_unit * self.per_unit  # the last unit may have fewer
        for begin, part in ((first, items[:whole]), (first + whole, items[whole:])):
            units, count = self._as_units(part), len(self.files)
            unit = self.first_unit + (begin - self.first) // self.per_unit
            for skipped in range(min(count, len(units))):
                at = unit + skipped
                yield self.files[at % count], at // count * self.unit, np.ascontiguousarray(units[skipped::count])

    def _as_units(self, items: Bytes) -> Bytes:
        """Return items, from a unit's start on, as units of `unit` bytes with zeros between them."""
        count, item_bytes = items.shape
        if item_bytes * self.per_unit == self.unit and count % self.per_unit == 0:
            return items.reshape(-1, self.unit)
        units = np.zeros((-(-count // self.per_unit), self.unit), np.uint8)
        slots = np.ndarray((len(units), self.per_unit, item_bytes), np.uint8, units, 0, (self.unit, self.stride, 1))
        for slot in range(self.per_unit):
            own = items[slot :: self.per_unit]
            slots[: len(own), slot] = own
        return units


@dataclass(frozen=True)
class Places:
    """The places of items of one length in files: multiples of `grain` bytes, file after file. JSON types."""

    item_bytes: int
    lanes: Sequence[Lane]
    sizes: Mapping[str, int]  # bytes of each file, by its number

    @classmethod
    def row_by_row(cls, rows: int, row_bytes: int, file: int = 0, base: int = 0) -> Places:
        """Return the places of rows that follow each other in one file, from byte `base` on."""
        return cls(row_bytes, (Lane(0, rows, (file,), row_bytes, base=base),), {str(file): base + rows * row_bytes})

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Places:
        """Read the form that `to_json` gives."""
        return cls(document["item_bytes"], [Lane(**lane) for lane in document["lanes"]], document["sizes"])

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        lanes = [{**vars(lane), "files": [*lane.files]} for lane in self.lanes]
        return {"item_bytes": self.item_bytes, "lanes": lanes, "sizes": dict(self.sizes)}

    @property
    def nbytes(self) -> int:
        """Bytes that the items take in all files, with the gaps of units."""
        return sum(-(-(lane.end - lane.first) // lane.per_unit) * lane.unit for lane in self.lanes)

    @cached_property
    def grain(self) -> int:
        """Bytes of a place: every item begins at a multiple."""
        return math.gcd(*(nbytes for lane in self.lanes for nbytes in (lane.stride, lane.unit, lane.base))) or 1

    @cached_property
    def _bases(self) -> dict[int, int]:
        """The first place of each file."""
        bases, base = {}, 0
        for file, nbytes in self.sizes.items():
            bases[int(file)], base = base, base - (-nbytes // self.grain)
        return bases

    @cached_property
    def _end(self) -> int:
        """The places of all files."""
        return sum(-(-nbytes // self.grain) for nbytes in self.sizes.values())

    @cached_property
    def _plain(self) -> bool:
        """Whether the place of an item is its number."""
        lane = self.lanes[0]
        moved = lane.first or lane.base or not lane.stride == lane.unit == self.grain
        return len(self.lanes) == len(lane.files) == 1 and not moved

    def of(self, items: AnyArray | range) -> AnyArray:
        """Return the places of items by their numbers, ranks of rows."""
        items = np.arange(items.start, items.stop) if isinstance(items, range) else items
        if self._plain:
            return items
        places = np.empty(items.size, np.int64)
        for lane in self.lanes:
            own = (items >= lane.first) & (items < lane.end) if len(self.lanes) > 1 else slice(None)
            turns, begins = lane.begins(items[own])
            places[own] = begins // self.grain + np.array([self._bases.get(file, 0) for file in lane.files])[turns]
        return places

    def items(self, window: Window) -> tuple[int, int]:
        """Return the items among which are all that reach into a window, half-open; none: (0, 0)."""
        spans = (lane.items(window) for lane in self.lanes)
        return next((span for span in spans if span[0] < span[1]), (0, 0))

    def span(self, window: Window) -> tuple[int, int]:
        """Return the first place from which an item reaches into a window, and the end of its places."""
        base, low = self._bases[window.file], max(0, (window.begin - self.item_bytes) // self.grain + 1)
        return base + low, base - (-window.end // self.grain)

    def put(self, items: Bytes, places: AnyArray, buffer: WindowBuffer, threads: int, first: int | None = None) -> None:
        """Copy to a window the items that reach into it; `places` as `of` gives them, or counted from `first`."""
        low, high = self.span(buffer.window)
        begin, first = (low - self._bases[buffer.window.file]) * self.grain, low if first is None else first
        native.scatter_rows(items, places, first, buffer.items(begin, high - low, self.item_bytes, self.grain), threads)

    def cut(
        self, items: Bytes, places: AnyArray, windows: Sequence[Window], out: Bytes, threads: int
    ) -> Iterator[Columns]:
        """Yield the items that reach into each of all windows, at an edge in both; `out` is memory for all items.

        Places are counted from the first of a window.
        """
        spans = [self.span(window) for window in windows]
        bounds = np.unique(np.array([(0, self._end), *spans], np.int64))
        order, counts = native.partition(places, bounds, threads)
        moved = out[: items.size].reshape(items.shape)
        if items.size:
            native.gather_rows(items, order.astype(np.int64), moved, threads)
        places, ends = places[order], np.concatenate([[0], np.cumsum(counts)])
        for low, high in spans:
            begin, end = ends[np.searchsorted(bounds, [low, high])]
            yield {"place": (places[begin:end] - low).astype(f"i{id_bytes(high - low)}"), "row": moved[begin:end]}
