"""The kernel that reads from drives, as nvcc compiled it, against a drive that is looked at whenever a thread polls."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx_machine import Lane, MachineError, Memory, Warp
from ptx_program import Kernel, read_kernels

Bytes = npt.NDArray[np.uint8]
DEPTH, PAGE, BLOCK, PAGES = 4, 512, 512, 24
FLIP = 0x5A5A_0000_0000  # of an address, as the drive knows it


class DriveMemory(Memory):
    """Memory that a drive shares, and the drive, which completes commands in any order.

    A landing place may be read by threads alone that know of its completion: by an acquiring load, or from a thread of
    their warp that they have met since.
    """

    def __init__(self, image: bytes, seed: int) -> None:
        super().__init__(self._find, seed)
        self.arrays: list[Bytes] = []
        self.commands, self.completions = self.make(DEPTH * 64), self.make(DEPTH * 16)
        self.submit_bell, self.complete_bell = self.make(64), self.make(64)
        self.places = self.make(DEPTH * PAGE)
        self.failure, self.stop = self.make(8, 0xFF), self.make(64)
        self.reads = self._head = self._written = self._taken = 0
        self._image, self._coming = image, list[tuple[int, ...]]()
        self._landed: dict[int, int] = {}  # number of the completion of each place
        self._known: dict[int, set[int]] = {}  # completions that each lane knows

    def make(self, nbytes: int, fill: int = 0) -> Bytes:
        """Memory that kernels may use."""
        room = np.full(nbytes + 64, fill, np.uint8)
        array = room[-room.ctypes.data % 64 :][:nbytes]
        self.arrays.append(array)
        return array

    def _find(self, address: int) -> tuple[int, int] | None:
        return next(((a.ctypes.data, a.nbytes) for a in self.arrays if 0 <= address - a.ctypes.data < a.nbytes), None)

    def acquire(self, lane: Lane, address: int, size: int) -> int:
        """Serve, then let a thread look."""
        self._serve()
        word = super().acquire(lane, address, size)
        entry = (address - self.completions.ctypes.data) // 16
        if 0 <= entry < DEPTH:
            newest = self._written - 1 - (self._written - 1 - entry) % DEPTH
            if newest >= 0 and word >> 16 & 1 == (newest // DEPTH + 1) & 1:
                self._known.setdefault(lane.number, set()).add(newest)
        return word

    def meet(self, warp: Warp) -> None:
        """What one knows, all know."""
        super().meet(warp)
        everything = set().union(*self._known.values())
        self._known = {lane.number: set(everything) for lane in warp.lanes}

    def _bytes(self, lane: Lane, address: int, size: int, strong: bool) -> bytes:
        if 0 <= address - self.completions.ctypes.data < DEPTH * 16 and not strong:
            self._serve()
        place = (address - self.places.ctypes.data) // PAGE
        if 0 <= place < DEPTH and self._landed.get(place) not in self._known.get(lane.number, ()):
            raise MachineError("a page is read without order behind its completion")
        return super()._bytes(lane, address, size, strong)

    def _serve(self) -> None:
        tail, rung = (int(bell[:4].view(np.uint32)[0]) for bell in (self.submit_bell, self.complete_bell))
        if tail >= DEPTH:
            raise MachineError("a doorbell beyond the queue")
        while self._head != tail:
            self._coming.append(struct.unpack("<16I", self.commands[64 * self._head : 64 * self._head + 64]))
            self._head = (self._head + 1) % DEPTH
        self._taken += (rung - self._taken) % DEPTH
        for _ in range(self.chance.randrange(3)):
            if not self._coming or self._written - self._taken >= DEPTH - 1:
                return
            self._complete(self._coming.pop(self.chance.randrange(len(self._coming))))

    def _complete(self, command: tuple[int, ...]) -> None:
        block, nbytes = command[10] | command[11] << 32, ((command[12] & 0xFFFF) + 1) * BLOCK
        if command[0] & 0xFF != 2:
            raise MachineError("a command that is no read")
        at = ((command[6] | command[7] << 32) ^ FLIP) - self.places.ctypes.data
        self.places[at : at + nbytes] = np.frombuffer(self._image[block * BLOCK :][:nbytes], np.uint8)
        self._landed[at // PAGE] = self._written
        word = command[0] >> 16 | ((self._written // DEPTH + 1) & 1) << 16
        entry = 16 * (self._written % DEPTH)
        self.completions[entry + 12 : entry + 16] = np.frombuffer(struct.pack("<I", word), np.uint8)
        self._written += 1
        self.reads += 1


def read_rows(kernel: Kernel, seed: int, row_bytes: int = 64, pages: int = 1, rows: int = 40) -> None:
    """Read rows of units of so many pages by the kernel, and compare them and the number of commands."""
    chance = np.random.default_rng(seed)
    image = chance.bytes(PAGES * PAGE)
    memory = DriveMemory(image, seed)

    def put(array: npt.NDArray[Any]) -> int:
        there = memory.make(array.nbytes)
        there[:] = array.view(np.uint8).reshape(-1)
        return int(there.ctypes.data)

    per_unit = pages * PAGE // row_bytes
    # Several times the same row, unless rows lie in two pages: those are read again.
    wanted = np.sort(chance.choice(PAGES // pages * per_unit, rows, replace=PAGE % row_bytes == 0))
    targets = chance.permutation(rows).astype(np.uint32)
    out = memory.make(rows * row_bytes)
    chunks = put(np.array([memory.places.ctypes.data ^ FLIP], np.uint64))
    reads = put(np.full((DEPTH, 2), 0xFFFFFFFF, np.uint32))
    own = (memory.commands, memory.completions, memory.submit_bell, memory.complete_bell, memory.places)
    queue = struct.pack(
        "<8Q2I", *(a.ctypes.data for a in own), chunks, put(np.arange(DEPTH, dtype=np.uint16)), reads, 0, 0
    )
    drives = struct.pack(
        "<Q4IQQQ", put(np.frombuffer(queue, np.uint8)), 1, 1, DEPTH, 9, 10**9, memory.stop.ctypes.data,
        memory.failure.ctypes.data,
    )  # fmt: skip
    count = put(np.array([rows], np.uint32))
    geometry = struct.pack("<6q", 0, row_bytes, per_unit, pages * PAGE, PAGE, 1)
    lists = (put(wanted), put(targets), count, out.ctypes.data)
    memory.launch(kernel, 1, 32, [drives, geometry + struct.pack("<q4Q", row_bytes, *lists)])
    assert memory.failure.tobytes() == b"\xff" * 8
    begins = wanted // per_unit * pages * PAGE + wanted % per_unit * row_bytes
    expected = np.frombuffer(image, np.uint8)[begins[:, None] + np.arange(row_bytes)]
    np.testing.assert_array_equal(out.reshape(rows, row_bytes)[targets], expected)
    assert memory.reads == np.unique([begins // PAGE, (begins + row_bytes - 1) // PAGE]).size


def test_rows_are_right(kernels: dict[str, dict[str, Kernel]]) -> None:
    (kernel,) = kernels["drive_rows"].values()
    for seed in range(3):
        read_rows(kernel, seed)
        read_rows(kernel, seed, row_bytes=100, pages=4)


def _without(pattern: str, number: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        lines = text.split("\n")
        del lines[[i for i, line in enumerate(lines) if re.search(pattern, line)][number]]
        return "\n".join(lines)

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_without(r"bar\.warp", 0), id="lanes do not meet before the doorbell"),
        pytest.param(_without(r"fence\.acq", 0), id="no fence before the doorbell"),
        pytest.param(_without(r"bar\.warp", 1), id="lanes do not meet behind the arrival"),
        pytest.param(lambda text: re.sub(r"ld\.acquire\.sys\.b32", "ld.global.b32", text, count=1), id="plain load"),
    ],
)
def test_order_of_memory_is_needed(
    change: Callable[[str], str], kernels: dict[str, dict[str, Kernel]], ptx_folder: Path, tmp_path: Path
) -> None:
    """Each change is one that threads of a processor would not notice."""
    changed = tmp_path / "changed.ptx"
    changed.write_text(change((ptx_folder / "drive_rows.ptx").read_text()))
    (kernel,) = read_kernels(changed).values()
    with pytest.raises((MachineError, AssertionError)):
        for seed in range(8):
            read_rows(kernel, seed)


def test_no_cached_loads(ptx_folder: Path, kernels: dict[str, dict[str, Kernel]]) -> None:
    """A drive writes behind the back of caches."""
    text = (ptx_folder / "drive_rows.ptx").read_text()
    assert not re.search(r"ld\.global\.nc|\bcall\b|\.local", text)
