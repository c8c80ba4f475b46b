"""Host memory that GPUs read by themselves: page-locked once per process, for all GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.loader.memory import ResidentRows

_lock = threading.Lock()
_ADVICE = (
    "lock less: give the layout a smaller cpu tier, or raise the limit of locked memory (`ulimit -l`, in containers "
    "--ulimit memlock=-1)"
)


def locked_address(rows: ResidentRows, what: str) -> int:
    """Where GPUs find resident memory; it is page-locked by the first call and unlocked with its last holder.

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
