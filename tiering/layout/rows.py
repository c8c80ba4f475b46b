"""Move rows from a feature table into the tiers: each row is read once and written once, ranks ascending."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from tiering.formats.layout import TypeLayout
from tiering.io.storage import RawWriter
from tiering.layout.images import ImageSet
from tiering.progress import Progress
from tiering.ranked_rows import RankedRows


def write_range(source: RankedRows, begin: int, end: int, files: Sequence[RawWriter], bar: Progress) -> None:
    """Write ranks `begin`..`end` to memory tier files: local row i to file i mod P."""
    parts = len(files)
    for first, chunk in source.chunks(begin, end):
        for part, file in enumerate(files):
            own = chunk[(part - (first - begin)) % parts :: parts]
            if own.shape[0]:
                file.write(np.ascontiguousarray(own))
        bar.update(chunk.nbytes)


def write_ssd(source: RankedRows, entry: TypeLayout, page_bytes: int, images: ImageSet, bar: Progress) -> None:
    """Write the ssd rows of a type as pages: rows never straddle a page if one fits; gaps are zeros."""
    begin, end = entry.ranges["ssd"]
    stride, per_page = entry.ssd_rows.stride, entry.ssd_rows.rows_per_page
    # A piece begins where a page begins. Rows larger than a page do so every page / gcd(page, stride) rows.
    multiple = per_page or page_bytes // gcd(page_bytes, stride)
    for first, chunk in source.chunks(begin, end, multiple):
        local = first - begin
        page = entry.ssd_rows.first_page + (local // per_page if per_page else local * stride // page_bytes)
        images.write_pages(page, as_pages(chunk, stride, per_page, page_bytes))
        bar.update(chunk.nbytes)


def as_pages(rows: np.ndarray[Any, Any], stride: int, per_page: int, page_bytes: int) -> np.ndarray[Any, Any]:
    """Lay rows out in pages.

    Parameters
    ----------
    rows
        uint8 of shape (n, row_bytes); row 0 begins at the start of a page.
    stride
        Bytes from row to row.
    per_page
        Rows that begin in a page; 0 if rows run through page ends.

    Returns
    -------
    numpy.ndarray
        uint8 of shape (pages, page_bytes).
    """
    count, row_bytes = rows.shape
    if not per_page:
        pages = np.zeros((-(-count * stride // page_bytes), page_bytes), np.uint8)
        pages.reshape(-1)[: count * stride].reshape(count, stride)[:, :row_bytes] = rows
        return pages
    if stride == row_bytes and per_page * stride == page_bytes and count % per_page == 0:
        return rows.reshape(-1, page_bytes)
    pages = np.zeros((-(-count // per_page), page_bytes), np.uint8)
    slots = np.lib.stride_tricks.as_strided(pages, (pages.shape[0], per_page, row_bytes), (page_bytes, stride, 1))
    whole = count // per_page
    slots[:whole] = rows[: whole * per_page].reshape(whole, per_page, row_bytes)
    if whole < slots.shape[0]:
        slots[whole, : count - whole * per_page] = rows[whole * per_page :]
    return pages
