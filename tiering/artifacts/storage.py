"""Disks and files: free space, positional and direct I/O, durable and open directories, users' paths, system errors."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import stat
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError, MissingError, StorageError, TieringError
from tiering.text.arguments import is_url, require_local
from tiering.text.units import format_bytes

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 4096  # bytes that addresses, offsets and lengths of direct I/O are multiples of
LINE = 64  # bytes of a cache line: arrays one behind the other in a file or buffer begin at multiples
DESCRIPTORS = "/proc/self/fd/"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not make the opener wait
_KINDS = {
    stat.S_IFDIR: ("a directory", "check the path, or move the directory away"),
    stat.S_IFIFO: ("a pipe", "save its data in a file first"),
    stat.S_IFSOCK: ("a socket", "save its data in a file first"),
    stat.S_IFCHR: ("a device", "save its data in a file first"),
    stat.S_IFBLK: ("a device", "save its data in a file first"),
}


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

    `needed`: bytes the file needs, for the message on a full disk. Writers of directories, tasks and public functions
    do this already: only calls whose errors name no file, such as reads and writes, have to.
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
    """Open a file as a descriptor, and close it in the end; `StorageError` if it cannot be opened."""
    with storage_errors():
        fd = os.open(path, flags, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def reserve(path: Path, nbytes: int, *, shared: bool = False) -> None:
    """Create `path` with `nbytes` allocated bytes, so that a full disk shows now and not as SIGBUS later.

    What is there is lost, unless the file is `shared` with other writers: then a file of this size is taken as it is.
    """
    with storage_errors(path, nbytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_descriptor(path, os.O_CREAT | os.O_RDWR | (0 if shared else os.O_TRUNC)) as fd:
            if shared and os.fstat(fd).st_size == nbytes:
                return
            try:
                if nbytes:
                    os.posix_fallocate(fd, 0, nbytes)
            except OSError:
                if not shared:  # free what was allocated, so that the message says what is free without this file
                    os.ftruncate(fd, 0)
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
            return np.memmap(os.fspath(path), dtype=dtype, mode="r", shape=shape, offset=offset)
        except ValueError as error:  # numpy's word for a file that has become shorter
            name = display_path(path)
            raise StorageError(errno.EIO, f"{name}: the file was truncated while it was open ({error})") from error


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


def padded(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned_bytes(nbytes: int) -> Bytes:
    """Return zeroed memory for direct I/O, aligned to a page; it is freed with the array."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def open_direct(path: Path) -> int | None:
    """Open a file for direct reads and writes; ``None`` where the file system has none."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        return None


def read_all(fd: int, out: memoryview, offset: int) -> None:
    """Fill `out` with the bytes of a file from `offset` on; `StorageError` names a file that fails or ends before."""
    with storage_errors(Path(f"{DESCRIPTORS}{fd}")):
        while len(out):
            if (done := os.preadv(fd, [out], offset)) == 0:
                raise OSError(errno.EIO, f"ends at byte {offset}, but {offset + len(out)} were expected")
            out, offset = out[done:], offset + done


def write_all(fd: int, data: Bytes, offset: int) -> None:
    """Write all of `data` at `offset`; `StorageError` names the file."""
    view = data.data
    with storage_errors(Path(f"{DESCRIPTORS}{fd}"), offset + data.size):
        while len(view):
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done


@cache
def direct_engine() -> str:
    """Return the best engine for direct reads on this machine."""
    return "threads" if native.uring_unavailable() else "io_uring"


def name_kind(mode: int) -> str:
    """Return the name that messages have for the kind of a file that is no regular one."""
    return _KINDS[stat.S_IFMT(mode)][0]


def file_exists(path: Path, what: str) -> bool:
    """Return whether a regular file is at `path`, links followed; `InputError`: other than `what` was expected."""
    mode = _mode(path, f"{what}, a regular file")
    if mode is None:
        return False
    if not stat.S_ISREG(mode):
        advice = _KINDS[stat.S_IFMT(mode)][1]
        raise InputError(f"{path}: expected {what}, a regular file, found {name_kind(mode)}; {advice}")
    if not is_url(str(path)) and not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise InputError(f"{path}: expected {what}, a regular file, found one without read permission; give permission")
    return True


def require_file(path: Path, what: str) -> Path:
    """Return `path` if there is a regular file at it; `MissingError` if there is nothing."""
    if not file_exists(path, what):
        raise MissingError(f"{path}: expected {what}, found nothing; check the path")
    return path


def is_folder(path: Path, what: str = "a directory") -> bool:
    """Return whether there is a directory at `path`; `InputError` for a link that leads nowhere."""
    mode = _mode(path, what)
    return mode is not None and stat.S_ISDIR(mode)


def entries(folder: Path) -> list[Path]:
    """Return the paths directly inside a directory, by name; `InputError` if it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: expected a directory to read, found: {error.strerror}; check it") from error


