"""The file behind mapped memory, whichever library mapped it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import open_raw


def find_mapping(array: npt.NDArray[Any]) -> tuple[Path, int] | None:
    """Return the file that a contiguous array is mapped from, and the position of its first byte in the file.

    ``None`` for memory of no file. Files of the kernel's own (shared memory, huge pages) have names such as
    ``/memfd:NAME``; the name of a file that was removed ends with `` (deleted)``.
    """
    address = np.asarray(array).ctypes.data
    if array.nbytes == 0:
        return None
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        bounds, _, offset, _, inode, *path = line.split(maxsplit=5)
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        if begin <= address < end:
            return (Path(path[0]), int(offset, 16) + address - begin) if path and inode != "0" else None
    return None


def map_again(array: npt.NDArray[Any], path: Path) -> tuple[npt.NDArray[Any], int | None]:
    """Return an array that a library has mapped from `path` as a read-only `np.memmap`, and its position in the file.

    Any other array is returned as it is, with ``None``.
    """
    file, offset = find_mapping(array) or (None, 0)
    if file is None or min(array.strides, default=0) < 0 or not path.exists() or not path.samefile(file):
        return array, None
    if offset % array.itemsize:
        return array.copy(), None
    span = 1 + sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) // array.itemsize
    flat = open_raw(path, array.dtype, (span,), offset)
    return np.ndarray(array.shape, array.dtype, flat, strides=array.strides), offset
