"""A GPU for translated kernels: warps whose threads take turns at random, over memory as weak as that of a GPU.

A thread's stores are seen by itself; by its warp once that has met (or at random); by other warps and the rest of the
machine after a fence, at the warp's end, or at random before. What a thread has read once by a plain load it may read
again as it was until it acquires, fences or meets (``bar.warp.sync``) a thread that wrote there. Atomics, and
accesses past the cache of a multiprocessor (``.cg``, ``.volatile``, ``.acquire``, ``.relaxed``), go to memory at
once. Two threads that store to one word without order between them are an error, and so are accesses that are not
aligned or belong to no memory.
"""

from __future__ import annotations

import ctypes
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ptx_program import LOCAL, PARAMETERS, Kernel, Meeting

LANES = 32
_TOGETHER = 4
"""Warps that run side by side."""
_MOST_STORED = 100
"""Stores that a warp keeps from others; each load looks at them."""


class MachineError(Exception):
    """What a GPU would not do, or do differently from time to time."""


class Launch(NamedTuple):
    """A kernel on `grid` blocks of `block` threads, with the bytes of each argument."""

    kernel: Kernel
    grid: int
    block: int
    arguments: list[bytes]

    def parameters(self) -> bytes:
        """The kernel's parameters, as they lie in its memory."""
        kernel, sizes = self.kernel, [parameter.size for parameter in self.kernel.parameters]
        if [len(argument) for argument in self.arguments] != sizes:
            found = [len(argument) for argument in self.arguments]
            raise MachineError(f"{kernel.name}: parameters of {sizes} bytes, called with {found}")
        memory = bytearray(max((sum(parameter) for parameter in kernel.parameters), default=0))
        for parameter, argument in zip(kernel.parameters, self.arguments, strict=True):
            memory[parameter.offset : parameter.offset + parameter.size] = argument
        return bytes(memory)


class Lane:
    """A thread of a warp."""

    def __init__(self, number: int, warp: Warp, local_bytes: int) -> None:
        self.number, self.warp = number, warp
        self.local = bytearray(local_bytes)
        self.stored: list[tuple[int, bytes]] = []
        """What only this thread sees."""
        self.cached: dict[int, dict[tuple[int, int], bytes]] = {}
        """Results of plain loads, which need not look again, by address and size, in lines of 16 bytes."""
        self.acquired = False
        self.executed = 0
        """Instructions."""


class Warp:
    """32 threads that meet."""

    def __init__(self, memory: Memory, launch: int, number: int, called: Launch, parameters: bytes) -> None:
        kernel, grid, block, _ = called
        self.memory, self.key, self.parameters, self.epoch = memory, (launch, number), parameters, 0
        self.stored: list[tuple[int, bytes]] = []
        """What all its threads see, but nobody else."""
        self.lanes = [Lane(lane, self, kernel.local_bytes) for lane in range(LANES)]
        first = number * LANES % block
        self._threads = {
            lane.number: kernel.thread(
                lane, memory, parameters,
                tid_x=first + lane.number, ntid_x=block, ctaid_x=number * LANES // block, nctaid_x=grid,
            )
            for lane in self.lanes if first + lane.number < block
        }  # fmt: skip

    def run(self, chance: random.Random) -> Generator[None, None, None]:
        """Run to the end; yields where another warp may go on."""
        answers: dict[int, Any] = dict.fromkeys(self._threads)
        ready, waiting = list(self._threads), {}
        while ready:
            lane = ready.pop(chance.randrange(len(ready)))
            thread = self._threads[lane]
            while True:
                try:
                    request = thread.send(answers[lane])
                except StopIteration:
                    del self._threads[lane]
                    break
                answers[lane] = None
                if isinstance(request, Meeting):
                    waiting[lane] = request
                    break
                if chance.random() < 0.3:
                    ready.append(lane)
                    yield
                    break
            if not ready and waiting:
                found = self._meet(waiting)
                answers |= found
                ready = list(found)
                waiting = {n: request for n, request in waiting.items() if n not in found}
                yield
        self.memory.executed += max(lane.executed for lane in self.lanes)
        for each in self.lanes:
            self.memory.spill(each)
        self.memory.flush(self)

    def _meet(self, waiting: dict[int, Meeting]) -> dict[int, Any]:
        """Let the threads of one mask go on, with what each of them gets."""
        first = next(iter(waiting.values()))
        expected = {lane for lane in range(LANES) if first.mask >> lane & 1}
        came = {lane: request for lane, request in waiting.items() if lane in expected}
        if set(came) != expected or any(r.kind != first.kind or r.mask != first.mask for r in came.values()):
            raise MachineError(
                f"threads {sorted(expected)} of a warp were to meet at {first.kind!r}; there came "
                f"{ {lane: request.kind for lane, request in sorted(waiting.items())} }"
            )
        values = {lane: request.values for lane, request in came.items()}
        if first.kind == "sync":  # votes and shuffles order no memory
            self.memory.meet(self)
            return dict.fromkeys(came)
        if first.kind in ("ballot", "any", "all"):
            ballot = sum(1 << lane for lane, (vote,) in values.items() if vote)
            result = {"ballot": ballot, "any": ballot != 0, "all": ballot == first.mask}[first.kind]
            return dict.fromkeys(came, result)
        return {lane: _shuffled(first.kind, lane, values) for lane in came}


