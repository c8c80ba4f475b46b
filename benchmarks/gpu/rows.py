"""Feature rows gathered by the GPU: from host memory over the link, from its own, and from both at once.

Beside the rows gathered, the same number of bytes copied: no gather can be faster than that. Rows are drawn at random,
none twice in a pass, so that no cache serves any. Where the hottest rows lie in the memory of the GPU and the others on
the host, accesses follow a power law over ranks, and the floor is what the busier of the two memories needs to copy
the bytes that fall to it: neither waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.gpu.side import (
    CopiedRows,
    GpuSide,
    LockedRows,
    copy_slices,
    empty_rows,
    random_rows_there,
    same_bytes,
)
from benchmarks.harness import Comparison, Sizes, Spent, Work, compare, expect, take_turn
from tiering import cuda
from tiering.errors import InputError
from tiering.units import format_bytes

ROW_BYTES = (512, 1024, 1536, 2408, 4096)
OFFSETS = {"table on a page": 0, "table 16 B off a line": 16}
COPY, CPU, TORCH = "bytes copied", "torch index_select on the CPU, copied", "torch index_select"
FLOOR = "floor: the busier memory copies its bytes"
SHARE, EXPONENT = 0.1, 1.0
"""Of the rows: those in the memory of the GPU; row r is asked for in proportion to (r + 1) ** -EXPONENT."""
WITHIN = 1.1
"""Aimed at: at most this many times the floor."""
LINE_BYTES = 128
_BATCH_BYTES = 128 << 20
_PAGE = 4096


@dataclass(frozen=True)
class RowTask:
    """Which rows are gathered: batches of ids, the same for every side."""

    rows: int
    row_bytes: int
    ids: npt.NDArray[np.int64]
    """Shape (batches, rows of a batch); none twice in a batch."""

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

    @classmethod
    def by_power_law(cls, nbytes: int, row_bytes: int, seed: int) -> RowTask:
        """As many batches as `of` makes; none twice in a batch, like a sampler's nodes."""
        task = cls.of(nbytes, row_bytes, seed)
        sums = np.cumsum(np.arange(1, task.rows + 1) ** -EXPONENT)
        rng = np.random.default_rng(seed)
        drawn = [np.searchsorted(sums, rng.random(ids.size) * sums[-1], side="right") for ids in task.ids]
        batches = [np.unique(np.minimum(ranks, task.rows - 1)) for ranks in drawn]
        width = min(batch.size for batch in batches)
        ids = np.stack([rng.permutation(batch)[:width] for batch in batches])
        return cls(task.rows, row_bytes, ids.astype(np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of a pass."""
        return self.ids.size * self.row_bytes


class Gathers:
    """Our gather of a task's batches, one after the other, into the same room on the GPU.

    Parameters
    ----------
    ends
        Where the tiers end, in rows.
    local, host
        Addresses of the rows on the GPU and of those in host memory.
    """

    def __init__(
        self, gpu: GpuSide, task: RowTask, ends: list[int], local: int, host: int, sms: int, out: Tensor | None = None
    ) -> None:
        self._gpu, self._sms = gpu, sms
        self._table = cuda.RowTable(gpu.device.index, task.row_bytes, ends, local, [], host)
        self.out = empty_rows(gpu.device, task.ids.shape[1], task.row_bytes) if out is None else out
        """Rows of the batch gathered last."""
        self.host_ids = [torch.from_numpy(np.ascontiguousarray(batch)) for batch in task.ids]
        """By batch, in host memory."""
        self.ids = [gpu.device.send(ids) for ids in self.host_ids]
        """By batch, on the GPU."""
        gpu.finish()

    def run(self) -> None:
        """Put one pass on the caller's stream."""
        out, stream = self.out.data_ptr(), self._gpu.device.current()
        for ids in self.ids:
            self._table.gather(ids.data_ptr(), len(ids), out, stream, most_sms=self._sms)

    def check(self, benchmark: str, table: Tensor) -> None:
        """Run a pass, and refuse to go on where its last batch is not the rows that torch finds in `table`."""
        self.run()
        self._gpu.finish()
        expected = table[self.host_ids[-1].to(table.device)]
        expect(benchmark, same_bytes(self.out[: len(expected)], expected), "rows")


def host_rows(sizes: Sizes) -> list[Comparison]:
    """Rows in locked host memory, by a tenth of the multiprocessors: scrambled and ascending ids, tables off a line."""
    gpu = GpuSide(sizes)
    memory = LockedRows.of(sizes.image_bytes + _PAGE, sizes.seed)
    cases = [("scrambled", where) for where in OFFSETS] + [("ascending", "table on a page")]
    return [_host_rows(gpu, memory, row_bytes, order, where) for row_bytes in ROW_BYTES for order, where in cases]


def _host_rows(gpu: GpuSide, memory: LockedRows, row_bytes: int, order: str, where: str) -> Comparison:
    task = RowTask.of(gpu.sizes.image_bytes, row_bytes, gpu.sizes.seed, order)
    rows, offset = task.rows, OFFSETS[where]
    here, aligned = memory.rows(rows, row_bytes, offset), memory.rows(rows, row_bytes)
    gather = Gathers(gpu, task, [0, 0, rows, rows], 0, memory.address + offset, gpu.sms)
    gather.check("gpu-host-rows", here)
    by_cpu = CopiedRows(gpu.device, here)
    peers = {
        COPY: lambda: copy_slices(aligned, gather.out, len(task.ids)),
        CPU: lambda: by_cpu.put(gather.host_ids, gather.out),
    }
    whole_lines = row_bytes % LINE_BYTES == 0 and offset % LINE_BYTES == 0
    return gpu.compare(
        "gpu-host-rows", gather.run, peers, amount=task.nbytes, unit="B",
        targets={COPY: 0.95 if whole_lines else 0.9, CPU: 3.0},
        row_bytes=row_bytes, ids=order, where=where, table=format_bytes(rows * row_bytes), sms=gpu.sms,
        of_sms=gpu.multiprocessors, threads=gpu.sizes.threads,
    )  # fmt: skip


def local_rows(sizes: Sizes) -> list[Comparison]:
    """Rows in the GPU's own memory, by all multiprocessors."""
    gpu = GpuSide(sizes)
    return [_local_rows(gpu, RowTask.of(sizes.image_bytes, row_bytes, sizes.seed)) for row_bytes in ROW_BYTES]


def _local_rows(gpu: GpuSide, task: RowTask) -> Comparison:
    rows, row_bytes = task.rows, task.row_bytes
    there = random_rows_there(gpu.device, rows, row_bytes, gpu.sizes.seed)
    gather = Gathers(gpu, task, [rows] * 4, there.data_ptr(), 0, 0)
    gather.check("gpu-local-rows", there)

    def by_torch() -> None:
        for ids in gather.ids:
            torch.index_select(there, 0, ids, out=gather.out)

    peers = {COPY: lambda: copy_slices(there, gather.out, len(task.ids)), TORCH: by_torch}
    return gpu.compare(
        "gpu-local-rows", gather.run, peers, amount=task.nbytes, unit="B", targets={COPY: 0.85, TORCH: 1.0},
        row_bytes=row_bytes, ids="scrambled", table=format_bytes(rows * row_bytes), sms=gpu.multiprocessors,
    )  # fmt: skip


def mixed_rows(sizes: Sizes) -> list[Comparison]:
    """One row in ten on the GPU, the others in host memory, by one gather."""
    gpu = GpuSide(sizes)
    memory = LockedRows.of(sizes.image_bytes + _PAGE, sizes.seed)
    return [
        _mixed_rows(gpu, memory, RowTask.by_power_law(sizes.image_bytes, row_bytes, sizes.seed))
        for row_bytes in ROW_BYTES
    ]


def _mixed_rows(gpu: GpuSide, memory: LockedRows, task: RowTask) -> Comparison:
    rows, row_bytes, held = task.rows, task.row_bytes, max(1, int(SHARE * task.rows))
    here, batches = memory.rows(rows, row_bytes), len(task.ids)
    local = empty_rows(gpu.device, held, row_bytes)
    local.copy_(here[:held])
    host = memory.address + held * row_bytes
    gather = Gathers(gpu, task, [held, held, rows, rows], local.data_ptr(), host, gpu.sms)
    gather.check("gpu-mixed-rows", here)
    there = empty_rows(gpu.device, task.ids.shape[1], row_bytes)
    from_local = int(np.count_nonzero(task.ids < held))

    def copy_local() -> None:
        for _ in range(batches):
            gather.out.copy_(there, non_blocking=True)

    # A pass that copies as many rows from one memory alone as all of them are, and the rows that fall to it.
    copies: list[tuple[Work, int]] = [
        (lambda: copy_slices(here, gather.out, batches), task.ids.size - from_local), (copy_local, from_local)
    ]  # fmt: skip
    turns = [_pass(gpu, work) for work in (gather.run, *(work for work, _ in copies))]

    def floor() -> Spent:
        spent = [turn().wall * count / task.ids.size for turn, (_, count) in zip(turns[1:], copies, strict=True)]
        return Spent(max(spent), 0.0)

    about = {
        "row_bytes": row_bytes, "table": format_bytes(rows * row_bytes), "on_gpu": SHARE, "exponent": EXPONENT,
        "from_gpu": round(from_local / task.ids.size, 4), "sms": gpu.sms, "of_sms": gpu.multiprocessors,
    }  # fmt: skip
    return compare(
        "gpu-mixed-rows", turns[0], {FLOOR: floor}, amount=task.nbytes, unit="B", targets={FLOOR: 1 / WITHIN},
        repeats=gpu.sizes.repeats, parameters=about, warm_up=False,
    )  # fmt: skip


def _pass(gpu: GpuSide, work: Work) -> Work:
    """What one pass takes, from a turn of several."""
    passes = gpu.passes(work)

    def turn() -> Spent:
        spent = take_turn(partial(gpu.turn, work, passes))
        return Spent(spent.wall / passes, spent.cpu / passes)

    return turn
