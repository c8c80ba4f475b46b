"""The store of shuffle files and records: a directory that all machines see under the same path."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.storage import Bytes, open_descriptor, read_all, storage_errors
from tiering.errors import FormatError, MissingError, StorageError
from tiering.text.arguments import require_local

_TURN = 1 << 30  # bytes that one call to the system reads or writes; Linux takes no more than 2 GiB


class Store:
    """Whole objects under keys such as ``job/step/000001.json``, which are written once and never change.

    Failures are a `StorageError` that names the key, a missing object is a `MissingError`. Nothing is flushed: after a
    power cut readers notice torn objects by their checksums.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        require_local("a directory", store=root)
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - keep symbolic links in the name as given

    @property
    def url(self) -> str:
        """The name by which any process of any machine."""
        return str(self.root)

    def size(self, key: str) -> int | None:
        """Return the bytes of an object; ``None`` if it is not there."""
        try:
            return (self.root / key).stat().st_size
        except FileNotFoundError:
            return None

    def read(self, key: str, begin: int = 0, nbytes: int | None = None, out: Bytes | None = None) -> Bytes:
        """Return content of an object, by default up to its end, perhaps in `out`; `FormatError` if it ends before."""
        with self.open(key) as found:
            return found.read(begin, max(0, found.size - begin) if nbytes is None else nbytes, out)

    @contextmanager
    def open(self, key: str) -> Iterator[StoredObject]:
        """Open an object for several reads; raises the errors of `read`."""
        path = self.root / key
        try:
            with open_descriptor(path) as fd:
                yield StoredObject(path, fd, os.fstat(fd).st_size)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise MissingError(f"{path}: the file is missing; it may have been removed while a job used it") from None

    def writer(self, key: str) -> ObjectWriter:
        """Begin an object under a key that nobody else uses."""
        return ObjectWriter(self.root / key)

    def put_if_absent(self, key: str, data: bytes) -> bytes:
        """Put a small object unless the key has one, which one of several processes does; return the key's object."""
        path = self.root / key
        own = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        with storage_errors(path, len(data)):
            try:
                with os.fdopen(_create(own), "wb") as file:
                    file.write(data)
                os.link(own, path)
                return data
            except FileExistsError:
                return path.read_bytes()
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                    raise StorageError(
                        error.errno, f"{path}: this file system has no hard links, which tasks need; choose another"
                    ) from error
                raise
            finally:
                own.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        (self.root / key).unlink(missing_ok=True)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys in one folder that begin with a prefix."""
        folder, _, own = prefix.rpartition("/")
        return [f"{folder}/{path.name}" for path in (self.root / folder).glob(f"{own}*")]

    def clear(self, folder: str) -> None:
        """Remove all objects whose keys begin with ``folder/``."""
        shutil.rmtree(self.root / folder, ignore_errors=True)  # what a zombie still writes is nobody's
        with suppress(OSError):
            self.root.rmdir()


def _create(path: Path) -> int:
    """Open a new file to write; its directory is made if it is missing."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


@dataclass(frozen=True)
class StoredObject:
    """An object that is open."""

    path: Path
    fd: int
    size: int  # bytes

    def read(self, begin: int, nbytes: int, out: Bytes | None = None) -> Bytes:
        """Return content, perhaps in `out`; `FormatError` if the object ends before."""
        if begin + nbytes > self.size:
            raise FormatError(f"{self.path}: expected at least {begin + nbytes} bytes, found {self.size}")
        out = np.empty(nbytes, np.uint8) if out is None else out
        read_all(self.fd, out.data, begin)
        return out


class ObjectWriter(AbstractContextManager["ObjectWriter"]):
    """An object being written, front to back; a context manager: it is whole once that has ended well, else gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _create(path)

    def write(self, data: np.ndarray[Any, Any]) -> None:
        """Append the bytes of a contiguous array."""
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        with storage_errors(self._path, view.nbytes):
            while view:
                view = view[os.write(self._fd, view[:_TURN]) :]

    def __exit__(self, kind: object, *error: object) -> None:
        whole = False
        try:
            with storage_errors(self._path):
                os.close(self._fd)  # file systems of clusters say here what they could not write
            whole = kind is None
        finally:
            if not whole:
                self._path.unlink(missing_ok=True)
