"""Calls of the operating system, native code's too: one refused, reads shortened, or all changes written down.

See ``calls.c``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


def build(folder: Path) -> Path:
    """Compile ``calls.c``; skips the test where that cannot be done."""
    compiler, library = shutil.which("cc"), folder / "calls.so"
    if compiler is None:
        pytest.skip("no C compiler")
    source = Path(__file__).with_name("calls.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library


def arm(order: dict[str, Any], shared: mmap.mmap) -> None:
    """Begin to count, in a process that has the library: ``at`` is refused with ``errno``, or ``log`` is written.

    ``longest``: bytes that a ``pread`` returns at most.
    """
    at, code = order.get("at", -1), getattr(errno, order.get("errno", "EIO"))
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) if "log" in order else -1
    begin = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    if "longest" in order:
        ctypes.CDLL(None).calls_shorten(ctypes.c_ssize_t(order["longest"]))
    ctypes.CDLL(None).calls_arm(
        ":".join(order["below"]).encode(), ctypes.c_long(at), code, log, ctypes.c_void_p(begin)
    )  # fmt: skip


def counted(shared: bytes) -> dict[str, Any]:
    """How many calls there were (``count``), which was refused (``last``), and with what (``errno``)."""
    count, code = struct.unpack_from("qq", shared)
    name = shared[16:48].partition(b"\0")[0].decode()
    return {"count": count, "last": name if code else "", "errno": errno.errorcode[code] if code else ""}


@dataclass(frozen=True)
class Change:
    """A line of the log: ``kind`` is a letter of ``calls.c``."""

    kind: str
    path: str
    other: str
    first: int
    second: int
    data: bytes


def read_log(path: Path) -> Iterator[Change]:
    """Every change, in order."""
    head = struct.Struct("6q")
    with path.open("rb") as file:
        while data := file.read(head.size):
            kind, length, other, first, second, nbytes = head.unpack(data)
            names = file.read(length).decode(), file.read(other).decode()
            yield Change(chr(kind), *names, first, second, file.read(nbytes))
