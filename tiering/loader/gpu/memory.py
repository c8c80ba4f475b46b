"""Memory that GPUs read: pinned host memory, and files in their own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.artifacts.storage import storage_errors
from tiering.loader.memory import ResidentRows

_lock = threading.Lock()
_ADVICE = (
    "lock less: give the layout a smaller cpu tier, or raise the limit of locked memory (`ulimit -l`, in containers "
    "--ulimit memlock=-1)"
)


def pinned_address(rows: ResidentRows, what: str) -> int:
    """Where GPUs find resident memory; it is pinned by the first call, for all GPUs, and unpinned with its last user.

    Parameters
    ----------
    rows
        From `tiering.loader.memory.load_rows`, private or shared with other processes.
    what
        For messages.

    Raises
    ------
    BudgetError
        If the system does not lock so much.
    """
    if rows.array.size == 0:
        return 0
    with _lock:
        if rows.registration is None:
            with cuda.device_errors(what, _ADVICE):
                rows.registration = cuda.Registration(rows.array.ctypes.data, rows.array.nbytes)
    return int(rows.registration.address)


def pinned(count: int, dtype: npt.DTypeLike, what: str) -> tuple[npt.NDArray[Any], int]:
    """A small array that host and GPUs write and read, and where they find it; freed with the array."""
    with cuda.device_errors(what):
        memory = cuda.PinnedMemory(max(1, count) * np.dtype(dtype).itemsize)
    return memory.array().view(dtype)[:count], memory.address


def device_file(path: Path, nbytes: int, device: int, what: str, shared: bool = False) -> cuda.DeviceMemory:
    """The first bytes of a file in memory of a GPU; `shared`: which other processes may open.

    Raises
    ------
    BudgetError
        If the GPU has less; says how much it has.
    """
    with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
        memory = cuda.DeviceMemory(device, nbytes, shared)
        engine = "threads" if native.uring_unavailable() else "io_uring"
        with storage_errors(path):
            cuda.fill_device(device, memory.address, str(path), 0, nbytes, engine)
    return memory
