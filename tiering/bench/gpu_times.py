"""What an access costs more from host memory than from the GPU's, by the kernels that training runs.

Rows: the gather, by as many multiprocessors as it takes in training, from either memory, at several sizes; a line is
fitted. Lists: the sampler with all lists in host memory and all on the GPU, at several fanouts; a list read and an
entry drawn are fitted. ``tiering layout --split auto --gpu-times`` takes the file.
"""

from __future__ import annotations

import json
from statistics import median

from tiering import cuda
from tiering.artifacts.storage import storage_errors
from tiering.bench.access_fit import fit_access_times, times_document
from tiering.bench.gpu_layouts import layouts
from tiering.bench.gpu_rows import ROW_BYTES, Gathers, RowTask
from tiering.bench.gpu_sampling import OnGpu, sampling_task
from tiering.bench.gpu_side import GpuSide, LockedRows, locked_rows
from tiering.bench.gpu_tensors import empty_rows, host_rows, random_rows_there
from tiering.bench.harness import Comparison
from tiering.bench.peers import expect
from tiering.bench.sizes import Sizes
from tiering.units import format_bytes

HOST = "the same from host memory"
FANOUTS = ((2, 2, 2), (5, 5, 5), (10, 10, 10), (25, 10))


def bench_gpu_times(sizes: Sizes) -> list[Comparison]:
    """Rows at each size, batches at each choice of fanouts; the fitted seconds are parameters of all."""
    gpu = GpuSide(sizes)
    memory = locked_rows(sizes.image_bytes, sizes.seed)
    rows = [_rows(gpu, sizes, memory, row_bytes) for row_bytes in ROW_BYTES]
    lists = _lists(gpu, sizes)
    times = fit_access_times(
        [(each.parameters["row_bytes"], _more(each) / each.parameters["rows"]) for each in rows],
        [(each.parameters["lists"], each.parameters["entries"], _more(each)) for each in lists],
        gpu.name,
    )
    document = times_document(times)
    if (path := sizes.gpu_times_out) is not None:
        with storage_errors(path):
            path.write_text(json.dumps(document, indent=2) + "\n")
    results = [*rows, *lists]
    results[-1].parameters["seconds_saved"] = document
    return results


def _more(result: Comparison) -> float:
    """Seconds that a pass takes longer from host memory: the median over pairs."""
    (host,) = result.peers
    more = [theirs - ours for ours, theirs in zip(result.seconds, host.seconds, strict=True)]
    return median(more) / int(result.parameters["passes"])


def _rows(gpu: GpuSide, sizes: Sizes, memory: LockedRows, row_bytes: int) -> Comparison:
    task = RowTask.of(sizes.image_bytes, row_bytes, sizes.seed)
    rows, index = task.rows, gpu.device.index
    out = empty_rows(gpu.device, task.ids.shape[1], row_bytes)
    there = random_rows_there(gpu.device, rows, row_bytes, sizes.seed)
    here = host_rows(memory.array, rows, row_bytes)
    local = cuda.RowTable(index, row_bytes, [rows] * 4, there.data_ptr(), [], 0)
    host = cuda.RowTable(index, row_bytes, [0, 0, rows, rows], 0, [], memory.address)
    ours, theirs = (Gathers(gpu, table, task, out, gpu.sms) for table in (local, host))
    ours.check("gpu-times", there)
    theirs.check("gpu-times", here)
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
