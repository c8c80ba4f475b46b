"""Rows of which the hottest lie in the GPU's memory and the others in host memory, by one gather.

Accesses follow a power law over ranks, so the order of ranks is that of the scores. The floor is what the busier of the
two memories needs to copy the bytes that fall to it: neither waits for the other.
"""

from __future__ import annotations

import numpy as np

from tiering import cuda
from tiering.bench.gpu_rows import ROW_BYTES, Gathers, RowTask
from tiering.bench.gpu_side import GpuSide, LockedRows, locked_rows
from tiering.bench.gpu_tensors import copy_again, copy_slices, empty_rows, host_rows
from tiering.bench.harness import Comparison, Peer
from tiering.bench.sizes import Sizes, Work
from tiering.units import format_bytes

SHARE = 0.1
"""Of the rows: those in the memory of the GPU."""
EXPONENT = 1.0
"""The row of rank r is asked for in proportion to (r + 1) ** -EXPONENT."""
FLOOR = "floor: the busier memory copies its bytes"
WITHIN = 1.1
"""Aimed at: at most this many times the floor."""
_PAGE = 4096


def power_law_task(nbytes: int, row_bytes: int, seed: int) -> RowTask:
    """As many batches as `RowTask.of` makes, drawn by the power law; none twice in a batch, like a sampler's nodes."""
    task = RowTask.of(nbytes, row_bytes, seed)
    sums = np.cumsum(np.arange(1, task.rows + 1) ** -EXPONENT)
    rng = np.random.default_rng(seed)
    drawn = [np.searchsorted(sums, rng.random(ids.size) * sums[-1], side="right") for ids in task.ids]
    batches = [np.unique(np.minimum(ranks, task.rows - 1)) for ranks in drawn]
    width = min(batch.size for batch in batches)
    ids = np.stack([rng.permutation(batch)[:width] for batch in batches])
    return RowTask(task.rows, row_bytes, ids.astype(np.int64))


def bench_gpu_mixed_rows(sizes: Sizes) -> list[Comparison]:
    """One row in ten on the GPU."""
    gpu = GpuSide(sizes)
    memory = locked_rows(sizes.image_bytes + _PAGE, sizes.seed)
    return [
        _mixed_rows(gpu, sizes, memory, power_law_task(sizes.image_bytes, row_bytes, sizes.seed))
        for row_bytes in ROW_BYTES
    ]


def _mixed_rows(gpu: GpuSide, sizes: Sizes, memory: LockedRows, task: RowTask) -> Comparison:
    rows, row_bytes, held = task.rows, task.row_bytes, max(1, int(SHARE * task.rows))
    batches, width = task.ids.shape
    here = host_rows(memory.array, rows, row_bytes)
    local = empty_rows(gpu.device, held, row_bytes)
    local.copy_(here[:held])
    host = memory.address + held * row_bytes
    table = cuda.RowTable(gpu.device.index, row_bytes, [held, held, rows, rows], local.data_ptr(), [], host)
    out, there = (empty_rows(gpu.device, width, row_bytes) for _ in range(2))
    gather = Gathers(gpu, table, task, out, gpu.sms)
    gather.check("gpu-mixed-rows", here)
    from_local = int(np.count_nonzero(task.ids < held))
    # Rows of a pass that each memory gives, and a pass that copies as many from it alone as all of them are.
    memories: list[tuple[int, Work]] = [
        (task.ids.size - from_local, lambda: copy_slices(here, out, batches)),
        (from_local, lambda: copy_again(there, out, batches)),
    ]
    seconds, floor = _in_turn(gpu, sizes, gather, memories)
    about = {
        "row_bytes": row_bytes, "table": format_bytes(rows * row_bytes), "on_gpu": SHARE, "exponent": EXPONENT,
        "from_gpu": round(from_local / task.ids.size, 4), "sms": gpu.sms, "of_sms": gpu.multiprocessors,
        "repeats": sizes.repeats,
    }  # fmt: skip
    return Comparison("gpu-mixed-rows", about, seconds, [floor], task.nbytes, "B")


def _in_turn(gpu: GpuSide, sizes: Sizes, gather: Gathers, memories: list[tuple[int, Work]]) -> tuple[list[float], Peer]:
    """Seconds of a pass of ours, and of the floor: the copies are timed one by one in the same turn."""
    total = sum(rows for rows, _ in memories)
    works = [gather.run, *(copy for _, copy in memories)]
    passes = [gpu.passes(work) for work in works]
    seconds, floor = [], Peer(FLOOR, target=1 / WITHIN)
    for _ in range(sizes.repeats):
        ours, *copies = (gpu.seconds(work, count) / count for work, count in zip(works, passes, strict=True))
        seconds.append(ours)
        floor.seconds.append(max(spent * rows / total for spent, (rows, _) in zip(copies, memories, strict=True)))
    return seconds, floor
