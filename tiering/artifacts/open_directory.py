"""Open directories: what is read through one stays what it was when the directory was opened, even if replaced."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import weakref
from pathlib import Path

from tiering.artifacts.storage import DESCRIPTORS, name_kind, storage_errors
from tiering.errors import InputError, MissingError

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not make the opener wait


class OpenDirectory:
    """A directory and those of its files that were asked for, open until nobody refers to it.

    `path` is its name in messages, looked up in the directory `within`, if given. `MissingError`: there is none.
    """

    def __init__(self, path: Path, within: OpenDirectory | None = None) -> None:
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

    def open(self, name: str | Path) -> int | None:
        """Open a file or block device by name or absolute path; return its size, ``None`` if there is none."""
        key = str(name)
        if key not in self._descriptors:
            inside = os.path.relpath(key, self.path) if Path(key).is_relative_to(self.path) else key
            try:
                descriptor = _open(inside, _FLAGS, self._descriptors[""])
            except (FileNotFoundError, NotADirectoryError):
                return None
            self._descriptors[key] = descriptor
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
                os.close(self._descriptors.pop(key))
                raise OSError(errno.EINVAL, f"expected a file, found {name_kind(mode)}")
            self._sizes[key] = os.lseek(descriptor, 0, os.SEEK_END)
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

    def link_or_copy(self, name: str, target: Path) -> None:
        """Make `target` the same file as an open one (hard link), or a copy where links do not reach."""
        try:
            os.link(name, target, src_dir_fd=self._descriptors[""])
        except OSError:
            shutil.copyfile(self.place(name), target)
            with target.open("rb") as file:
                os.fsync(file.fileno())


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
