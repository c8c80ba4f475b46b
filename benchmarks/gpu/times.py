"""Extra cost of an access to host memory rather than the GPU's, by the kernels that training runs.

Rows: the gather, by as many multiprocessors as it takes in training, from either memory, at several sizes; a line is
fitted. Lists: the sampler with all lists in host memory and all on the GPU, at several fanouts; a list read and an
entry drawn are fitted. ``tiering layout --access-costs`` takes the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.gpu.host_memory import PinnedRows
from benchmarks.gpu.rows import ROW_BYTES, Gathers, RowTask
from benchmarks.gpu.sampling import OnGpu, sampling_task
from benchmarks.gpu.side import GpuSide, empty_rows, layouts
from benchmarks.harness import Comparison, Sizes, expect
from tiering.artifacts.storage import storage_errors
from tiering.errors import InputError
from tiering.text.units import format_bytes

HOST = "the same from host memory"
FANOUTS = ((2, 2, 2), (5, 5, 5), (10, 10, 10), (25, 10))


def times(sizes: Sizes) -> list[Comparison]:
    """Measure rows at each size, batches at each choice of fanouts; the fitted seconds are a parameter of the last."""
    gpu = GpuSide(sizes)
    memory = PinnedRows(gpu.device, sizes.image_bytes, sizes.seed)
    rows = [_rows(gpu, memory, row_bytes) for row_bytes in ROW_BYTES]
    lists = _lists(gpu, sizes)
    document = fit_access_times(
        [(timed.parameters["row_bytes"], more(timed) / timed.parameters["rows"]) for timed in rows],
        [(timed.parameters["lists"], timed.parameters["entries"], more(timed)) for timed in lists],
        gpu.name,
    )
    if (path := sizes.gpu_times_out) is not None:
        with storage_errors(path):
            path.write_text(json.dumps(document, indent=2) + "\n")
    lists[-1].parameters["seconds_saved"] = document
    return [*rows, *lists]


def more(result: Comparison) -> float:
    """Return the seconds that a pass takes longer from host memory: the median over pairs."""
    (host,) = result.peers
    return median(theirs - ours for ours, theirs in zip(result.ours.seconds, host.seconds, strict=True))


def _rows(gpu: GpuSide, memory: PinnedRows, row_bytes: int) -> Comparison:
    task = RowTask.of(gpu.sizes.image_bytes, row_bytes, gpu.sizes.seed)
    rows = task.rows
    on_gpu, on_host = empty_rows(gpu.device, rows, row_bytes), memory.rows(rows, row_bytes)
    on_gpu.copy_(on_host)
    ours = Gathers(gpu, task, rows, on_gpu.data_ptr(), 0, gpu.sms)
    theirs = Gathers(gpu, task, 0, 0, memory.address, gpu.sms, ours.out)
    for gather in (ours, theirs):
        gather.check("gpu-times", on_host)
    return gpu.compare(
        "gpu-times", ours.run, {HOST: theirs.run}, amount=task.nbytes, unit="B", row_bytes=row_bytes,
        rows=int(task.ids.size), table=format_bytes(rows * row_bytes), sms=gpu.sms, of_sms=gpu.multiprocessors,
    )  # fmt: skip


def _lists(gpu: GpuSide, sizes: Sizes) -> list[Comparison]:
    results = []
    with layouts(sizes, with_rows=False) as made:
        path = made.make("layout", "--cpu", "100%")
        for fanouts in FANOUTS:
            task = sampling_task(made, path, fanouts)
            local, host = (OnGpu(gpu, path, share, task) for share in (1.0, 0.0))
            lists, entries = local.run()
            expect("gpu-times", host.run() == (lists, entries), "lists and entries")
            about = {**made.about(), "fanouts": list(fanouts), "batches": len(task.seeds)}
            about |= {"lists": lists, "entries": entries}
            peers = {HOST: host.run}
            results.append(gpu.compare("gpu-times", local.run, peers, amount=entries, unit="edges", **about))
    return results


def fit_access_times(
    rows: Sequence[tuple[int, float]], lists: Sequence[tuple[int, int, float]], device: str
) -> dict[str, Any]:
    """Return the extra cost of an access to host memory, as ``tiering layout --access-costs`` reads it.

    `rows`: per size of a row its bytes, and seconds more per row. `lists`: per choice of fanouts lists read, entries
    drawn, and seconds more for all of them.
    """
    base, per_byte = _fit([(1.0, float(nbytes)) for nbytes, _ in rows], [longer for _, longer in rows])
    per_list, per_entry = _fit([(float(n), float(m)) for n, m, _ in lists], [longer for *_, longer in lists])
    if not any((base, per_byte, per_list, per_entry)):
        raise InputError("gpu-times: no access was slower from host memory than from the GPU's; measure larger tables")
    return {
        "device": device,
        "feature_seconds": {"base": base, "per_byte": per_byte},
        "list_seconds": per_list,
        "neighbour_seconds": per_entry,
    }


def _fit(terms: Sequence[tuple[float, float]], seconds: Sequence[float]) -> tuple[float, float]:
    """Return two non-negative factors with the least relative error."""
    matrix, wanted = np.array(terms), np.array(seconds)
    weights = 1 / np.maximum(np.abs(wanted), np.finfo(float).tiny)
    matrix = matrix * weights[:, None]
    scale = np.maximum(np.abs(matrix).max(axis=0), np.finfo(float).tiny)
    first, second = nnls(matrix / scale, wanted * weights)[0] / scale
    return float(first), float(second)
