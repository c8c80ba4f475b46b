"""Rows on a disk as `tiering layout` places them now, and as earlier versions did: the same rows, read by turns.

Now: units of whole rows, padded only where that costs an eighth at most. Before: padded to sectors, whole rows in pages
of 4 KiB. Each turn reads another random sample of the rows from both files, by the loader's buffer, which merges reads
over gaps as the disk's measured speed suggests.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Sizes, Table, expect
from benchmarks.stages import bench_folder, forget
from tiering import native
from tiering.artifacts.storage import aligned_bytes
from tiering.formats.ssd_rows import SECTOR_BYTES, SsdRows
from tiering.readahead import disk_speed
from tiering.readahead.config import UNLIMITED
from tiering.text.units import format_bytes

ROW_BYTES = (520, 768, 1536, 2408, 3080)
DENSITIES = (0.002, 0.03, 0.3)
HEADS = ["row bytes", "stride", "padded", "density", "rows", "read", "read, padded", "reads", "reads, padded"]
HEADS += ["seconds", "seconds, padded", "tight / padded", "least", "most"]
_PAGE = 4096
_BLOCK = 1 << 24
_WARM_UP = 1
Rows = npt.NDArray[np.uint32]


def pad_to_pages(rows: int, row_bytes: int) -> SsdRows:
    """Return the places of rows as earlier versions had them: padded to sectors, whole rows in pages."""
    return SsdRows.plan(0, rows, -(-row_bytes // SECTOR_BYTES) * SECTOR_BYTES, _PAGE)


@dataclass
class ReadTurn:
    """The reads of one turn."""

    seconds: float
    reads: int
    nbytes: int


@dataclass(frozen=True)
class StripeFile:
    """A file of rows that are known by their number, in some places."""

    path: Path
    rows: int
    row_bytes: int
    place: SsdRows
    unit: int

    @property
    def core(self) -> list[tuple[int, int, int, int, int]]:
        """The table as the core takes it."""
        return [(self.rows, self.row_bytes, 0, self.place.stride, self.place.rows_per_unit)]

    def write(self) -> None:
        """Write the file: of each row its number, 8 bytes, then noise."""
        per_unit, stride = self.place.rows_per_unit, self.place.stride
        units = max(1, _BLOCK // self.unit)
        block = np.random.default_rng(1).integers(0, 256, (units, self.unit), np.uint8)
        placed = np.lib.stride_tricks.as_strided(block, (units, per_unit, 8), (self.unit, stride, 1))
        with self.path.open("wb") as file:
            for first in range(0, self.place.num_units, units):
                numbers = np.arange(first * per_unit, (first + units) * per_unit, dtype=np.int64)
                placed[:] = numbers.reshape(units, per_unit, 1).view(np.uint8)
                file.write(block[: self.place.num_units - first].data)
            os.fsync(file.fileno())
        forget([self.path])

    def choose_gap(self, wanted: Rows, speed: disk_speed.DiskSpeed) -> int:
        """Return the read gap that the loader would choose for these rows."""
        gaps = [0, speed.gap // 4, speed.gap]
        pools = [(self.row_bytes, len(wanted))]
        (found,) = native.simulate_rounds(self.core, (self.unit, _PAGE), 1, pools, 1, 0, [wanted], gaps).tolist()
        return min(gaps, key=lambda gap: speed.seconds(*found[4 + 2 * gaps.index(gap) :][:2]))

    def read(self, wanted: Rows, gap: int, arena: npt.NDArray[np.uint8]) -> ReadTurn:
        """Read rows into slots, which begin empty."""
        buffer = native.RowBuffer(
            self.core, [0], (self.unit, _PAGE), [str(self.path)], [(self.row_bytes, len(wanted))], arena,
            depth=disk_speed.DEPTH,
        )  # fmt: skip
        start = time.perf_counter()
        buffer.begin(UNLIMITED, 0, gap)  # the buffer cuts a large batch into parts: all are read in one round
        buffer.add_rows(wanted)
        buffer.end()
        parts = [buffer.take(0, 0)]
        while not parts[-1][3]:
            parts.append(buffer.take(0, len(parts)))
        seconds = time.perf_counter() - start
        slots = np.concatenate([part[0] for part in parts])
        read = arena[: len(wanted) * self.row_bytes].reshape(-1, self.row_bytes)[slots, :8].copy().view(np.int64)
        expect("quantized padding", np.array_equal(read.ravel(), wanted), "rows")
        counters = buffer.counters
        for part in range(len(parts)):
            buffer.release(0, part)
        buffer.stop()
        buffer.cancel()
        return ReadTurn(seconds, counters.reads, counters.read_bytes)


def padding(sizes: Sizes) -> Table:
    """Compare for each length of a row and density of a sample; rows have `sizes.feature_bytes` in all."""
    lines, direct = [], False
    for row_bytes in ROW_BYTES:
        with bench_folder(sizes) as folder:
            rows = sizes.feature_bytes // row_bytes
            unit, (place,) = SsdRows.plan_all([(rows, row_bytes)], _PAGE, 1)
            files = [
                StripeFile(folder / "tight", rows, row_bytes, place, unit),
                StripeFile(folder / "padded", rows, row_bytes, pad_to_pages(rows, row_bytes), _PAGE),
            ]
            for file in files:
                file.write()
            direct = native.SsdReader([str(files[0].path)], _PAGE, "auto", 1).direct
            speed = disk_speed.measure([file.path for file in files])
            lines += [_compare(files, density, speed, sizes.repeats) for density in DENSITIES]
    about = {"rows": format_bytes(sizes.feature_bytes), "direct": direct, "repeats": sizes.repeats}
    return Table("rows on a disk, tight and padded", about, HEADS, lines)


def _compare(files: list[StripeFile], density: float, speed: disk_speed.DiskSpeed, repeats: int) -> list[Any]:
    """Return a line of the table: medians of `repeats` turns, after one that is not counted."""
    random = np.random.default_rng(int(1000 * density))
    turns: list[list[ReadTurn]] = []
    arena = aligned_bytes(files[0].rows * files[0].row_bytes)
    for turn in range(_WARM_UP + repeats):
        wanted = np.flatnonzero(random.random(files[0].rows) < density).astype(np.uint32)
        order = files if turn % 2 else files[::-1]
        done = {file.path: file.read(wanted, file.choose_gap(wanted, speed), arena) for file in order}
        turns.append([done[file.path] for file in files])
    counted = turns[_WARM_UP:]
    ratios = [tight.seconds / padded.seconds for tight, padded in counted]
    sides = [[median(getattr(turn[side], what) for turn in counted) for side in (0, 1)] for what in vars(counted[0][0])]
    strides = [file.place.stride for file in files]
    (seconds, reads, nbytes), place = sides, [files[0].row_bytes, *strides, density, len(wanted)]
    return [*place, *nbytes, *reads, *seconds, median(ratios), min(ratios), max(ratios)]
