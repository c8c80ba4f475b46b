"""A directory of local copies of remote files, within a size."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from tiering.artifacts.storage import reserve, storage_errors
from tiering.errors import InputError
from tiering.text.progress import progress
from tiering.text.units import format_bytes

if TYPE_CHECKING:
    from tiering.artifacts.remote_path import RemotePath

_COPY = re.compile(r"[0-9a-f]{32}-.+")  # names of copies, finished or not: other files of the directory are not touched
_PIECE = 8 << 20


class RemoteCache:
    """Copies of remote files by URL, size and version, of at most `limit` bytes together, for one import.

    A copy that is there is used again, by other imports too. Where there is no room, those used longest ago go.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int | None = None) -> None:
        self._folder, self._limit = Path(folder).absolute(), limit
        self._used: dict[str, int] = {}  # bytes of the copies of this import

    def copy(self, path: RemotePath, size: int) -> str:
        """Return the local copy of a file of `size` bytes; `InputError` if it has no room, or changes meanwhile."""
        key = xxhash.xxh3_128_hexdigest(f"{path} {path.first_state()}".encode())
        target = self._folder / f"{key}-{path.name[-64:]}"  # with its suffix, by which some readers go
        self._used[target.name] = size
        with storage_errors(target, size):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room(path)
            if not target.exists():
                part = target.with_name(f"{target.name}.{os.getpid()}")
                try:
                    reserve(part, size)
                    with path.open() as source, part.open("r+b") as file, progress(size, "copy", "B") as bar:
                        while data := source.read(_PIECE):
                            bar.update(file.write(data))
                        file.truncate()  # where it is shorter than it was listed
                    path.refuse_change()
                    part.replace(target)
                finally:
                    part.unlink(missing_ok=True)
            os.utime(target)  # the time of the last use
        return str(target)

    def _make_room(self, path: RemotePath) -> None:
        """Remove copies of other imports, those used longest ago first, until the used ones fit the limit."""
        if self._limit is None:
            return
        if (needed := sum(self._used.values())) > self._limit:
            raise InputError(
                f"{path}: the cache of {format_bytes(self._limit)} is too small: with this file, the import needs "
                f"{format_bytes(needed)} of copies; give --cache-size {needed} or more"
            )
        copies = {one: one.stat() for one in self._folder.iterdir() if _COPY.fullmatch(one.name)}
        room = self._limit - needed - sum(seen.st_size for one, seen in copies.items() if one.name not in self._used)
        for one, seen in sorted(copies.items(), key=lambda entry: entry[1].st_mtime_ns):
            if room < 0 and one.name not in self._used:
                one.unlink(missing_ok=True)
                room += seen.st_size
