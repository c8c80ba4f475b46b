"""Memory that workers of a ``torch.utils.data.DataLoader`` share, whether they are forked or spawned."""

from __future__ import annotations

import os
import weakref
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from tiering.artifacts.storage import storage_errors
from tiering.loader.resident import mapped, shared_memory


class SharedBytes:
    """Zeroed memory of no name, which the kernel frees with the last process that maps it.

    ``multiprocessing`` sends its descriptor to a process that is spawned, not what it holds.
    """

    def __init__(self, nbytes: int, descriptor: int | None = None) -> None:
        with storage_errors(Path("memory for rows of a tiered tensor")):
            if descriptor is None:
                descriptor, memory = shared_memory("tiering-tensor", max(1, nbytes))
            else:
                memory = mapped(descriptor, max(1, nbytes))
        self.array = memory[:nbytes]
        """uint8, shape (bytes,)."""
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self.array.size, DupFd(self._descriptor))


def _attach(nbytes: int, descriptor: Any) -> SharedBytes:
    return SharedBytes(nbytes, descriptor.detach())
