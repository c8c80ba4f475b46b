"""Feature rows gathered by the GPU: from host memory over the link, from its own, and from both at once.

Against the rows gathered, the same number of bytes copied: no gather can be faster than that; torch; and kernels of
designs that others published (`benchmarks.gpu.reference`). Rows are drawn at random, none twice in a pass, so that no
cache serves any. Where the hottest rows lie in the memory of the GPU and the others on the host, accesses follow a
power law over ranks, and the floor is what the busier of the two memories needs to copy the bytes that fall to it:
neither waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.gpu.host_memory import PinnedRows
from benchmarks.gpu.reference import gathers
from benchmarks.gpu.side import FLOOR, CopiedRows, GpuSide, empty_rows, same_bytes
from benchmarks.harness import Comparison, Sizes, Work, expect
from tiering import cuda
from tiering.errors import InputError
from tiering.text.units import format_bytes

ROW_BYTES = (512, 1024, 1536, 2408, 4096)
ON_A_PAGE = "table on a page"
OFFSETS = {ON_A_PAGE: 0, "table 16 B off a line": 16}
CPU, TORCH = "torch index_select on the CPU, copied", "torch index_select"
SHARE, EXPONENT = 0.1, 1.0
"""Fractions of the rows in the memory of the GPU; row r is asked for in proportion to (r + 1) ** -EXPONENT."""
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
        """Return nearly all rows of a table of `nbytes`, in batches of up to 128 MiB.

        ``ascending``: sorted within a batch. ``power law``: as many batches, drawn by `EXPONENT`, no row twice in one,
        like a sampler's nodes.
        """
        rows = nbytes // row_bytes
        if rows < 8:
            raise InputError(f"--size: expected at least 8 rows of {row_bytes} B, found {format_bytes(nbytes)}")
        batch = max(1, min(rows // 8, _BATCH_BYTES // row_bytes))
        batches = rows // batch
        rng = np.random.default_rng(seed)
        ids = rng.permutation(rows)[: batches * batch].reshape(batches, batch)
        if order == "ascending":
            ids = np.sort(ids, axis=1)
        if order == "power law":
            sums = np.cumsum(np.arange(1, rows + 1) ** -EXPONENT)
            drawn = [np.searchsorted(sums, rng.random(batch) * sums[-1], side="right") for _ in range(batches)]
            ranks = [np.unique(np.minimum(ids, rows - 1)) for ids in drawn]
            width = min(ids.size for ids in ranks)
            ids = np.stack([rng.permutation(ids)[:width] for ids in ranks]).astype(np.int64)
        return cls(rows, row_bytes, ids)

    @property
    def nbytes(self) -> int:
        """Bytes of a pass."""
        return self.ids.size * self.row_bytes


class Gathers:
    """Our gather of a task's batches, one after the other, into the same room on the GPU.

    The first `resident` rows lie on the GPU from address `local` on, the others in host memory from `host` on. By the
    kernel alone, launched as `how` says (`tiering.cuda.RowTable.gather`), or `prepared`, as features gather: rows are
    counted, and ids sorted by address where some lie in host memory.
    """

    def __init__(
        self, gpu: GpuSide, task: RowTask, resident: int, local: int, host: int, sms: int, out: Tensor | None = None,
        prepared: bool = False, **how: Any,
    ) -> None:  # fmt: skip
        self._gpu, self._how = gpu, {"max_sms": sms, **how}
        self._requests = cuda.RequestGatherer(gpu.device.index) if prepared else None
        self._by_address = resident < task.rows
        ends = [resident, resident, task.rows, task.rows]
        self.address = local if resident == task.rows else host
        """Where the rows lie, if all lie in one memory."""
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
        stream = self._gpu.device.current()
        for k in range(len(self.ids)):
            self.put(k, stream)

    def put(self, k: int, stream: int, sms: int | None = None) -> None:
        """Put one batch on a stream; batches go round. `sms` multiprocessors may be used, if that is said."""
        ids, how = self.ids[k % len(self.ids)], self._how if sms is None else {**self._how, "max_sms": sms}
        if self._requests is None:
            self._table.gather(ids.data_ptr(), len(ids), self.out.data_ptr(), stream, **how)
        else:
            self._requests.prepare(self._table, ids.data_ptr(), len(ids), stream, self._by_address)
            self._requests.gather(self._table, self.out.data_ptr(), stream, **how)

    def check(self, benchmark: str, table: Tensor) -> None:
        """Run a pass, and refuse to go on where its last batch is not the rows that torch finds in `table`."""
        self.run()
        self._gpu.finish()
        expected = table[self.host_ids[-1].to(table.device)]
        expect(benchmark, same_bytes(self.out[: len(expected)], expected), "rows")


def rows(sizes: Sizes) -> list[Comparison]:
    """Measure rows in host memory (scrambled and ascending ids, tables off a line), a hot tenth on the GPU, all there.

    From host memory by a tenth of the multiprocessors, from the GPU alone by all; as features gather, which sort ids by
    address for host memory.
    """
    gpu = GpuSide(sizes)
    memory = PinnedRows(gpu.device, sizes.image_bytes + _PAGE, sizes.seed)
    cases = [(0.0, "scrambled", where) for where in OFFSETS]
    cases += [(0.0, "ascending", ON_A_PAGE), (SHARE, "power law", ON_A_PAGE), (1.0, "scrambled", ON_A_PAGE)]
    return [_rows(gpu, memory, row_bytes, *case) for row_bytes in ROW_BYTES for case in cases]


def copy_slices(source: Tensor, out: Tensor, count: int) -> None:
    """Copy the rows of `source` into the one `out`, `len(out)` at a time, `count` times, without waiting."""
    batch = len(out)
    for k in range(count):
        out.copy_(source[k * batch : (k + 1) * batch], non_blocking=True)


def _rows(gpu: GpuSide, memory: PinnedRows, row_bytes: int, share: float, order: str, where: str) -> Comparison:
    task, offset = RowTask.of(gpu.sizes.image_bytes, row_bytes, gpu.sizes.seed, order), OFFSETS[where]
    count, resident, batches = task.rows, int(share * task.rows), len(task.ids)
    here, local = memory.rows(count, row_bytes, offset), empty_rows(gpu.device, resident, row_bytes)
    local.copy_(here[:resident])
    sms = gpu.sms if share < 1 else 0
    gather = Gathers(gpu, task, resident, local.data_ptr(), memory.address + offset + resident * row_bytes, sms,
                     prepared=True)  # fmt: skip
    gather.check("gpu-rows", here)
    aligned = memory.rows(count, row_bytes)
    there = (
        local if resident >= batches * len(gather.out) else empty_rows(gpu.device, batches * len(gather.out), row_bytes)
    )
    from_local = float(np.count_nonzero(task.ids < resident) / task.ids.size)
    copies = [(aligned, 1 - from_local), (there, from_local)]
    floor = [(partial(copy_slices, source, gather.out, batches), part) for source, part in copies if part]
    peers: dict[str, Work | str] = {}
    if share == 0:
        peers[CPU] = partial(CopiedRows(gpu.device, here).put, gather.host_ids, gather.out)
    if share == 1:
        peers[TORCH] = lambda: [torch.index_select(local, 0, ids, out=gather.out) for ids in gather.ids]
    if share in (0, 1):
        peers |= gathers(gpu, gather.address, gather.ids, gather.out, here[gather.host_ids[-1]])
    whole_lines = row_bytes % LINE_BYTES == 0 and offset % LINE_BYTES == 0
    aim = {0.0: 0.95 if whole_lines else 0.9, 1.0: 0.85}.get(share, 1 / 1.1)
    return gpu.compare(
        "gpu-rows", gather.run, peers, amount=task.nbytes, unit="B", floor=floor,
        targets={FLOOR: aim, CPU: 3.0, TORCH: 1.0}, row_bytes=row_bytes, on_gpu=share, from_gpu=round(from_local, 4),
        ids=order, where=where, table=format_bytes(count * row_bytes), sms=sms, of_sms=gpu.multiprocessors,
        threads=gpu.sizes.threads,
    )  # fmt: skip
