"""Directories of artifacts in object stores, of which manifests and sizes are read in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tiering.artifacts.remote import RemoteFolder, read_range
from tiering.artifacts.remote_path import RemotePath
from tiering.artifacts.storage import Bytes, OpenDirectory
from tiering.errors import InputError
from tiering.text.arguments import is_url


class RemoteDirectory(OpenDirectory):
    """The directory of an artifact in a remote folder: its files have sizes, and small ones are read whole.

    Cost: the folder is listed once.
    """

    piece_bytes = 64 << 20

    def __init__(self, folder: RemoteFolder, within: RemoteDirectory | None = None, name: str = "") -> None:
        self.folder = folder
        self._files: dict[str, int] = folder.files() if within is None else within._files
        self.path = RemotePath(folder.join(name))

    def inside(self, name: str) -> RemoteDirectory:
        """Open a directory in this one."""
        return RemoteDirectory(self.folder, self, self._name(name))

    def open(self, name: str | Path) -> int | None:
        """Return the size of a file; ``None`` if there is none."""
        return self._files.get(self._name(name))

    def place(self, name: str | Path) -> str:
        """Refuse to map a file."""
        advice = f"run `tiering copy {self.folder.url} DIR`, and use DIR"
        raise InputError(f"{self.path / name}: this command needs the content of a remote file; {advice}")

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self.folder.read(self._name(name)).tobytes()

    def reader(self, name: str | Path) -> Callable[[int, int, Bytes], Bytes]:
        """Return a function that returns bytes [begin, end) of a file; the file is open as long as it is kept."""
        file, url = self.folder.open(self._name(name)), self.folder.join(self._name(name))
        return lambda begin, end, memory: read_range(file, url, begin, end)

    def _name(self, name: str | Path) -> str:
        whole = str(name) if is_url(str(name)) else str(self.path / name)
        return whole.removeprefix(f"{self.folder.url}/")


def open_directory(path: str | os.PathLike[str]) -> OpenDirectory:
    """Open the directory of an artifact by its path, or by its URL."""
    return RemoteDirectory(RemoteFolder(path)) if isinstance(path, str) and is_url(path) else OpenDirectory(Path(path))
