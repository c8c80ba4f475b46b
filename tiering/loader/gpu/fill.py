"""Files into the memory of a GPU, in bulk."""

from __future__ import annotations

from pathlib import Path

from tiering import cuda, native
from tiering.artifacts.storage import core_errors


def fill_memory(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read the first bytes of a file to an address of a GPU: past the page cache into two pinned buffers in turn, and
    from there by copies; see ``fill.hpp``.
    """
    engine = "threads" if native.uring_unavailable() else "io_uring"
    with core_errors():
        cuda.fill_device(device, address, str(path), 0, nbytes, engine)


def device_file(path: Path, nbytes: int, device: int, what: str, shared: bool = False) -> cuda.DeviceMemory:
    """The first bytes of a file in memory of a GPU; `shared`: which other processes may open."""
    with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
        memory = cuda.allocate(device, nbytes, shared)
        fill_memory(device, memory.address, path, nbytes)
    return memory
