"""NVMe drives for kernels in the interpreter: they look whenever a thread polls, and complete in any order."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ptx_machine import Lane, Launch, MachineError, Memory, Warp
from ptx_program import Kernel

Bytes = npt.NDArray[np.uint8]
FLIP = 0x5A5A_0000_0000  # of an address, as the drives know it
BLOCK = 512
NONE, COMPLETED = 0xFFFFFFFF, 1 << 16
NO_FAILURE = 2**64 - 1
QUEUE, CHUNK = struct.Struct("<8Q3I4x"), 1 << 16


@dataclass(frozen=True)
class Shape:
    """Drives, pairs of queues of each, entries of a queue, bytes of a page; `rounds`: lists that are read at a time."""

    drives: int = 1
    pairs: int = 1
    depth: int = 4
    page: int = 512
    rounds: int = 1

    @property
    def queues(self) -> int:
        """All pairs of queues."""
        return self.drives * self.pairs * self.rounds


class Table(NamedTuple):
    """Rows of `row_bytes` in units of so many pages, from a unit on."""

    row_bytes: int
    shape: Shape
    pages: int = 1
    first_unit: int = 0

    @property
    def stride(self) -> int:
        """Bytes from row to row."""
        return -(-self.row_bytes // 4) * 4

    @property
    def unit(self) -> int:
        """Bytes of a unit."""
        return self.pages * self.shape.page

    @property
    def geometry(self) -> tuple[int, ...]:
        """The fields of ``SsdGeometry``."""
        return self.first_unit, self.stride, self.unit // self.stride, self.unit, self.shape.page, self.shape.drives

    def place(self, row: int) -> tuple[int, int]:
        """Drive and first byte of a row."""
        unit, within = divmod(row, self.unit // self.stride)
        place, drive = divmod(self.first_unit + unit, self.shape.drives)
        return drive, place * self.unit + within * self.stride

    def pages_of(self, row: int) -> list[tuple[int, int]]:
        """Drive and number of each page that a row lies in."""
        drive, begin = self.place(row)
        last = (begin + self.row_bytes - 1) // self.shape.page
        return [(drive, page) for page in range(begin // self.shape.page, last + 1)]

    def row(self, row: int) -> bytes:
        """The bytes of a row."""
        page, (_, begin) = self.shape.page, self.place(row)
        pages = self.pages_of(row)
        data = b"".join(page_content(drive, number, page) for drive, number in pages)
        return data[begin % page :][: self.row_bytes]

    def mark(self, row: int, wanted: dict[tuple[int, int], bytearray]) -> None:
        """Mark the bytes of a row in those of its pages."""
        page, begin = self.shape.page, self.place(row)[1]
        for drive, number in self.pages_of(row):
            first, last = max(begin - number * page, 0), min(begin + self.row_bytes - number * page, page)
            wanted.setdefault((drive, number), bytearray(page))[first:last] = b"\1" * (last - first)

    @property
    def per_row(self) -> int:
        """Pieces of a row."""
        page = self.shape.page
        return 1 if self.pages == 1 or page % self.stride == 0 else (self.row_bytes + page - 2) // page + 1

    def pieces(self) -> bytes:
        """``RowPieces``."""
        numbers = b"".join(_divisor(n) for n in (self.shape.page, self.shape.drives, self.unit // self.stride))
        return struct.pack("<7q", *self.geometry, self.row_bytes) + numbers + struct.pack("<I4x", self.per_row)


def _divisor(number: int) -> bytes:
    bits = (number - 1).bit_length()
    return struct.pack("<i4xQ", bits, (1 << 63 + bits) // number + 1)


@lru_cache(1024)
def page_content(drive: int, page: int, nbytes: int) -> bytes:
    """What a page of a drive holds."""
    return np.random.default_rng([drive, page]).bytes(nbytes)


@dataclass
class Served:
    """A pair of queues, as its drive sees it."""

    head: int = 0
    written: int = 0
    taken: int = 0
    coming: list[tuple[int, ...]] = field(default_factory=list)
    landed: dict[int, int] = field(default_factory=dict)
    """Number of the completion of each place."""
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Drive and page that each place has."""


