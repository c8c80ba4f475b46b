"""How the ssd tier is read: which engine, decided once at open.

``io_uring`` reads with O_DIRECT through one ring; ``threads`` is a pool of ``pread`` threads; ``mmap`` is the baseline.
``auto`` takes io_uring where the kernel allows it, else threads, and logs why; also where the kernel refuses it only
later. Naming an engine means that engine
or an error with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tiering import native
from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, InputError
from tiering.loader.warn import warn_once

ENGINES = ("auto", "io_uring", "threads", "mmap")
DIRECT_MODES = ("auto", "on", "off")
DEFAULT_DEPTH = 128
"""Reads in flight: enough to saturate one NVMe SSD."""


def io_uring_unavailable() -> str:
    """Why io_uring cannot be used in this process; empty if it can."""
    return native.uring_unavailable()


def open_reader(
    images: Sequence[Path],
    page_bytes: int,
    engine: str = "auto",
    depth: int = DEFAULT_DEPTH,
    direct: str = "auto",
) -> native.SsdReader:
    """Open SSD images for random reads.

    Parameters
    ----------
    images
        Files or block devices in stripe order.
    page_bytes
        Page size of the layout.
    engine
        One of `ENGINES`.
    depth
        Reads in flight at most, 1 to 4096.
    direct
        ``auto``: O_DIRECT where the file system allows it, else buffered, logged; ``on``: that or an error; ``off``.

    Raises
    ------
    CapabilityError
        If the engine that was named cannot run here, or direct reads were demanded and are refused.
    InputError
        If an argument is none of these.
    StorageError
        If an image cannot be opened.
    """
    if engine not in ENGINES:
        raise InputError(f"engine: expected one of {', '.join(ENGINES)}, found {engine!r}")
    if direct not in DIRECT_MODES:
        raise InputError(f"direct: expected one of {', '.join(DIRECT_MODES)}, found {direct!r}")
    if not 1 <= int(depth) <= 4096:
        raise InputError(f"depth: expected 1 to 4096 reads in flight, found {depth}")
    if engine == "mmap" and direct == "on":
        raise CapabilityError("the mmap engine always goes through the page cache: use direct='auto' or 'off'")
    if engine == "io_uring" and (reason := io_uring_unavailable()):
        raise CapabilityError(f"engine io_uring: {reason}; engine='threads' works everywhere")
    reader = _open(images, page_bytes, engine, int(depth), direct)
    note_fallback(reader)
    if reader.note:
        warn_once(f"ssd rows are read through the page cache: {reader.note}")
    return reader


def note_fallback(found: native.SsdReader | native.GatherStats) -> None:
    """Log that a reader leaves io_uring, if it does."""
    if found.fallback:
        warn_once(f"ssd rows are read by a pool of threads, because io_uring is not available: {found.fallback}")


def _open(images: Sequence[Path], page_bytes: int, name: str, depth: int, direct: str) -> native.SsdReader:
    with storage_errors(images[0]):
        try:
            return native.SsdReader([str(path) for path in images], page_bytes, name, depth, direct)
        except OSError as error:
            if direct == "on" and "direct" in str(error).lower():
                raise CapabilityError(
                    f"direct='on': {error.strerror}; direct='auto' reads through the page cache"
                ) from None
            raise
