"""Move rows from feature tables into the tiers: each row is read once and written once, ranks ascending.

A run that was killed goes on from the first row that is not whole on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import gcd
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.features import FeatureTable
from tiering.formats.layout import TypeLayout, page_sums, peer_rows, tier_file
from tiering.formats.order import Order
from tiering.layout.images import ImageSet
from tiering.layout.plan import LayoutPlan
from tiering.memory import Budget
from tiering.progress import Progress, progress
from tiering.reorder.rows import PermutedRows

MEMORY_TIERS = ("gpu", "peer", "cpu")
SCRATCH = "scratch"
"""Directory in the unfinished layout for rows on their way into rank order."""


def write_rows(
    writer: ArtifactWriter,
    images: ImageSet,
    plan: LayoutPlan,
    tables: Mapping[str, FeatureTable],
    order: Order,
    budget: Budget,
    threads: int,
) -> None:
    """Reserve every file of the memory tiers, then move all rows, type by type; `budget` is for reading them."""
    total = sum(entry.num_nodes * entry.row_bytes for entry in plan.entries.values())
    with ExitStack() as stack:

        def begin(name: str, dtype: str, shape: tuple[int, ...]) -> FileWriter:
            return stack.enter_context(writer.file(name, dtype, shape))

        files: dict[tuple[str, str], list[FileWriter]] = {}
        for name, entry in plan.entries.items():
            for tier in MEMORY_TIERS:
                parts = plan.num_peers if tier == "peer" else 1
                rows = [peer_rows(entry.rows(tier), part, parts) for part in range(parts)]
                files[name, tier] = [
                    begin(tier_file(name, tier, part, parts), entry.dtype, (count, entry.dim))
                    for part, count in enumerate(rows)
                    if count
                ]
        images.sums = [
            begin(page_sums(image), "uint32", (nbytes // plan.page_bytes,))
            for image, nbytes in enumerate(plan.images())
        ]
        bar = stack.enter_context(progress(total, "layout", "B", scale=True))
        for name, entry in plan.entries.items():
            table = tables[name]
            maps = (None, None) if table.row_order == "rank" else (order.new_to_old(name), order.old_to_new(name))
            with PermutedRows(table, *maps, budget=budget, scratch=writer.path / SCRATCH, threads=threads) as source:
                for tier in MEMORY_TIERS:
                    if files[name, tier]:
                        write_range(source, *entry.ranges[tier], files[name, tier], bar)
                if entry.rows("ssd"):
                    write_ssd(source, entry, plan.page_bytes, images, bar)


def write_range(source: PermutedRows, begin: int, end: int, files: Sequence[FileWriter], bar: Progress) -> None:
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


def write_ssd(source: PermutedRows, entry: TypeLayout, page_bytes: int, images: ImageSet, bar: Progress) -> None:
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
    """Lay rows, uint8 of shape (n, row_bytes), out in pages, uint8 of shape (pages, page_bytes), the first at a page's
    start; `stride` and `per_page` as in `SsdRows`.
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