class DriveMemory(Memory):
    """Memory that drives share, and the drives.

    A landing place may be read by threads alone that know of its completion: by an acquiring load, or from a thread of
    their warp that they have met since. With `flushed` its page arrives when the host flushes. `eager` drives complete
    all that they were asked for at once; `silent` ones nothing; `slow` ones one command in
    so many looks at completions; page `bad` (drive, number) is refused.
    """

    def __init__(self, shape: Shape, seed: int, *, flushed: bool = False, eager: bool = False, begin: int = 0) -> None:
        super().__init__(self._find, seed, most_turns=100_000)
        self.shape, self.flushed, self.eager, self.begin = shape, flushed, eager, begin
        self.silent = self.repeats = False
        self.slow = self._looks = 0
        self.loads = Counter[int]()
        """Loads from pages, by their bytes."""
        self.bad: tuple[int, int] | None = None
        self.commanded: list[tuple[int, int]] = []
        """Drive and page of each command."""
        self.wanted: dict[tuple[int, int], bytearray] = {}
        """Of each page: which of its bytes are of rows that are asked for."""
        self._arrays: list[Bytes] = []
        queues, depth, page = shape.queues, shape.depth, shape.page
        self.commands, self.completions = self.make(queues * depth * 64), self.make(queues * depth * 16)
        self.bells, self.places = self.make(queues * 8), self.make(queues * depth * page)
        self.stop, self.rest = self.make(4), self.make(8)
        self.failures = [self.make(8, 0xFF) for _ in range(shape.rounds)]
        self.cursors = [self.make(4 * shape.drives) for _ in range(shape.rounds)]
        self.reads = self.put(np.full((queues, depth, 2), NONE, np.uint32))
        self.free_places = self.put(np.tile(np.arange(depth, dtype=np.uint16), (queues, 1)))
        chunks = -(-depth * page // CHUNK)
        begins = self.places.ctypes.data + np.arange(queues)[:, None] * depth * page + np.arange(chunks) * CHUNK
        self.chunks = self.put((begins ^ FLIP).astype(np.uint64))
        parts = [
            (self.commands, depth * 64), (self.completions, depth * 16), (self.bells, 8), (self.bells[4:], 8),
            (self.places, depth * page), (self.chunks, chunks * 8), (self.free_places, depth * 2),
            (self.reads, depth * 8),
        ]  # fmt: skip
        records = [
            QUEUE.pack(*(array.ctypes.data + q * step for array, step in parts), begin, begin, begin)
            for q in range(queues)
        ]
        self.queues = self.put(np.frombuffer(b"".join(records), np.uint8))
        self._served = [Served(begin % depth, begin, begin) for _ in range(queues)]
        self._known: dict[tuple[object, int], set[tuple[int, int]]] = {}  # queue and completion that a lane knows
        self._unseen: list[tuple[int, bytes]] = []

    def make(self, nbytes: int, fill: int = 0) -> Bytes:
        """Memory that kernels may use."""
        room = np.full(nbytes + 64, fill, np.uint8)
        array = room[-room.ctypes.data % 64 :][:nbytes]
        self._arrays.append(array)
        return array

    def put(self, array: npt.NDArray[Any]) -> Bytes:
        """A copy of an array that kernels may use."""
        there = self.make(array.nbytes)
        there[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return there

    def drive_set(self, round_: int) -> bytes:
        """``DriveSet`` of a round."""
        shape, first = self.shape, round_ * self.shape.drives * self.shape.pairs
        rest = self.rest.ctypes.data if self.flushed else 0
        return struct.pack(
            "<Q4I5Q", self.queues.ctypes.data + first * QUEUE.size, shape.drives, shape.pairs, shape.depth,
            BLOCK.bit_length() - 1, 40_000, self.stop.ctypes.data, self.failures[round_].ctypes.data,
            self.cursors[round_].ctypes.data, rest,
        )  # fmt: skip

    def failure(self, round_: int = 0) -> int:
        """The failure word."""
        return int(self.failures[round_].view(np.uint64)[0])

    def flush_writes(self) -> None:
        """What the host does between two launches: pages are seen."""
        for address, data in self._unseen:
            self.view(address, len(data))[:] = data
        self._unseen = []

    def _find(self, address: int) -> tuple[int, int] | None:
        found = (a for a in self._arrays if 0 <= address - a.ctypes.data < a.nbytes)
        return next(((a.ctypes.data, a.nbytes) for a in found), None)

    def acquire(self, lane: Lane, address: int, size: int) -> int:
        """Serve, then let a thread look."""
        at = address - self.completions.ctypes.data
        if not 0 <= at < self.completions.nbytes:
            return super().acquire(lane, address, size)
        queue, entry = divmod(at // 16, self.shape.depth)
        self._serve(queue)
        word, served = super().acquire(lane, address, size), self._served[queue]
        newest = served.written - 1 - (served.written - 1 - entry) % self.shape.depth
        if newest >= self.begin and word >> 16 & 1 == (newest // self.shape.depth + 1) & 1:
            self._known.setdefault((lane.warp.key, lane.number), set()).add((queue, newest))
        return word

    def publish(self, lane: Lane, address: int, size: int, value: int) -> None:
        """Ring a doorbell, which says something new."""
        if self.load(lane, address, size, True) == value:
            raise MachineError("a doorbell rings for nothing")
        super().publish(lane, address, size, value)

    def time(self) -> int:
        """Nanoseconds: 100 for each look at a completion."""
        return 100 * self._looks

    def meet(self, warp: Warp) -> None:
        """What one knows, all know."""
        super().meet(warp)
        known = [self._known.setdefault((warp.key, lane.number), set()) for lane in warp.lanes]
        everything = set().union(*known)
        for one in known:
            one |= everything

    def _bytes(self, lane: Lane, address: int, size: int, strong: bool) -> bytes:
        at = address - self.places.ctypes.data
        if 0 <= at < self.places.nbytes:
            queue, place = divmod(at // self.shape.page, self.shape.depth)
            landed = queue, self._served[queue].landed.get(place)
            if any(begin <= address < begin + len(data) for begin, data in self._unseen):
                raise MachineError("a page is read before the host has flushed it")
            if not self.flushed and landed not in self._known.get((lane.warp.key, lane.number), ()):
                raise MachineError("a page is read without order behind its completion")
            if not strong:
                raise MachineError("a page is read through the cache of a multiprocessor, which may have an older one")
            begin = at % self.shape.page
            if self.wanted[self._served[queue].pages[place]].find(0, begin, begin + size) >= 0:
                raise MachineError("bytes of a page are read that are of no row")
            self.loads[size] += 1
        at = address - self.completions.ctypes.data
        if 0 <= at < self.completions.nbytes and not strong:
            self._serve(at // 16 // self.shape.depth)
        return super()._bytes(lane, address, size, strong)

    def _serve(self, queue: int) -> None:
        served, depth = self._served[queue], self.shape.depth
        tail, rung = (int(word) for word in self.bells[8 * queue :][:8].view(np.uint32))
        if max(tail, rung) >= depth:
            raise MachineError("a doorbell beyond the queue")
        while served.head != tail:
            at = 64 * (queue * depth + served.head)
            served.coming.append(struct.unpack("<16I", self.commands[at : at + 64].tobytes()))
            served.head = (served.head + 1) % depth
        served.taken += (rung - served.taken) % depth
        if served.taken > served.written:
            raise MachineError("a doorbell for completions that were not written")
        self._looks += 1
        most = (self._looks % self.slow == 0) if self.slow else depth if self.eager else self.chance.randrange(3)
        for _ in range(most):
            if self.silent or not served.coming or served.written - served.taken >= depth - 1:
                return
            place = 0 if self.eager else self.chance.randrange(len(served.coming))
            self._complete(queue, served.coming.pop(place))

    def _complete(self, queue: int, command: tuple[int, ...]) -> None:
        served, page, depth = self._served[queue], self.shape.page, self.shape.depth
        drive, blocks = queue % self.shape.drives, (command[12] & 0xFFFF) + 1
        first, second = (command[i] | command[i + 1] << 32 for i in (6, 8))
        begin = (command[10] | command[11] << 32) * BLOCK
        if command[0] & 0xFFFF != 2 or command[1] != 1 or begin % page or blocks * BLOCK != page or any(command[13:]):
            raise MachineError("a command that reads no page")
        if second != (first + 4096 if page > 4096 else 0):
            raise MachineError("a page in other places than those of the memory")
        number = begin // page
        self.commanded.append((drive, number))
        at = (first ^ FLIP) - self.places.ctypes.data
        landing, inside = divmod(at, page)
        if inside or landing // depth != queue:
            raise MachineError("a page lands outside of the queue's places")
        status = 0x281 if (drive, number) == self.bad else 0
        if status == 0:
            data = page_content(drive, number, page)
            if self.flushed:
                self._unseen.append((first ^ FLIP, data))
            else:
                self.places[at : at + page] = np.frombuffer(data, np.uint8)
        served.landed[landing % depth], served.pages[landing % depth] = served.written, (drive, number)
        word = (
            command[0] >> 16 ^ (depth if self.repeats else 0) | ((served.written // depth + 1) & 1) << 16 | status << 17
        )
        entry = 16 * (queue * depth + served.written % depth)
        self.completions[entry + 12 : entry + 16] = np.frombuffer(struct.pack("<I", word), np.uint8)
        served.written += 1

    def check_idle(self) -> None:
        """Compare what a launch leaves behind with what the drives have done: queues can go on where they stopped."""
        depth, ids = self.shape.depth, self.reads.view(np.uint32).reshape(-1, self.shape.depth, 2)[:, :, 1]
        records = [QUEUE.unpack_from(self.queues.tobytes(), q * QUEUE.size)[-3:] for q in range(self.shape.queues)]
        free = self.free_places.view(np.uint16).reshape(-1, depth)
        for queue, (served, numbers) in enumerate(zip(self._served, records, strict=True)):
            assert not served.coming and set(numbers) == {served.written}, "numbers of commands"
            bells = self.bells[8 * queue :][:8].view(np.uint32).tolist()
            assert bells == [served.written % depth] * 2 or served.written == self.begin, "doorbells"
            assert sorted(free[queue].tolist()) == list(range(depth)), "places that are free"
            used = np.array(sorted(served.landed), np.int64)
            assert (ids[queue][used] >> 16 == 1).all(), "commands are completed"


def read_list(
    memory: DriveMemory, kernels: dict[str, Kernel], tables: list[tuple[Table, npt.NDArray[np.int64]]]
) -> list[Bytes]:
    """Read rows, ascending, of a table for each round, all rounds side by side, as ``Drives::read`` does."""
    read, copy = (next(k for name, k in kernels.items() if ("copy" in name) == copies) for copies in (False, True))
    launches, results, orders = [], list[Bytes](), []
    for round_, (table, wanted) in enumerate(tables):
        targets = memory.chance.sample(range(wanted.size), wanted.size)
        out = memory.make(max(wanted.size * table.row_bytes, 1), 0xEE)
        lists = (wanted, np.array(targets, np.uint32), np.array([wanted.size], np.uint32))
        addresses = [memory.put(array).ctypes.data for array in lists]
        rows = struct.pack("<7q4Q", *table.geometry, table.row_bytes, *addresses, out.ctypes.data)
        memory.cursors[round_][:] = 0
        for row in wanted.tolist():
            table.mark(row, memory.wanted)
        shape = memory.shape
        launches.append((shape.drives * shape.pairs, 32, [memory.drive_set(round_), rows, table.pieces()]))
        results.append(out[: wanted.size * table.row_bytes].reshape(-1, table.row_bytes))
        orders.append(targets)
    while True:
        memory.rest[:] = 0xFF
        memory.launch_together([Launch(read, *launch) for launch in launches])
        if not memory.flushed:
            break
        memory.flush_writes()
        memory.launch_together([Launch(copy, *launch) for launch in launches])
        if int(memory.rest.view(np.uint64)[0]) != 0 or memory.failure() < COMPLETED:
            break
    return [result[order] for result, order in zip(results, orders, strict=True)]
