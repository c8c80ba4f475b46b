"""Rows of the ssd tier that are read into memory first, where all fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import StorageError
from tiering.formats.layout import Layout, TypeLayout
from tiering.loader.options import ReadOptions
from tiering.loader.tables.resident import SharedBlock, SharesMemory, get_or_fill, is_cached
from tiering.loader.tables.ssd import PageChecks, open_row_buffer
from tiering.readahead.config import SsdTables

_LOAD_BYTES = 64 * 1024 * 1024


def preload_ssd_rows(
    layout: Layout,
    entry: TypeLayout,
    reading: ReadOptions,
    checks: PageChecks | None,
    group: SharesMemory | None = None,
) -> SharedBlock:
    """Return all rows of the ssd tier, shared by the tables of this process or group. Cost: each page is read once."""
    rows, first = entry.rows("ssd"), entry.ranges["ssd"][0]
    step = max(1, _LOAD_BYTES // entry.row_bytes)

    def fill(array: npt.NDArray[np.uint8]) -> None:
        tables = SsdTables.of(layout, [entry.node_type])
        buffer = open_row_buffer(layout, tables, [(entry.row_bytes, rows)], array, reading, checks)
        # Empty slots are given out in order, to rows in order: the array ends up as the table.
        try:
            buffer.begin(1, 0, 0)
            for start in range(0, rows, step):
                buffer.add([np.arange(first + start, first + min(rows, start + step), dtype=np.int64)])
                if start:
                    buffer.wait(start // step - 1)
            buffer.end()
            buffer.wait((rows - 1) // step)
        except StorageError:
            if checks is not None:
                checks.refuse(buffer.bad_page, entry.node_type)
            raise
        finally:
            buffer.cancel()

    what = f"{layout.path}: rows of {entry.label} of the ssd tier"
    return get_or_fill(what, _preload_key(layout, entry, reading), rows * entry.row_bytes, fill, group)


def preload_bytes(layout: Layout, node_type: str, reading: ReadOptions) -> int:
    """Return the bytes that preloading a type's rows would take: none where a table has them already."""
    entry = layout.type_layout(node_type)
    held = is_cached(_preload_key(layout, entry, reading))
    return 0 if held else entry.rows("ssd") * entry.row_bytes


def _preload_key(layout: Layout, entry: TypeLayout, reading: ReadOptions) -> tuple[Any, ...]:
    return str(layout.path.absolute()), layout.digest, entry.node_type, "ssd", reading.verify
