"""Readers of the ssd tier, checksums of its pages, and the core's table over it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.storage import display_path
from tiering.errors import CapabilityError, FormatError, InputError, RefusedError
from tiering.formats.layout import TIERS, Layout, TypeLayout, image_bytes, page_sums
from tiering.loader.options import ReadOptions
from tiering.loader.process import warn_once
from tiering.loader.tables.resident import SharedBlock, get_or_fill, is_cached, load_rows
from tiering.readahead.config import SsdTables
from tiering.readahead.disk_speed import DEPTH, MAX_READ, DiskSpeed, QueueDepth, cached_speed
from tiering.text.units import parse_threads

if TYPE_CHECKING:
    from tiering.loader.processes.peers import PeerGroup

_PRELOAD_BYTES, _PRELOAD_ROWS = 64 << 20, 1 << 18  # that are read together
_MOST_IN_FLIGHT = 4096  # of one reader, as the engines have it


def open_images(layout: Layout, entry: TypeLayout, reading: ReadOptions) -> native.SsdReader | None:
    """Open a layout's stripe files for random reads of a node type's rows; ``None`` if it has none there."""
    if not entry.rows("ssd"):
        return None
    if reading.engine == "bam":
        raise CapabilityError("engine='bam': a GPU reads the drives; give device='cuda', or another engine")
    last_unit = entry.ssd_rows.first_unit + entry.ssd_rows.num_units
    for index, path in enumerate(layout.image_places):
        needed = image_bytes(last_unit, index, layout.num_images, layout.unit_bytes)
        if path.is_file() and path.stat().st_size < needed:
            raise FormatError(
                f"{display_path(path)}: ssd image {index} of {layout.path} needs at least {needed} bytes, "
                f"found {path.stat().st_size}; make the layout again"
            )
    depth = find_depth(layout, reading).depth
    return open_reader(layout.image_places, layout.page_bytes, reading, depth, entry.row_bytes)


def find_depth(layout: Layout, reading: ReadOptions, speed: DiskSpeed | None = None) -> QueueDepth:
    """Return the reads in flight for each stripe file, by the speed of the disks or what was measured before."""
    if speed is None and reading.depth == "auto" and reading.engine != "bam":  # whose drives hold the stripe files
        speed, *_ = cached_speed(layout.image_places, layout.path.absolute().parent)
    return QueueDepth.choose(reading.depth, speed, max(1, layout.num_images))


def open_reader(
    images: Sequence[Path], page_bytes: int, reading: ReadOptions, depth: int = DEPTH, row_bytes: int = 1
) -> native.SsdReader:
    """Open files or block devices, in stripe order, for random reads of rows, `depth` in flight for each."""
    engine, direct, depth = reading.engine, reading.direct, min(_MOST_IN_FLIGHT, depth * len(images))
    if engine == "io_uring" and (reason := native.uring_unavailable()):
        raise CapabilityError(f"engine io_uring: {reason}; engine='threads' works everywhere")
    try:
        paths = [str(path) for path in images]
        reader = native.SsdReader(paths, page_bytes, engine, depth, direct, row_bytes, direct == "auto")
    except RefusedError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        if direct != "on" or error.errno != errno.EINVAL:
            raise
        raise CapabilityError(f"direct='on': {error.strerror}; direct='auto' reads through the page cache") from None
    warn_of_fallback(reader)
    return reader


def in_page_cache(layout: Layout, reading: ReadOptions) -> bool:
    """Return whether options let stripe files be read through the page cache, which has nearly all of their bytes."""
    wanted = reading.direct == "auto" and reading.engine != "bam"
    return wanted and native.in_page_cache(list(map(str, layout.image_places)))


def open_row_buffer(
    layout: Layout,
    tables: SsdTables,
    pools: Sequence[tuple[int, int]],
    arena: npt.NDArray[np.uint8],
    reading: ReadOptions,
    checks: PageChecks | None,
) -> native.RowBuffer:
    """Open a layout's stripe files for reading ahead into `arena`, which holds the slots of `pools`.

    With engine ``bam`` nothing is opened: a GPU reads its drives into slots in its own memory.
    """
    images = layout.images if reading.engine == "bam" else layout.image_places
    direct = "off" if in_page_cache(layout, reading) else reading.direct
    buffer = native.RowBuffer(
        tables.rows, tables.begins, tables.shape, list(map(str, images)), list(pools),
        arena, reading.engine, direct, find_depth(layout, reading).depth, MAX_READ,
        [] if checks is None else checks.arrays,
    )  # fmt: skip
    warn_of_fallback(buffer)
    return buffer


def preload_ssd_rows(
    layout: Layout,
    entry: TypeLayout,
    reader: native.SsdReader,
    reading: ReadOptions,
    checks: PageChecks | None,
    group: PeerGroup | None = None,
) -> SharedBlock:
    """Return all rows of the ssd tier, shared by the tables of this process or group. Cost: each page is read once."""
    rows, row_bytes, threads = entry.rows("ssd"), entry.row_bytes, parse_threads(reading.threads)
    step = max(1, min(_PRELOAD_ROWS, _PRELOAD_BYTES // row_bytes))

    def fill(array: npt.NDArray[np.uint8]) -> None:
        table, out = make_table(layout, entry, reader, checks), array.reshape(rows, row_bytes)
        for start in range(0, rows, step):
            stats = table.gather(np.arange(start, min(rows, start + step)), out[start : start + step], threads)
            warn_of_fallback(stats)
            if checks is not None:
                checks.refuse(stats.bad_page, entry.node_type)

    what = f"{layout.path}: rows of {entry.label} of the ssd tier"
    return get_or_fill(what, _preload_key(layout, entry, reading), rows * row_bytes, fill, group)


def preload_bytes(layout: Layout, node_type: str, reading: ReadOptions) -> int:
    """Return the bytes that preloading a type's rows would take: none where a table has them already."""
    entry = layout.type_layout(node_type)
    held = is_cached(_preload_key(layout, entry, reading))
    return 0 if held else entry.rows("ssd") * entry.row_bytes