def _shuffled(kind: str, lane: int, values: dict[int, tuple[int, ...]]) -> tuple[int, bool]:
    """What ``shfl.sync`` gives a lane: the value, and whether it is another lane's."""
    own, by, clamp = values[lane]
    segment = clamp >> 8 & 31
    end, begin = (lane & segment) | (clamp & 31 & ~segment), lane & segment
    source = {
        "down": lane + by, "up": lane - by, "bfly": lane ^ by, "idx": begin | (by & ~segment & 31)
    }[kind]  # fmt: skip
    inside = source >= end if kind == "up" else source <= end
    if not inside:
        return own, False
    if source not in values:
        raise MachineError(f"lane {lane} asks for the value of lane {source}, which has not come")
    return values[source][0], True


class Memory:
    """The memory of this process, as kernels reach it.

    `owner` says which range of addresses an address lies in that kernels may use: begin and size in bytes, or ``None``.
    """

    def __init__(
        self, owner: Callable[[int], tuple[int, int] | None], seed: int = 0, most_turns: float = math.inf
    ) -> None:
        self._owner, self._most_turns = owner, most_turns
        self.chance = random.Random(seed)
        self.executed = 0
        """Instructions of all warps, of each those of the thread that has most."""
        self._begins: list[int] = []
        self._ranges: list[tuple[int, memoryview]] = []
        self._writers: dict[int, tuple[tuple[int, int], int, int]] = {}
        self._clock = 0

    def launch(self, kernel: Kernel, grid: int, block: int, arguments: list[bytes]) -> None:
        """Run a kernel on `grid` blocks of `block` threads, with the bytes of each argument."""
        self.launch_together([Launch(kernel, grid, block, arguments)])

    def launch_together(self, launches: list[Launch]) -> None:
        """Run kernels that are on streams of their own."""
        self._begins, self._ranges, self._writers = [], [], {}
        given = [launch.parameters() for launch in launches]
        waiting = [(i, n) for i, launch in enumerate(launches) for n in range(launch.grid * -(-launch.block // LANES))]
        self.chance.shuffle(waiting)
        running: list[Generator[None, None, None]] = []
        turns = 0
        while waiting or running:
            if waiting and len(running) < _TOGETHER:
                i, number = waiting.pop()
                running.append(Warp(self, i, number, launches[i], given[i]).run(self.chance))
            if (turns := turns + 1) > self._most_turns:
                raise MachineError("the kernel does not end")
            warp = running[self.chance.randrange(len(running))]
            try:
                next(warp)
            except StopIteration:
                running.remove(warp)

    # What kernels call.

    def load(self, lane: Lane, address: int, size: int, strong: bool) -> int:
        """A word."""
        return int.from_bytes(self._bytes(lane, address, size, strong), "little")

    def load_many(self, lane: Lane, address: int, size: int, count: int, strong: bool) -> list[int]:
        """The words of a vector."""
        data = self._bytes(lane, address, size * count, strong)
        return [int.from_bytes(data[i : i + size], "little") for i in range(0, size * count, size)]

    def acquire(self, lane: Lane, address: int, size: int) -> int:
        """A word, and sight of what was released with it."""
        data = self._bytes(lane, address, size, True)
        lane.cached.clear()
        lane.acquired = True
        return int.from_bytes(data, "little")

    def store(self, lane: Lane, address: int, size: int, *values: int) -> None:
        """Plain words."""
        data = b"".join((value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in values)
        self._check(address, len(data))
        if address >= LOCAL:
            lane.local[address - LOCAL : address - LOCAL + len(data)] = data
            return
        self.view(address, len(data))
        lane.stored.append((address, data))
        if self.chance.random() < 0.1:
            self.spill(lane)

    def publish(self, lane: Lane, address: int, size: int, value: int) -> None:
        """A word that goes to memory at once."""
        self._check(address, size)
        self.view(address, size)[:] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def atomic(self, lane: Lane, address: int, size: int, change: Callable[[int], int]) -> int:
        """Change a word in memory; what stood there."""
        self._check(address, size)
        word = self.view(address, size)
        old = int.from_bytes(word, "little")
        word[:] = change(old).to_bytes(size, "little")
        return old

    def fence(self, lane: Lane) -> None:
        """Show everybody what the thread knows."""
        self.spill(lane)
        self.flush(lane.warp)
        lane.cached.clear()

    def meet(self, warp: Warp) -> None:
        """Show the threads of a warp what each of them has stored."""
        acquired = any(lane.acquired for lane in warp.lanes)
        for lane in warp.lanes:
            self.spill(lane)
        warp.epoch += 1
        for lane in warp.lanes:
            lane.acquired = False
            if acquired:
                lane.cached.clear()
            for at, data in warp.stored:
                _forget(lane.cached, at, len(data))
        if self.chance.random() < 0.1:
            self.flush(warp)

    def time(self) -> int:
        """Nanoseconds that go by as they are asked for."""
        self._clock += 1000
        return self._clock

    # How stores travel.

    def spill(self, lane: Lane) -> None:
        """A thread's stores become its warp's."""
        for address, data in lane.stored:
            for at in range(address, address + len(data), 4 if len(data) >= 4 else 1):
                own = warp, number, epoch = lane.warp.key, lane.number, lane.warp.epoch
                before = self._writers.setdefault(at, own)
                if before[0] != warp or (before[1] != number and before[2] == epoch):
                    raise MachineError(f"threads {before[:2]} and {own[:2]} (warp, lane) store to one word, {at:#x}")
                self._writers[at] = own
        lane.warp.stored += lane.stored
        lane.stored = []
        if len(lane.warp.stored) > _MOST_STORED:
            self.flush(lane.warp)

    def flush(self, warp: Warp) -> None:
        """A warp's stores become everybody's."""
        for address, data in warp.stored:
            self.view(address, len(data))[:] = data
            for lane in warp.lanes:
                if lane.cached:
                    _forget(lane.cached, address, len(data))
        warp.stored = []

    def view(self, address: int, size: int) -> memoryview:
        """Bytes that kernels may use."""
        place = bisect_right(self._begins, address) - 1
        if place >= 0:
            begin, memory = self._ranges[place]
            if address + size <= begin + len(memory):
                return memory[address - begin : address - begin + size]
        found = self._owner(address)
        if found is None or address + size > found[0] + found[1]:
            raise MachineError(f"{size} bytes at {address:#x} belong to no memory that a kernel may use ({found})")
        begin, length = found
        memory = memoryview((ctypes.c_ubyte * length).from_address(begin)).cast("B")
        place = bisect_right(self._begins, begin)
        self._begins.insert(place, begin)
        self._ranges.insert(place, (begin, memory))
        return memory[address - begin : address - begin + size]

    def _bytes(self, lane: Lane, address: int, size: int, strong: bool) -> bytes:
        self._check(address, size)
        if address >= PARAMETERS:
            if address >= LOCAL:
                return bytes(lane.local[address - LOCAL : address - LOCAL + size])
            return lane.warp.parameters[address - PARAMETERS : address - PARAMETERS + size]
        data = None if strong else lane.cached.get(address >> 4, {}).get((address, size))
        if data is None:
            data = bytes(self.view(address, size))
            if not strong:
                lane.cached.setdefault(address >> 4, {})[address, size] = data
        if lane.stored or lane.warp.stored:
            patched = bytearray(data)
            for at, stored in [*lane.warp.stored, *lane.stored]:
                begin, end = max(at, address), min(at + len(stored), address + size)
                if begin < end:
                    patched[begin - address : end - address] = stored[begin - at : end - at]
            return bytes(patched)
        return data

    @staticmethod
    def _check(address: int, size: int) -> None:
        if address % size:
            raise MachineError(f"an access of {size} bytes at {address:#x} is not aligned")


def _forget(cached: dict[int, dict[tuple[int, int], bytes]], address: int, size: int) -> None:
    if line := cached.get(address >> 4):  # an access is aligned: it lies in one line
        for key in [key for key in line if key[0] < address + size and address < key[0] + key[1]]:
            del line[key]
