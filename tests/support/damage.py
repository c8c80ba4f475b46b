"""Damage in files: other bytes for a while, flipped bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes but for a bit."""
    found = bytearray(data)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def flip(path: Path, bit: int) -> None:
    """Flip a bit of a file."""
    path.write_bytes(flipped(path.read_bytes(), bit))


@contextmanager
def damaged(file: Path, data: bytes) -> Iterator[None]:
    """A file with another content and its old time of change, for a while."""
    before, found = file.read_bytes(), file.stat()
    try:
        file.write_bytes(data)
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        yield
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
