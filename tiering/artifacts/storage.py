"""Disks and files: free space, reserving before writing, durable directories, errors of the operating system."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tiering.errors import StorageError, TieringError
from tiering.units import format_bytes

T = TypeVar("T")
DESCRIPTORS = "/proc/self/fd/"


def display_path(path: str | os.PathLike[str]) -> str:
    """Return a path as a user knows it: the file behind a descriptor, instead of its number."""
    text = os.fspath(path)
    if text.startswith(DESCRIPTORS):
        with suppress(OSError):
            return str(Path(text).readlink())
    return text


def disk_free(path: Path) -> int:
    """Return the bytes free on the file system that holds `path`, or is going to, as `df` counts them."""
    return shutil.disk_usage(nearest_folder(path)).free


def disk_of(path: Path) -> int:
    """Return the number of the file system that holds `path`, or is going to."""
    return nearest_folder(path).stat().st_dev


def nearest_folder(path: Path) -> Path:
    """Return `path`, or the nearest directory around it that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def require_space(wanted: Mapping[Path, int]) -> None:
    """Raise, naming the sum, if a disk cannot hold what is about to be reserved: bytes by directory."""
    sums: dict[int, tuple[Path, int]] = {}
    for folder, nbytes in wanted.items():
        first, before = sums.get(disk_of(folder), (folder, 0))
        sums[disk_of(folder)] = (first, before + nbytes)
    for folder, nbytes in sums.values():
        with storage_errors(folder, nbytes):
            if nbytes > disk_free(folder):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def storage_errors(path: Path | None = None, needed: int = 4096) -> Iterator[None]:
    """Turn ``OSError`` into a `StorageError` that names `path`, by default the error's own file.

    `needed`: bytes the file needs, for the message on a full disk. Writers and public functions do this already.
    """
    try:
        yield
    except TieringError:
        raise
    except OSError as error:
        name, text = error.filename if path is None else path, f"{error.strerror or error}"
        if name is not None and not isinstance(name, int):
            name = Path(display_path(os.fsdecode(name)))
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                text = (
                    f"no space left: {format_bytes(needed)} needed, {format_bytes(disk_free(name.parent))} free; "
                    "make room or choose another disk, then run the same command again"
                )
            text = f"{name}: {text}"
        raise StorageError(error.errno, text) from error


@contextmanager
def open_descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY | os.O_CLOEXEC) -> Iterator[int]:
    """Open a file as a descriptor, and close it in the end."""
    fd = os.open(path, flags, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def reserve(path: Path, nbytes: int) -> None:
    """Create `path` with `nbytes` allocated bytes, so that a full disk shows now and not as SIGBUS later."""
    with storage_errors(path, nbytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_descriptor(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC) as fd:
            try:
                if nbytes:
                    os.posix_fallocate(fd, 0, nbytes)
            except OSError:
                os.ftruncate(fd, 0)  # free what was allocated, so that the message says what is free without this file
                raise


def write_durably(path: Path, data: bytes) -> None:
    """Write a small file and sync it; `StorageError` names it."""
    with storage_errors(path, len(data)), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_raw(path: Path | str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
    """Map a raw little-endian C-order file read-only; an empty shape gives an empty array."""
    if 0 in shape:
        return np.empty(shape, dtype)
    with storage_errors(Path(path)):
        try:
            return np.memmap(path, dtype=dtype, mode="r", shape=shape, offset=offset)
        except ValueError as error:  # numpy's word for a file that has become shorter
            name = display_path(path)
            raise StorageError(errno.EIO, f"{name}: the file was cut while it was open ({error})") from error


def fsync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    with storage_errors(path), open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def missing_folders(folder: Path) -> list[Path]:
    """Return a directory and those around it that do not exist, the outermost first."""
    return [path for path in (*reversed(folder.parents), folder) if not path.exists()]


def make_folders(folder: Path) -> None:
    """Create a directory and those around it, durably."""
    for missing in missing_folders(folder):
        missing.mkdir(exist_ok=True)
        fsync_directory(missing.parent)
    folder.mkdir(exist_ok=True)  # a file in its place is refused
