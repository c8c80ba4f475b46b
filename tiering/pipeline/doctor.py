"""A check of the machine for tiering: memory, io_uring, locked memory, GPUs, and how fast SSD directories are read."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tiering import cuda, native
from tiering.artifacts.storage import ALIGNMENT, disk_free, storage_errors, write_all
from tiering.errors import InputError, MissingError, TieringError
from tiering.memory import available_memory, total_memory
from tiering.readahead.disk_speed import QueueDepth, measure, random_reads
from tiering.text.units import format_bytes

_DRIVE_WRITES = {
    "ordered": "the GPU sees pages written by drives in order; one kernel reads and copies",
    "flushed": "the GPU sees pages written by drives after a flush by the host; one kernel reads and another copies",
    "none": "not possible: drives cannot write to the GPU's memory (GPUDirect RDMA)",
}
_PIECE = 1 << 20  # the size of the file is a multiple of it, and no less


@dataclass(frozen=True)
class Diagnosis:
    """The state of one capability, such as ``io_uring``, in words and figures; `advice`: how to get what is missing."""

    name: str
    text: str
    advice: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    error: TieringError | None = None


def examine(ssd: Sequence[Path] = (), *, size: int = 1 << 30, seconds: float = 2.0) -> list[Diagnosis]:
    """Examine this machine, and measure the disks of directories by a file of `size` bytes, for `seconds` each."""
    reason = native.uring_unavailable()
    text = "not available: a pool of threads reads rows of the ssd tier" if reason else "allowed"
    uring = Diagnosis("io_uring", text, reason, {"available": not reason})
    return [_memory(), uring, _locked_memory(), _gpu(), _torch()] + [
        _disk(Path(folder), size, seconds) for folder in ssd
    ]


def _memory() -> Diagnosis:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    total, free = total_memory(), available_memory()
    limited = total < machine
    of = f"{format_bytes(total)} allowed by a control group, of" if limited else "all of"
    text = f"{of} the machine's {format_bytes(machine)} usable, {format_bytes(free)} free; --memory sets a lower limit"
    figures = {"machine": machine, "total": total, "available": free, "limited": limited}
    return Diagnosis("memory", text, figures=figures)


def _locked_memory() -> Diagnosis:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Diagnosis("locked memory", "no limit", figures={"limit": None})
    advice = ""
    if not cuda.unavailable() and soft < total_memory():
        advice = (
            "a GPU reads locked host memory; if locking fails, raise the limit: `ulimit -l unlimited`, in "
            "containers `docker run --ulimit memlock=-1`"
        )
    return Diagnosis("locked memory", f"limit {format_bytes(soft)}", advice, {"limit": soft})


def _gpu() -> Diagnosis:
    built = cuda.list_architectures()
    part = f"CUDA part built for compute capability {built.replace(' ', ', ')}" if built else "CUDA part not built"
    served, of_build = cuda.driver_and_build()
    reason = cuda.unavailable()
    infos = [] if reason else [cuda.device_info(device) for device in range(cuda.count_devices())]
    devices = [
        {
            "name": info.name, "memory": info.total_bytes, "capability": info.capability,
            "drive_writes": info.drive_writes,
        } for info in infos
    ]  # fmt: skip
    figures = {"architectures": built.split(), "devices": devices, "driver_cuda": served, "build_cuda": of_build}
    if reason:
        return Diagnosis("gpu", f"no usable GPU; {part}", reason, figures)
    bam = "; ".join(dict.fromkeys(_DRIVE_WRITES[info.drive_writes] for info in infos))
    text = f"{cuda.status()}; engine='bam': {bam}; driver serves CUDA {served}, build needs {of_build}; {part}"
    return Diagnosis("gpu", text, figures=figures)


def _torch() -> Diagnosis:
    try:
        torch = version("torch")
    except PackageNotFoundError:
        needed = "the loader needs torch: pip install 'tiering[torch]'"
        return Diagnosis("torch", "not installed", needed, {"version": None})
    return Diagnosis("torch", torch, figures={"version": torch})


def _disk(folder: Path, size: int, seconds: float) -> Diagnosis:
    name = f"ssd {folder}"
    try:
        figures = measure_disk(folder, size, seconds)
    except TieringError as error:
        return Diagnosis(name, "cannot be measured", error=error)
    direct = "O_DIRECT" if figures["direct"] else "no O_DIRECT: the page cache may serve reads"
    text = (
        f"{direct}; {figures['reads_per_second']:,.0f} random reads of 4 KiB per second ({figures['engine']}); "
        f"{1e6 * figures['latency']:,.0f} us for a single read; the loader's queue depth of "
        f"{figures['depth']} reaches {figures['peak_share']:.0%} of that; large reads: "
        f"{format_bytes(figures['bytes_per_second'])}/s; {format_bytes(figures['free'])} free"
    )
    advice = (
        "" if figures["direct"] else f"{folder}: choose a directory on a local disk (ext4, xfs), not {figures['why']}"
    )
    return Diagnosis(name, text, advice, figures)


def measure_disk(folder: Path, size: int, seconds: float) -> dict[str, Any]:
    """Read a file of random bytes at random, small and large pieces, as the ssd tier is read."""
    if not folder.is_dir():
        raise MissingError(f"--ssd {folder}: no such directory; create it on the disk to measure")
    free = disk_free(folder)
    size = min(size, free // 4) // _PIECE * _PIECE
    if size == 0:
        raise InputError(
            f"--ssd {folder}: a fourth of the free space must have room for {format_bytes(_PIECE)}; found "
            f"{format_bytes(free)} free"
        )
    with storage_errors(folder, size), tempfile.TemporaryFile(dir=folder) as file:
        fd = file.fileno()
        os.posix_fallocate(fd, 0, size)
        fill_random(fd, size)
        # The file has no name: it is opened again through the descriptor.
        path = Path(f"/proc/self/fd/{fd}")
        speed = measure([path], seconds)
        depth = QueueDepth.choose("auto", speed, 1).depth
        reader = native.SsdReader([str(path)], ALIGNMENT, "auto", depth, "auto")
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        reads = random_reads(reader, size, seconds)
        peak = max(speed.reads_per_second, reads)
        return {
            **asdict(speed), "reads_per_second": peak, "depth": depth, "peak_share": reads / peak,
            "free": free, "size": size, "engine": reader.engine, "direct": reader.direct, "why": reader.note,
        }  # fmt: skip


def fill_random(fd: int, size: int) -> None:
    """Fill with random bytes: holes and zeros would be answered without the disk."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, 256, min(size, 16 * _PIECE), np.uint8)
    for start in range(0, size, block.size):
        block[:8] = np.frombuffer(start.to_bytes(8, "little"), np.uint8)
        write_all(fd, block[: size - start], start)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
