"""Times of the GPU in an epoch of GraphSAGE, kernel by kernel, as torch's profiler sees it.

The epoch is that of ``gpu-epoch`` with a tenth of the rows in the memory of the GPU; another one ran before. Kernels of
all streams are added up, so shares are of the time that kernels and copies take together; how busy that kept the GPU
at most is among the parameters. On a simulated GPU, operations of torch on the processor stand in.
"""

from __future__ import annotations

import time
from typing import Any

from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from benchmarks.gpu.epochs import ON_GPU, Epochs
from benchmarks.gpu.side import GpuSide, layouts
from benchmarks.harness import Sizes, Table

HEADS = ["kernel", "calls", "ms", "us a call", "share"]
_MOST_ROWS, _MOST_LETTERS = 30, 100


def profile(sizes: Sizes) -> Table:
    """Measure kernels and copies of one epoch, the longest first."""
    gpu = GpuSide(sizes)
    with layouts(sizes) as made:
        epochs = Epochs(gpu, made, made.make("tiers", "--gpu", ON_GPU, "--cpu", "100%"))
        try:
            return _profile(gpu, epochs, {**made.about(), "row_bytes": sizes.row_bytes, "sms": gpu.sms})
        finally:
            epochs.close()


def _profile(gpu: GpuSide, epochs: Epochs, about: dict[str, Any]) -> Table:
    epochs.run()
    gpu.finish()
    on_gpu = gpu.device.torch_device.type == "cuda"
    with profiler(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        begin = time.perf_counter()
        epochs.run()
        gpu.finish()
        seconds = time.perf_counter() - begin
    timed = [(event.key, event.count, _microseconds(event, on_gpu)) for event in seen.key_averages()]
    rows = table_rows(timed)
    busy = sum(took for *_, took in timed) / 1e6 / seconds
    about |= {"batches": len(epochs.loader), "epoch_seconds": round(seconds, 4), "busy_at_most": round(busy, 3)}
    return Table(
        "gpu-profile", about | {"seen": "kernels and copies" if on_gpu else "operations of torch"}, HEADS, rows
    )


def _microseconds(event: Any, on_gpu: bool) -> float:
    """Return the time of a kernel, or an operation on the processor, in all calls; 0 for other events."""
    if not on_gpu:
        return float(event.self_cpu_time_total)
    kernel = str(event.device_type).endswith("CUDA") and not getattr(event, "is_user_annotation", False)
    return float(event.self_device_time_total) if kernel else 0.0


def table_rows(timed: list[tuple[str, int, float]]) -> list[list[Any]]:
    """Return name, calls, milliseconds, microseconds of a call, share; longest first, those beyond 30 in one row."""
    timed = sorted((each for each in timed if each[2] > 0), key=lambda each: -each[2])
    first, rest = timed[:_MOST_ROWS], timed[_MOST_ROWS:]
    if rest:
        first.append((f"{len(rest)} others", sum(calls for _, calls, _ in rest), sum(took for *_, took in rest)))
    whole = sum(took for *_, took in first)
    return [[_short(name), calls, took / 1e3, took / calls, took / whole] for name, calls, took in first]


def _short(name: str) -> str:
    """Return a kernel's name without characters that break a table; template types of long names are cut off."""
    name = name.replace("|", "/").replace("\n", " ")
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 3] + "..."
