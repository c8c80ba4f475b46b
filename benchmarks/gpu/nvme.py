"""The kernel of ``engine="bam"`` on a GPU without NVMe drives, whose part another kernel plays.

Commands per second by pairs of queues and bytes of a row; matrix products while warps wait for a silent drive.
``python -m benchmarks nvme``.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from ctypes import c_bool, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.reference import CACHE, compile_library, find_nvcc
from benchmarks.harness import Table
from benchmarks.pages import comparison_table, describe_machine, show_machine
from tiering.errors import CapabilityError, DeviceError

PAIRS, ROW_BYTES, PAGE, DEPTH = (1, 2, 4, 8), (128, 512, 1024, 4096), 4096, 256
INSTRUCTIONS = {128: 59, 512: 59, 1024: 66, 4096: 135}
"""Instructions of PTX that a warp with a full queue takes for a page with one row, by bytes of the row (tests/ptx)."""
_IMAGE_PAGES, _SIZE = 1 << 16, 8192  # pages of the drive; rows of the matrices
_SILENT_SECONDS = 2.0


def compile_program(nvcc: str, architecture: str, folder: Path) -> Path:
    """Compile the kernel that plays a drive, and the one that reads from it."""
    ext = Path(__file__).parents[2] / "ext"
    used = [ext / "cuda" / "src" / "drive_rows.cu", *(ext / "include" / "tiering" / "nvme").glob("*.hpp")]
    includes = [ext / "include", ext / "cuda" / "include"]
    return compile_library("nvme", nvcc, architecture, folder, [Path(__file__).with_name("nvme.cu")], used, includes)


class PlayedDrive:
    """A drive that a kernel plays, and rows of it that are read into memory of GPU 0."""

    def __init__(self, pages: int) -> None:
        if (nvcc := find_nvcc()) is None:
            raise CapabilityError("nvme: nvcc was not found; put it on PATH, or name it by CUDACXX")
        major, minor = torch.cuda.get_device_capability()
        library = ctypes.CDLL(str(compile_program(nvcc, f"sm_{major}{minor}", CACHE)))
        self._begin, self._end = library.nvme_begin, library.nvme_end
        self._begin.argtypes = [c_int, c_int, c_int64, c_int64, *[c_void_p] * 5, c_bool, c_double, c_void_p]
        self._begin.restype, self._end.argtypes, self._end.restype = c_void_p, [c_void_p, c_void_p], c_bool
        self.image = torch.randint(0, 256, (pages, PAGE), dtype=torch.uint8, device="cuda")
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def read(self, pairs: int, row_bytes: int, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return rows (int64, ascending) in the order given, and the seconds that reading took."""
        out = torch.empty((len(rows), row_bytes), dtype=torch.uint8, device="cuda")
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begun = self._put(pairs, row_bytes, rows, out, started)
        ended.record(self._stream)
        if not self._end(begun, self._stream.cuda_stream):
            raise DeviceError("nvme: reading from a drive that a kernel plays failed")
        return out, started.elapsed_time(ended) / 1e3

    def during_silence(self, pairs: int, work: Callable[[], float]) -> float:
        """Return what `work` returns while warps wait for a drive that does not answer."""
        rows = torch.arange(pairs * DEPTH, device="cuda")
        begun = self._put(pairs, PAGE, rows, torch.empty((len(rows), PAGE), dtype=torch.uint8, device="cuda"), None)
        done = work()
        self._end(begun, self._stream.cuda_stream)
        return done

    def _put(self, pairs: int, row_bytes: int, rows: torch.Tensor, out: torch.Tensor, started: Any) -> int:
        self._held = targets, count = (
            torch.arange(len(rows), dtype=torch.int32, device="cuda"),
            torch.tensor([len(rows)], dtype=torch.int32, device="cuda"),
        )
        torch.cuda.synchronize()
        if started is not None:
            started.record(self._stream)
        begun = self._begin(
            pairs, DEPTH, PAGE, row_bytes, rows.data_ptr(), targets.data_ptr(), count.data_ptr(), out.data_ptr(),
            self.image.data_ptr(), started is None, _SILENT_SECONDS, self._stream.cuda_stream,
        )  # fmt: skip
        if begun is None:
            raise DeviceError("nvme: no memory for queues on the GPU")
        return int(begun)


def commands(drive: PlayedDrive, repeats: int) -> Table:
    """Measure reads of a quarter of all pages, a row of each.

    The counted instructions of a page say how busy a warp is: one instruction per cycle is the most, and where a warp
    is far below, it waits for memory or for the drive.
    """
    found = []
    for row_bytes in ROW_BYTES:
        pages = torch.randperm(len(drive.image), device="cuda")[: len(drive.image) // 4].sort().values
        rows, counted = pages * (PAGE // row_bytes), INSTRUCTIONS[row_bytes]
        for pairs in PAIRS:
            rates = []
            for _ in range(repeats + 1):  # the first loads the kernels
                out, seconds = drive.read(pairs, row_bytes, rows)
                rates.append(len(rows) / seconds)
            if not torch.equal(out, drive.image[pages, :row_bytes]):
                raise DeviceError("nvme: rows are not those of the drive")
            best = sorted(rates[1:])[repeats // 2]
            found.append([row_bytes, pairs, best / 1e6, best / pairs / 1e6, counted, best / pairs * counted / 1e9])
    heads = [
        "bytes of a row", "pairs", "million commands/s", "million commands/s of a warp",
        "PTX instructions of a command", "billion instructions/s of a warp",
    ]  # fmt: skip
    return Table("nvme-commands", {"page": PAGE, "depth": DEPTH, "repeats": repeats}, heads, found)


def products(drive: PlayedDrive, repeats: int) -> Table:
    """Measure matrix products alone, and while 16 warps poll."""
    left, right = (torch.randn((_SIZE, _SIZE), device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def rate() -> float:
        torch.cuda.current_stream().synchronize()
        begin, number = time.perf_counter(), 0
        while time.perf_counter() - begin < _SILENT_SECONDS / 4:
            for _ in range(8):
                torch.matmul(left, right)
            torch.cuda.current_stream().synchronize()
            number += 8
        return 2 * _SIZE**3 * number / (time.perf_counter() - begin) / 1e12

    rate()
    found = []
    for turn in range(repeats):
        alone, polled = rate(), drive.during_silence(16, rate)
        found.append([turn, alone, polled, polled / alone])
    return Table("nvme-products", {"size": _SIZE, "warps": 16}, ["turn", "TFLOP/s alone", "polled", "ratio"], found)


def main(argv: Sequence[str]) -> int:
    """Run both and print them; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks nvme", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(argv)
    if not torch.cuda.is_available():
        raise CapabilityError("nvme: no GPU, or torch cannot use it")
    drive = PlayedDrive(_IMAGE_PAGES)
    print(show_machine(describe_machine(gpu=True)) + "\n")
    for table in (commands(drive, given.repeats), products(drive, given.repeats)):
        print(comparison_table(table.to_json()))
    return 0
