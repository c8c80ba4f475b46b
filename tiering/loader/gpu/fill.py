"""Files into the memory of a GPU, in bulk: by our own reads and copies, or by kvikio (cuFile) where that is installed.

kvikio lets SSDs write to the memory of a GPU where GPUDirect Storage works: nothing passes through host memory. It has
one call for each extent, so it fills tiers, and rows of batches are never read by it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from tiering import cuda, native
from tiering.artifacts.held import shown
from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, FormatError, StorageError
from tiering.loader.options import DeviceOptions

Fill: TypeAlias = Callable[[int, int, Path, int], None]
"""(number of a GPU, address there, file, bytes): the first bytes of the file are at the address when it returns."""
GDS = "GPUDirect Storage"
_CANNOT = (ImportError, OSError, RuntimeError)
"""What kvikio raises where it is missing, or where a library that it needs is."""
_log = logging.getLogger(__name__)


class _DeviceBytes:
    """Memory of a GPU as kvikio takes it: an object with the CUDA Array Interface, version 3."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def find_fill(kvikio: str = DeviceOptions.kvikio) -> Fill:
    """What fills the memory of a GPU from files: the one place where this is chosen.

    Parameters
    ----------
    kvikio
        See `tiering.loader.options.DeviceOptions`, which has looked at the value.

    Raises
    ------
    CapabilityError
        If it is ``on`` and kvikio cannot be imported.
    """
    if kvikio == "off":
        return fill_by_us
    try:
        cufile = import_module("kvikio.cufile")  # a folder of the name kvikio would do as a module
    except _CANNOT as error:
        if kvikio == "on":
            major = cuda.driver_and_build()[1].partition(".")[0] or "13"
            raise CapabilityError(
                f"kvikio='on': kvikio cannot be imported ({error}); pip install kvikio-cu{major}, or use kvikio='auto'"
            ) from None
        return fill_by_us
    if kvikio == "on":
        return lambda *request: fill_by_kvikio(cufile, *request)
    return _careful(cufile) if gds_state() == GDS else fill_by_us


def fill_by_us(device: int, address: int, path: Path, nbytes: int) -> None:
    """Read past the page cache into two pinned buffers in turn, and copy from there; see ``fill.hpp``."""
    engine = "threads" if native.uring_unavailable() else "io_uring"
    with storage_errors(path):
        cuda.fill_device(device, address, str(path), 0, nbytes, engine)


def fill_by_kvikio(cufile: ModuleType, device: int, address: int, path: Path, nbytes: int) -> None:
    """One read of kvikio, which cuts it into tasks (``KVIKIO_TASK_SIZE``) for its threads (``KVIKIO_NTHREADS``).

    kvikio finds the GPU by the address; the number serves those who fill by themselves.
    """
    if not nbytes:
        return
    try:
        with storage_errors(path), cufile.CuFile(path, "r") as file:
            read = int(file.pread(_DeviceBytes(address, nbytes), nbytes, 0).get())
    except RuntimeError as error:  # what kvikio makes of errors of CUDA, cuFile and the system alike
        message = f"{shown(path)}: kvikio could not read it: {error}; kvikio='off' reads without it"
        raise StorageError(errno.EIO, message) from error
    if read != nbytes:
        raise FormatError(f"{shown(path)}: ends at byte {read}, expected {nbytes}; make the layout again")


def gds_state() -> str:
    """What kvikio would do with GPUDirect Storage here, in a word or the reason why it is not asked."""
    try:
        if import_module("kvikio.defaults").is_compat_mode_preferred():
            return "compatibility mode"
        available = import_module("kvikio.cufile_driver").get("is_gds_available")
    except (AttributeError, *_CANNOT) as error:  # none, an older one, a driver that does not answer
        return f"not known: {error}"
    return GDS if available else "cuFile without GPUDirect Storage"


def _careful(cufile: ModuleType) -> Fill:
    """By kvikio, and by us what it fails to read: a file system may not take part in GPUDirect Storage."""

    def fill(device: int, address: int, path: Path, nbytes: int) -> None:
        try:
            fill_by_kvikio(cufile, device, address, path, nbytes)
        except StorageError as error:
            _log.warning("%s; it is read without kvikio", str(error))  # the error itself would keep the memory
            fill_by_us(device, address, path, nbytes)

    return fill


def device_file(
    path: Path, nbytes: int, device: int, what: str, shared: bool = False, fill: Fill = fill_by_us
) -> cuda.DeviceMemory:
    """The first bytes of a file in memory of a GPU; `shared`: which other processes may open."""
    with cuda.device_errors(what, "make the layout's gpu tier smaller, or end other programs on this GPU"):
        memory = cuda.allocate(device, nbytes, shared)
        fill(device, memory.address, path, nbytes)
    return memory
