"""An ext4 file system on a loop device that answers EIO: of reads behind the end of the file that it lies in."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096


class LoopDisk:
    """A mounted file system of `size` bytes.

    Parameters
    ----------
    image
        File to make, which the file system lies in.
    folder
        Empty directory, where it is mounted.
    """

    def __init__(self, image: Path, folder: Path, size: int) -> None:
        self.image, self.folder = image, folder
        with image.open("wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        self._mount("loop")
        self._content = b""

    def _mount(self, options: str) -> None:
        command = ["mount", "-o", options, str(self.image), str(self.folder)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")

    def close(self) -> None:
        """Unmount it, at once or when the last who reads it has gone."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def seal(self) -> None:
        """Make it read-only: from now on it can fail."""
        subprocess.run(["umount", str(self.folder)], check=True)
        self._mount("loop,ro,noload")
        self._content = self.image.read_bytes()

    def place_of(self, page: bytes) -> int:
        """Where a page of a file lies in the file system, in bytes."""
        return self._content.index(page)

    @contextmanager
    def failing(self, at: int) -> Iterator[None]:
        """Whatever lies behind byte `at` of the file system cannot be read; its files are not in the page cache."""
        os.truncate(self.image, at)
        for path in self.folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            yield
        finally:
            self.image.write_bytes(self._content)

    @staticmethod
    def bad_pages(path: Path) -> set[int]:
        """Pages of a file that a direct read by this process cannot get."""
        found = set()
        buffer, fd = mmap.mmap(-1, PAGE), os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            for page in range(path.stat().st_size // PAGE):
                try:
                    os.preadv(fd, [buffer], page * PAGE)
                except OSError:
                    found.add(page)
        finally:
            os.close(fd)
        return found


@contextmanager
def loop_disk(image: Path, folder: Path, size: int) -> Iterator[LoopDisk]:
    """Mount a `LoopDisk` for a while; skips where that cannot be done."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("mounting a file system needs root and mkfs.ext4")
    folder.mkdir()
    disk = LoopDisk(image, folder, size)
    try:
        yield disk
    finally:
        disk.close()
