"""Paths of remote files, for readers of local files: read in place by ranges, or copied for what opens local files."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any

import numpy as np

from tiering.artifacts.remote import RemoteFolder, read_range
from tiering.artifacts.remote_cache import RemoteCache
from tiering.artifacts.storage import Bytes
from tiering.errors import InputError
from tiering.text.arguments import is_url
from tiering.text.units import format_bytes

RANGE_BYTES, RANGES = 4 << 20, 8  # bytes of the longest range that is read ahead; ranges on their way together
_FIRST_BYTES = 64 * 1024  # bytes of the first ranges; later ones are longer: many files are only looked at


class _Listing:
    """The files at or below a URL, when it was opened; state and local copy of those that were read."""

    def __init__(self, url: str, cache: RemoteCache | None = None) -> None:
        self.folder, self.cache = RemoteFolder(url), cache
        size = self.folder.size()
        self.sizes: dict[str, int | None] = {} if size is None else {"": size}  # None: a folder
        for name, nbytes in self.folder.files().items() if size is None else ():
            self.sizes |= {"/".join(name.split("/")[:depth]): None for depth in range(name.count("/") + 1)}
            self.sizes[name] = nbytes
        self.states, self.copies = dict[str, str](), dict[str, str]()


_listings: dict[str, _Listing] = {}  # by URL


class RemotePath(PosixPath):
    """The path of a remote file or folder by its URL; `str` is the URL, `os.fspath` a copy of the file in the cache."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        listing, name = self._find()
        if (size := listing.sizes.get(name)) is not None and name not in listing.copies:
            if listing.cache is None:
                total = format_bytes(sum(filter(None, listing.sizes.values())))
                raise InputError(
                    f"{self}: needs a local copy of {format_bytes(size)} (all files of {listing.folder.url}: {total}); "
                    "give a directory for copies with --cache DIR"
                )
            listing.copies[name] = listing.cache.copy(self, size)
        return listing.copies.get(name, str(self))

    def state(self) -> str:
        """Return the size and version that the file has now: see `RemoteFolder.state`. Cost: two requests."""
        listing, name = self._find()
        return listing.folder.state(name)

    def first_state(self) -> str:
        """Return the state at the first request since the listing."""
        listing, name = self._find()
        return listing.states.get(name) or listing.states.setdefault(name, self.state())

    def refuse_change(self) -> None:
        """Raise `InputError` unless the file still has its first state."""
        if (now := self.state()) != (then := self.first_state()):
            raise InputError(f"{self}: changed while it was read (from {then} to {now}); run the same command again")

    def open(self, mode: str = "rb", buffering: int = -1, *_: Any) -> Any:
        """Open the file to read its bytes: front to back with ranges read ahead, or unbuffered, in any order."""
        listing, name = self._find()
        if name in listing.copies:
            return Path(listing.copies[name]).open(mode, buffering)
        file = _RemoteFile(listing.folder, name, ahead=buffering != 0)
        return io.BufferedReader(file, _FIRST_BYTES) if buffering else file

    def stat(self, **_: Any) -> os.stat_result:
        """Return kind and size; ``FileNotFoundError`` if there is nothing."""
        if (size := self._size()) == -1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return os.stat_result((stat.S_IFDIR if size is None else stat.S_IFREG, 0, 0, 1, 0, 0, size or 0, 0, 0, 0))

    def exists(self, **_: Any) -> bool:
        """Return whether there is a file or folder."""
        return self._size() != -1

    def is_dir(self, **_: Any) -> bool:
        """Return whether there is a folder."""
        return self._size() is None

    def is_file(self, **_: Any) -> bool:
        """Return whether there is a file."""
        return self._size() not in (None, -1)

    def samefile(self, other: Any) -> bool:
        """Return whether the copy in the cache is the other file."""
        return Path(os.fspath(self)).samefile(other)

    def absolute(self, strict: bool = False) -> RemotePath:
        """Return the path."""
        return self

    resolve = absolute

    def iterdir(self) -> Any:
        """Yield the files and folders directly inside."""
        return self.glob("*")

    def glob(self, pattern: str, **_: Any) -> Any:
        """Yield the files and folders inside that match a pattern of names."""
        return (path for path in self.rglob(pattern) if len(path.parts) == len((self / pattern).parts))

    def rglob(self, pattern: str, **_: Any) -> Any:
        """Yield the files and folders inside, however deep, whose last names match; nothing above what was opened."""
        listing, name = self._listed() or (None, "")
        names = {} if listing is None else listing.sizes
        inside = (one[len(name) :].lstrip("/") for one in names if name == "" or one.startswith(f"{name}/"))
        return (self / one for one in inside if one and PurePosixPath(one).match(pattern))

    def _listed(self) -> tuple[_Listing, str] | None:
        """Return the listing that has the path, and its name there; ``None`` if it is in none."""
        for folder in (self, *self.parents):
            if (listing := _listings.get(str(folder))) is not None:
                return listing, "" if folder == self else str(self.relative_to(folder))
        return None

    def _find(self) -> tuple[_Listing, str]:
        return self._listed() or (_listings.setdefault(str(self), _Listing(str(self))), "")

    def _size(self) -> int | None:
        listing, name = self._find()
        return listing.sizes.get(name, -1)


