"""How long one batch of rows takes while the GPU multiplies matrices on another stream, as training does.

Each gather is timed by the host from its launch until it has ended, as a loader that waits for it would see it.
Matrices are multiplied so many times that all gathers begin during them: what that takes alone is measured first,
gathers go on for as long, and what the multiplications take longer is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.host_memory import PinnedRows
from benchmarks.gpu.rows import Gathers, RowTask
from benchmarks.gpu.side import GpuSide, empty_rows
from benchmarks.harness import Sizes, Table, Work
from tiering.text.units import format_bytes

HEADS = ["rows", "SMs", "p50 us", "p99 us", "during GEMMs: p50 us", "p99 us", "GEMMs slower by"]
SHARES = (1, 2, 4)
"""Tenths of the multiprocessors, in addition to all of them."""
_BATCH_BYTES = 32 << 20
_MOST_WIDTH, _MOST_GEMMS, _SECONDS = 8192, 500, 1.0


class Gemms:
    """Square matrices multiplied again and again on a stream of their own.

    So few that the driver takes them all without waiting, so wide that they fill the GPU.
    """

    def __init__(self, gpu: GpuSide) -> None:
        self._gpu, self._stream = gpu, gpu.device.stream()
        room = gpu.sizes.image_bytes // 8 // 6  # three matrices of 2-byte numbers in an eighth of --size
        self.width = min(_MOST_WIDTH, 1 << max(3, (room.bit_length() - 1) // 2))
        where = gpu.device.torch_device
        self._left, self._right, self._out = (
            torch.ones((self.width, self.width), dtype=torch.bfloat16, device=where) for _ in range(3)
        )
        gpu.finish()
        self.count = 1
        self.run()  # the library chooses its kernels at first use
        seconds = self.run()
        self.count = min(_MOST_GEMMS, max(1, ceil(min(_SECONDS, gpu.sizes.seconds) / max(seconds, 1e-6))))

    def run(self, meanwhile: Work = lambda: None) -> float:
        """Put all multiplications on their stream, do `meanwhile`, and wait; seconds that they took."""
        begin = time.perf_counter()
        with self._gpu.device.on(self._stream):
            for _ in range(self.count):
                torch.mm(self._left, self._right, out=self._out)
        meanwhile()
        self._stream.synchronize()
        return time.perf_counter() - begin


@dataclass
class Latencies:
    """One batch after the other on the stream of a loader's gathers; `launch` puts batch k on a stream."""

    gpu: GpuSide
    launch: Callable[[int, Any], None]

    def __post_init__(self) -> None:
        self._stream = self.gpu.device.stream(urgent=True)
        self._of(0)

    def during(self, seconds: float) -> list[float]:
        """Return the microseconds of each batch that began within so many seconds, at least one."""
        end, taken = time.perf_counter() + seconds, [self._of(0)]
        while time.perf_counter() < end:
            taken.append(self._of(len(taken)))
        return taken

    def _of(self, k: int) -> float:
        begin = time.perf_counter()
        self.launch(k, self._stream)
        self._stream.synchronize()  # spins, where waiting for an event of ours sleeps
        return 1e6 * (time.perf_counter() - begin)


def latency(sizes: Sizes) -> Table:
    """Measure ours from host memory and the GPU's, by several numbers of multiprocessors; torch's from the GPU's."""
    gpu = GpuSide(sizes)
    memory = PinnedRows(gpu.device, sizes.image_bytes, sizes.seed)
    task = _task(sizes)
    on_host = memory.rows(task.rows, sizes.row_bytes)
    on_gpu = empty_rows(gpu.device, task.rows, sizes.row_bytes)
    on_gpu.copy_(on_host)
    host = Gathers(gpu, task, 0, 0, memory.address, 0)
    local = Gathers(gpu, task, task.rows, on_gpu.data_ptr(), 0, 0, host.out)
    for gather in (host, local):
        gather.check("gpu-latency", on_host)

    def by_torch(k: int, stream: Any) -> None:
        with gpu.device.on(stream):
            torch.index_select(on_gpu, 0, local.ids[k % len(local.ids)], out=local.out)

    some = {max(1, tenths * gpu.multiprocessors // 10) for tenths in SHARES} | {gpu.sms}
    bounds = [*sorted(some - {0}), 0]
    gemms = Gemms(gpu)

    def by_ours(of: Gathers, sms: int, k: int, stream: Any) -> None:
        of.put(k, stream.cuda_stream, sms)

    rows = [
        _row(gpu, gemms, [name, sms or "all"], partial(by_ours, gather, sms))
        for name, gather in (("host, ours", host), ("GPU, ours", local))
        for sms in bounds
    ]
    rows.append(_row(gpu, gemms, ["GPU, torch index_select", "-"], by_torch))
    about = {"row_bytes": sizes.row_bytes, "rows": task.ids.shape[1], "table": format_bytes(on_gpu.nbytes),
             "matrices": gemms.width, "gemms": gemms.count, "of_sms": gpu.multiprocessors}  # fmt: skip
    return Table("gpu-latency", about, HEADS, rows)


def _task(sizes: Sizes) -> RowTask:
    """Return the batches of up to 32 MiB, 32,768 rows of 1 KiB; no row twice in one."""
    task = RowTask.of(sizes.image_bytes, sizes.row_bytes, sizes.seed)
    batch = max(1, min(task.ids.shape[1], _BATCH_BYTES // sizes.row_bytes))
    return RowTask(task.rows, task.row_bytes, np.ascontiguousarray(task.ids[:, :batch]))


def _row(gpu: GpuSide, gemms: Gemms, what: list[Any], launch: Callable[[int, Any], None]) -> list[Any]:
    batches = Latencies(gpu, launch)
    window = gemms.run()
    alone, meanwhile = batches.during(window), []
    longer = gemms.run(lambda: meanwhile.extend(batches.during(window)))
    times = [float(np.percentile(side, share)) for side in (alone, meanwhile) for share in (50, 99)]
    return [*what, *times, longer / window]
