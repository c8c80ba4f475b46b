"""Ceilings of every gather: memory copied over the link in either direction, and within the GPU, on one stream.

The goals of gathers are fractions of these. Host memory is pinned by registration and asks for huge pages, as the
tables of a layout do; what the kernel gave is among the parameters.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu.host_memory import PinnedRows, describe_pages
from benchmarks.gpu.side import GpuSide, empty_rows, gigabytes
from benchmarks.harness import Sizes, Table
from tiering import cuda
from tiering.text.units import format_bytes

SIZES = (64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30)
"""Bytes of a copy; those that do not fit into a quarter of ``--size`` are left out."""
_UNIT = 4096


def ceilings(sizes: Sizes) -> Table:
    """Measure host to device, device to host, device to device; bytes are counted once, not as read and written."""
    gpu = GpuSide(sizes)
    fitting = [size for size in SIZES if size <= sizes.image_bytes // 4] or [SIZES[0]]
    memory = PinnedRows(gpu.device, fitting[-1], sizes.seed)
    here, there = (empty_rows(gpu.device, fitting[-1] // _UNIT, _UNIT) for _ in range(2))
    ways = {
        "host to device": (here.data_ptr(), memory.address),
        "device to host": (memory.address, here.data_ptr()),
        "device to device": (there.data_ptr(), here.data_ptr()),
    }
    rows = [_row(gpu, way, size, *ends) for way, ends in ways.items() for size in fitting]
    heads = ["copied", "bytes", "GB/s", "least GB/s", "most GB/s"]
    about = {**describe_pages(), "on_huge_pages": memory.huge_share(), "streams": 1, "repeats": sizes.repeats}
    return Table("gpu-ceilings", about, heads, rows)


def _row(gpu: GpuSide, way: str, nbytes: int, into: int, source: int) -> list[Any]:
    timed = gpu.per_pass(partial(cuda.copy, gpu.device.index, into, source, nbytes, gpu.device.current()))
    rates = [gigabytes(nbytes, timed().wall) for _ in range(gpu.sizes.repeats)]
    return [way, format_bytes(nbytes), median(rates), min(rates), max(rates)]