def _mode(path: Path, what: str) -> int | None:
    """Return the mode of the file at `path`, links followed; ``None`` for nothing."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            if not os.path.lexists(path):
                return None
            loop = error.errno == errno.ELOOP
            target = "in a circle" if loop else f"to {path.readlink()}, which does not exist"
            raise InputError(
                f"{path}: expected {what}, found a symbolic link {target}; restore its target, or remove the link"
            ) from error
        raise InputError(f"{path}: expected {what}, found: {error.strerror}; check the path") from error


class OpenDirectory:
    """A directory and its requested files, open until nobody refers to it.

    `path` is its name in messages, looked up in the directory `within`, if given. `MissingError`: there is none.
    """

    piece_bytes = 8 << 20  # bytes that are well read at once

    def __init__(self, path: Path, within: OpenDirectory | None = None) -> None:
        require_local(path=path)
        self.path = path
        self._sizes: dict[str, int] = {}
        self._descriptors: dict[str, int] = {}
        weakref.finalize(self, _close, self._descriptors)
        name, within_fd = (path, None) if within is None else (path.name, within._descriptors[""])
        with storage_errors(path):
            try:
                self._descriptors[""] = _open(name, _FLAGS | os.O_DIRECTORY, within_fd)
            except FileNotFoundError:
                raise MissingError(f"{path}: no such file or directory") from None
            except NotADirectoryError:
                raise MissingError(f"{path}: expected the directory of an artifact, found a file") from None
            except ValueError as error:
                raise InputError(f"expected the name of a directory, found {str(path)!r} ({error})") from None

    def inside(self, name: str) -> OpenDirectory:
        """Open a directory in this one."""
        return OpenDirectory(self.path / name, self)

    def open(self, name: str | Path) -> int | None:
        """Open a file or block device by name or absolute path; return its size, ``None`` if there is none."""
        key = str(name)
        if key not in self._descriptors:
            inside = os.path.relpath(key, self.path) if Path(key).is_relative_to(self.path) else key
            try:
                descriptor = _open(inside, _FLAGS, self._descriptors[""])
            except (FileNotFoundError, NotADirectoryError):
                return None
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
                os.close(descriptor)
                raise OSError(errno.EINVAL, f"expected a file, found {name_kind(mode)}")
            self._sizes[key] = os.lseek(descriptor, 0, os.SEEK_END)
            if self._descriptors.setdefault(key, descriptor) != descriptor:  # another thread was first
                os.close(descriptor)
        return self._sizes[key]

    def place(self, name: str | Path) -> str:
        """Return a path that opens a file again, whatever its name is by now; `MissingError` if there is none."""
        with storage_errors(self.path / name):
            if self.open(name) is None:
                raise MissingError(f"{self.path / name}: the file does not exist; make the artifact again")
        return f"{DESCRIPTORS}{self._descriptors[str(name)]}"

    def read(self, name: str) -> bytes:
        """Return the content of an open file."""
        return os.pread(self._descriptors[name], self._sizes[name], 0)

    def reader(self, name: str | Path) -> Callable[[int, int, Bytes], Bytes]:
        """Return a function that returns bytes [begin, end) of a file, perhaps in the memory that it is given."""
        self.place(name)
        descriptor = self._descriptors[str(name)]

        def read(begin: int, end: int, memory: Bytes) -> Bytes:
            read_all(descriptor, memory[: end - begin].data, begin)
            return memory[: end - begin]

        return read

    def link_or_copy(self, name: str, target: Path) -> None:
        """Make `target`, or replace it: the same file as an open one (hard link), a copy where links do not reach."""
        with storage_errors(target, self.open(name) or 0):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            try:
                os.link(name, target, src_dir_fd=self._descriptors[""])
            except OSError:
                shutil.copyfile(self.place(name), target)
                with open_descriptor(target) as fd:
                    os.fsync(fd)


def require_descriptors(count: int) -> None:
    """Raise ``OSError`` unless this process can open `count` files more."""
    descriptors: dict[str, int] = {}
    try:
        for number in range(count):
            descriptors[str(number)] = _open("/", _FLAGS | os.O_DIRECTORY, None)
    finally:
        _close(descriptors)


def _open(name: str | Path, flags: int, within: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=within)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the soft limit is there for `select`, not for memory
    return os.open(name, flags, dir_fd=within)


def _close(descriptors: dict[str, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)
