"""Feature rows gathered by the GPU, of each memory by itself: host memory over the link, and its own.

Beside the rows gathered, the same number of bytes copied: no gather can be faster than that. Rows are drawn at random,
none twice in a pass, so that no cache serves any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.bench.gpu_side import GpuSide, LockedRows, locked_rows
from tiering.bench.gpu_tensors import (
    CopiedRows,
    Tensor,
    copy_slices,
    empty_rows,
    host_ids,
    host_rows,
    random_rows_there,
    same_bytes,
    select_rows,
    torch_threads,
)
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect
from tiering.bench.sizes import Sizes
from tiering.errors import InputError
from tiering.units import format_bytes

ROW_BYTES = (512, 1024, 1536, 2408, 4096)
OFFSETS = {"table on a page": 0, "table 16 B off a line": 16}
COPY, CPU, TORCH = "bytes copied", "torch index_select on the CPU, copied", "torch index_select"
LINE_BYTES = 128
_BATCH_BYTES = 128 << 20
_PAGE = 4096


@dataclass(frozen=True)
class RowTask:
    """Which rows are gathered: batches of ids, the same for every side."""

    rows: int
    row_bytes: int
    ids: npt.NDArray[np.int64]
    """Shape (batches, rows of a batch); no id twice."""

    @classmethod
    def of(cls, nbytes: int, row_bytes: int, seed: int, order: str = "scrambled") -> RowTask:
        """Nearly all rows of a table of `nbytes`, in batches of up to 128 MiB; ``ascending``: sorted within a batch.

        Raises
        ------
        InputError
            If the table has fewer than 8 rows.
        """
        rows = nbytes // row_bytes
        if rows < 8:
            raise InputError(f"--size: expected at least 8 rows of {row_bytes} B, found {format_bytes(nbytes)}")
        batch = max(1, min(rows // 8, _BATCH_BYTES // row_bytes))
        batches = rows // batch
        ids = np.random.default_rng(seed).permutation(rows)[: batches * batch].reshape(batches, batch)
        return cls(rows, row_bytes, np.sort(ids, axis=1) if order == "ascending" else ids)

    @property
    def nbytes(self) -> int:
        """Bytes of a pass."""
        return self.ids.size * self.row_bytes


def bench_gpu_host_rows(sizes: Sizes) -> list[Comparison]:
    """Rows in locked host memory, by a tenth of the multiprocessors: scrambled and ascending ids, tables off a line."""
    gpu = GpuSide(sizes)
    memory = locked_rows(sizes.image_bytes + _PAGE, sizes.seed)
    cases = [("scrambled", where) for where in OFFSETS] + [("ascending", "table on a page")]
    with torch_threads(sizes.threads):
        return [
            _host_rows(gpu, sizes, memory, RowTask.of(sizes.image_bytes, row_bytes, sizes.seed, order), order, where)
            for row_bytes in ROW_BYTES
            for order, where in cases
        ]


def _host_rows(gpu: GpuSide, sizes: Sizes, memory: LockedRows, task: RowTask, order: str, where: str) -> Comparison:
    rows, row_bytes, offset = task.rows, task.row_bytes, OFFSETS[where]
    table = cuda.RowTable(gpu.device.index, row_bytes, [0, 0, rows, rows], 0, [], memory.address + offset)
    here = host_rows(memory.array, rows, row_bytes, offset)
    aligned = host_rows(memory.array, rows, row_bytes)
    out = empty_rows(gpu.device, task.ids.shape[1], row_bytes)
    gather = Gathers(gpu, table, task, out, gpu.sms)
    gather.check("gpu-host-rows", here)
    by_cpu = CopiedRows(gpu.device, here)
    peers = {
        COPY: lambda: copy_slices(aligned, out, len(task.ids)),
        CPU: lambda: by_cpu.put_all(gather.host_ids, out),
    }
    whole_lines = row_bytes % LINE_BYTES == 0 and offset % LINE_BYTES == 0
    return gpu.compare(
        "gpu-host-rows", gather.run, peers, amount=task.nbytes, unit="B",
        targets={COPY: 0.95 if whole_lines else 0.9, CPU: 3.0},
        row_bytes=row_bytes, ids=order, where=where, table=format_bytes(rows * row_bytes), sms=gpu.sms,
        of_sms=gpu.multiprocessors, threads=sizes.threads,
    )  # fmt: skip


def bench_gpu_local_rows(sizes: Sizes) -> list[Comparison]:
    """Rows in the GPU's own memory, by all multiprocessors."""
    gpu = GpuSide(sizes)
    return [_local_rows(gpu, RowTask.of(sizes.image_bytes, row_bytes, sizes.seed), sizes) for row_bytes in ROW_BYTES]


def _local_rows(gpu: GpuSide, task: RowTask, sizes: Sizes) -> Comparison:
    rows, row_bytes = task.rows, task.row_bytes
    there = random_rows_there(gpu.device, rows, row_bytes, sizes.seed)
    table = cuda.RowTable(gpu.device.index, row_bytes, [rows] * 4, there.data_ptr(), [], 0)
    out = empty_rows(gpu.device, task.ids.shape[1], row_bytes)
    gather = Gathers(gpu, table, task, out, 0)
    gather.check("gpu-local-rows", there)
    peers = {
        COPY: lambda: copy_slices(there, out, len(task.ids)),
        TORCH: lambda: select_rows(there, gather.ids, out),
    }
    return gpu.compare(
        "gpu-local-rows", gather.run, peers, amount=task.nbytes, unit="B", targets={COPY: 0.85, TORCH: 1.0},
        row_bytes=row_bytes, ids="scrambled", table=format_bytes(rows * row_bytes), sms=gpu.multiprocessors,
    )  # fmt: skip


class Gathers:
    """Our gather of a task's batches, one after the other, into the same room on the GPU."""

    def __init__(self, gpu: GpuSide, table: cuda.RowTable, task: RowTask, out: Tensor, sms: int) -> None:
        self._gpu, self._table, self._out, self._sms = gpu, table, out, sms
        self.host_ids = host_ids(task.ids)
        """By batch, in host memory."""
        self.ids = [gpu.device.send(ids) for ids in self.host_ids]
        """By batch, on the GPU."""
        gpu.finish()

    def run(self) -> None:
        """Put one pass on the caller's stream."""
        out, stream = self._out.data_ptr(), self._gpu.device.current()
        for ids in self.ids:
            self._table.gather(ids.data_ptr(), len(ids), out, stream, max_sms=self._sms)

    def check(self, benchmark: str, table: Tensor) -> None:
        """Run a pass, and refuse to go on where its last batch is not the rows that torch finds in `table`."""
        self.run()
        self._gpu.finish()
        expected = table[self.host_ids[-1].to(table.device)]
        expect(benchmark, same_bytes(self._out[: len(expected)], expected), "rows")
