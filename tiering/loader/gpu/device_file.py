"""Bytes of a file in the memory of a GPU."""

from __future__ import annotations

from pathlib import Path

from tiering import cuda
from tiering.artifacts.storage import storage_errors
from tiering.loader.engines import io_uring_unavailable


def device_file(path: Path, nbytes: int, device: int, what: str, shared: bool = False) -> cuda.DeviceMemory:
    """The first bytes of a file in memory of a GPU; `shared`: which other processes may open.

    Raises
    ------
    BudgetError
        If the GPU has less; says how much it has.
    """
    with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
        memory = cuda.DeviceMemory(device, nbytes, shared)
        engine = "threads" if io_uring_unavailable() else "io_uring"
        with storage_errors(path):
            cuda.fill_device(device, memory.address, str(path), 0, nbytes, engine)
    return memory