def open_remote(url: str, cache: RemoteCache | None = None) -> RemotePath:
    """Return the path of a URL, after a new listing. Cost: a request per 1,000 files below it."""
    path = RemotePath(url.partition("?")[0])
    for inside in [known for known in list(_listings) if known.startswith(f"{path}/")]:
        _listings.pop(inside, None)
    _listings[str(path)] = _Listing(url, cache)
    return path


def as_path(name: str | os.PathLike[str]) -> Path:
    """Return the path of a local name or a URL."""
    if isinstance(name, Path):
        return name
    return RemotePath(name.partition("?")[0]) if isinstance(name, str) and is_url(name) else Path(name)


class _RemoteFile(io.RawIOBase):
    """The bytes of a remote file; `ahead`: the next ranges are fetched before they are requested."""

    def __init__(self, folder: RemoteFolder, name: str, *, ahead: bool) -> None:
        self._file, self._name, self._ahead = folder.open(name), folder.join(name), ahead
        self._size, self._at, self._rest = int(self._file.size()), 0, np.empty(0, np.uint8)
        self._ranges: Iterator[Bytes] = iter(())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        before, self._at = self._at, offset + (0, self._at, self._size)[whence]
        if self._at != before:
            self._rest, self._ranges = self._rest[:0], iter(())
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if self._at < end and not self._ahead:
            self._rest = read_range(self._file, self._name, self._at, end)
        elif self._at < end and not self._rest.size:
            if (rest := next(self._ranges, None)) is None:
                self._ranges = self._read_ahead(self._at)
                rest = next(self._ranges)
            self._rest = rest
        count = min(len(buffer), self._rest.size)
        buffer[:count], self._rest = self._rest[:count].data, self._rest[count:]
        self._at += count
        return count

    def _read_ahead(self, at: int) -> Iterator[Bytes]:
        """Yield the ranges from a position on; those on their way have no more bytes than those that were yielded."""
        pending, ahead, taken = deque[Future[Bytes]](), 0, 0
        pool = ThreadPoolExecutor(RANGES)  # never waited for: any thread may drop it, as it collects garbage
        while at < self._size or pending:
            while at < self._size and (not pending or (len(pending) < RANGES and ahead < taken)):
                begin, at = at, min(self._size, at + min(RANGE_BYTES, max(_FIRST_BYTES, taken // RANGES)))
                pending.append(pool.submit(read_range, self._file, self._name, begin, at))
                ahead += at - begin
            data = pending.popleft().result()
            ahead, taken = ahead - data.size, taken + data.size
            yield data
