"""Move rows from a feature table into the tiers: each row is read once and written once, ranks ascending.

A run that was killed goes on from the first row that is not whole on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import FileWriter
from tiering.formats.layout import TypeLayout
from tiering.layout.images import ImageSet
from tiering.progress import Progress
from tiering.ranked_rows import RankedRows


def write_range(source: RankedRows, begin: int, end: int, files: Sequence[FileWriter], bar: Progress) -> None:
    """Write ranks `begin`..`end` to memory tier files: local row i to file i mod P; what is there already stays."""
    parts, row_bytes = len(files), source.table.row_bytes
    wanted = [
        begin + file.done // row_bytes * parts + part for part, file in enumerate(files) if file.done < file.nbytes
    ]
    start = min(wanted, default=end)
    bar.update((start - begin) * row_bytes)
    for first, chunk in source.chunks(start, end):
        for part, file in enumerate(files):
            skipped = (part - (first - begin)) % parts
            own = chunk[skipped::parts]
            if own.shape[0]:
                file.append(own, (first - begin + skipped) // parts * row_bytes)
        bar.update(chunk.nbytes)


def write_ssd(source: RankedRows, entry: TypeLayout, page_bytes: int, images: ImageSet, bar: Progress) -> None:
    """Write the ssd rows of a type as pages: rows never straddle a page if one fits; gaps are zeros."""
    begin, end = entry.ranges["ssd"]
    place = entry.ssd_rows
    # A piece begins where a page begins. Rows larger than a page do so every page / gcd(page, stride) rows.
    multiple = place.rows_per_page or page_bytes // gcd(page_bytes, place.stride)
    done = min(max(0, images.first_missing_page() - place.first_page), place.num_pages)
    rows = done * (place.rows_per_page or page_bytes) // (1 if place.rows_per_page else place.stride)
    start = end if done == place.num_pages else begin + rows // multiple * multiple
    bar.update((start - begin) * entry.row_bytes)
    for first, chunk in source.chunks(start, end, multiple):
        local = first - begin
        page = place.first_page + (
            local // place.rows_per_page if place.rows_per_page else local * place.stride // page_bytes
        )
        images.write_pages(page, as_pages(chunk, place.stride, place.rows_per_page, page_bytes))
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