def _preload_key(layout: Layout, entry: TypeLayout, reading: ReadOptions) -> tuple[Any, ...]:
    return str(layout.path.absolute()), layout.digest, entry.node_type, "ssd", entry.ranges["ssd"][0], reading.verify


def warn_of_fallback(source: native.SsdReader | native.RowBuffer | native.GatherStats) -> None:
    """Log that a reader leaves io_uring, or reads through the page cache, if it does."""
    if source.fallback:
        warn_once(f"a pool of threads reads ssd rows, because io_uring is not available: {source.fallback}")
    if not isinstance(source, native.GatherStats) and source.note:
        warn_once(f"ssd rows are read through the page cache: {source.note}")


def describe(reader: native.SsdReader | None) -> str:
    """Return how the ssd tier is read, for people."""
    return "closed" if reader is None else f"{reader.engine}, {'direct' if reader.direct else 'buffered'} reads"


class PageChecks:
    """Checksums of the pages of a layout's stripe files, in memory, 4 bytes per page, for ``verify=True``."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._loaded: list[SharedBlock] = []
        for name in map(page_sums, range(layout.num_images)):
            if name not in layout.manifest.files:
                raise CapabilityError(
                    f"verify=True: {layout.path} has no checksums of pages, because it was made by an earlier "
                    "version; make the layout again, or omit verify"
                )
            layout.manifest.verifier(name).finalize()
            self._loaded.append(load_rows(Path(layout.manifest.place(name)), layout.manifest.files[name].bytes))

    @property
    def arrays(self) -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
        """Checksums of each stripe file: uint32, shape (pages,)."""
        return [rows.array.view("<u4") for rows in self._loaded]

    def refuse(self, bad_page: int, node_type: str) -> None:
        """Raise `FormatError` if a gather met a damaged page; -1: it met none."""
        if bad_page < 0:
            return
        page, image = divmod(bad_page, self._layout.num_images)
        raise FormatError(
            f"{self._layout.images[image]}: page {page} (from byte {page * self._layout.page_bytes} on) of ssd "
            f"image {image} is damaged: its content does not match its checksum; it contains rows of node type "
            f"{node_type!r} of {self._layout.path}; make the layout again"
        )


def make_table(
    layout: Layout,
    entry: TypeLayout,
    reader: native.SsdReader | None,
    checks: PageChecks | None,
    memory: tuple[Any, list[Any], Any] | None = None,
    preloaded: Any = None,
    codec: native.RowCodec | None = None,
) -> native.TieredTable:
    """Return the core's table of a node type's rows.

    `memory`: bytes of the gpu tier, of each peer's share, of the cpu tier; ``None``: the table has rows of the ssd tier
    alone, from 0 on. `preloaded`: bytes of all rows of the ssd tier, where they lie in memory. `codec`
    decodes rows.
    """
    ends = [entry.ranges[tier][1] for tier in TIERS] if memory else [0, 0, 0, entry.rows("ssd")]
    gpu, peers, cpu = memory or (None, [], None)
    ssd, checksums = entry.ssd_rows, [] if checks is None else checks.arrays
    return native.TieredTable(
        entry.row_bytes, ends, gpu, peers, cpu, reader,
        ssd.first_unit, ssd.stride, ssd.rows_per_unit, layout.unit_bytes, layout.page_bytes, checksums, preloaded,
        codec,
    )  # fmt: skip
