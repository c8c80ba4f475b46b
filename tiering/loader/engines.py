"""How the ssd tier is read: which engine, decided once at open.

``io_uring`` reads with O_DIRECT through one ring; ``threads`` is a pool of ``pread`` threads; ``mmap`` is the baseline.
``auto`` takes io_uring where the kernel allows it, else threads, and logs why; also where the kernel refuses it only
later. Naming an engine means that engine or an error with the reason.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from tiering import native
from tiering.artifacts.held import shown
from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, FormatError, InputError, RefusedError
from tiering.formats.layout import Layout, TypeLayout, image_bytes
from tiering.loader.messages import warn_once
from tiering.loader.options import ReadOptions

ENGINES = ("auto", "io_uring", "threads", "mmap")
DIRECT_MODES = ("auto", "on", "off")


def open_images(layout: Layout, entry: TypeLayout, reading: ReadOptions) -> native.SsdReader | None:
    """Open the images of a layout for random reads of a node type's rows; ``None`` if it has none there.

    Raises
    ------
    CapabilityError
        If the engine that was named cannot run here, or direct reads were demanded and are refused.
    InputError
        If an option is none of those that there are.
    FormatError
        If an image is shorter than the layout says.
    StorageError
        If an image cannot be opened.
    """
    if not entry.rows("ssd"):
        return None
    _check_sizes(layout, entry)
    return open_reader(layout.image_places, layout.page_bytes, reading)


def open_reader(images: Sequence[Path], page_bytes: int, reading: ReadOptions) -> native.SsdReader:
    """`open_images` for files or block devices in stripe order."""
    engine, direct = reading.engine, reading.direct
    if engine not in ENGINES:
        raise InputError(f"engine: expected one of {', '.join(ENGINES)}, found {engine!r}")
    if direct not in DIRECT_MODES:
        raise InputError(f"direct: expected one of {', '.join(DIRECT_MODES)}, found {direct!r}")
    if engine == "mmap" and direct == "on":
        raise CapabilityError("the mmap engine always goes through the page cache: use direct='auto' or 'off'")
    if engine == "io_uring" and (reason := native.uring_unavailable()):
        raise CapabilityError(f"engine io_uring: {reason}; engine='threads' works everywhere")
    with storage_errors(images[0]):
        try:
            reader = native.SsdReader([str(path) for path in images], page_bytes, engine, int(reading.depth), direct)
        except RefusedError as error:
            raise InputError(str(error)) from None
        except OSError as error:
            if direct != "on" or error.errno != errno.EINVAL:
                raise
            raise CapabilityError(
                f"direct='on': {error.strerror}; direct='auto' reads through the page cache"
            ) from None
    note_fallback(reader)
    if reader.note:
        warn_once(f"ssd rows are read through the page cache: {reader.note}")
    return reader


def note_fallback(source: native.SsdReader | native.GatherStats) -> None:
    """Log that a reader leaves io_uring, if it does."""
    if source.fallback:
        warn_once(f"ssd rows are read by a pool of threads, because io_uring is not available: {source.fallback}")


def describe(reader: native.SsdReader | None) -> str:
    """How the ssd tier is read, for people."""
    return "closed" if reader is None else f"{reader.engine}, {'direct' if reader.direct else 'buffered'} reads"


def _check_sizes(layout: Layout, entry: TypeLayout) -> None:
    """Sizes again: images lie outside the layout and may have changed since it was opened."""
    last_page = entry.ssd_rows.first_page + entry.ssd_rows.num_pages
    for index, path in enumerate(layout.image_places):
        needed = image_bytes(last_page, index, layout.num_images, layout.page_bytes)
        if path.is_file() and path.stat().st_size < needed:
            raise FormatError(
                f"{shown(path)}: ssd image {index} of {layout.path} needs at least {needed} bytes, "
                f"found {path.stat().st_size}; make the layout again"
            )
