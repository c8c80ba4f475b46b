"""Simulated reading from SSD in plain Python: rows, sets and lists, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from striped_rows import Striped

Batches = Sequence[Sequence[int]]
Missing = list[set[int]]
BLOCK, LONGEST = 4096, 256 * 1024


def striped(tables: Sequence[tuple[int, int]], page: int) -> Striped:
    """Tables as rows and bytes of a row, as a layout places them in one image."""
    strides = []
    for _, row_bytes in tables:
        tight = math.ceil(row_bytes / 4) * 4
        padded = math.ceil(row_bytes / 512) * 512
        strides.append(padded if padded - tight <= tight / 8 else tight)
    waste = {unit: max(unit % stride for stride in strides) / unit for unit in (65536, 131072, 262144, 524288)}
    pages = next((unit for unit, share in waste.items() if share <= 0.01), 1 << 20) // page
    largest = max(rows * stride for (rows, _), stride in zip(tables, strides, strict=True))
    while pages > 1 and pages // 2 * page >= max(strides) and pages * page > largest:
        pages //= 2
    return Striped(tables, page, 1, pages=pages, strides=strides)


def extents(tables: Sequence[tuple[int, int]], page: int) -> list[tuple[int, int]]:
    """First and last byte of each row."""
    space = striped(tables, page)
    return [(begin, end - 1) for _, begin, end in map(space.place, range(space.count))]


def page_by_page(rows: set[int], where: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Requests and bytes: rows that share a block come together."""
    groups: list[set[int]] = []
    for row in rows:
        blocks = set(range(where[row][0] // BLOCK, where[row][1] // BLOCK + 1))
        for group in [group for group in groups if group & blocks]:
            blocks |= group
            groups.remove(group)
        groups.append(blocks)
    return len(groups), BLOCK * sum(map(len, groups))


def merged(rows: set[int], where: Sequence[tuple[int, int]], gap: int) -> tuple[int, int]:
    """Requests and bytes: neighboring blocks come together, and those behind a gap that is read through."""
    blocks = sorted({block for row in rows for block in range(where[row][0] // BLOCK, where[row][1] // BLOCK + 1)})
    requests, total, run = 0, 0, 0
    for k, block in enumerate(blocks):
        between = block - blocks[k - 1] - 1 if k else 0
        if k and between * BLOCK <= gap:
            run += between + 1
        else:
            requests, total, run = requests + -(-run * BLOCK // LONGEST), total + run, 1
    return requests + -(-run * BLOCK // LONGEST), (total + run) * BLOCK


def fixed(batches: Batches, held: set[int]) -> Missing:
    """Always the same rows are in memory."""
    return [set(batch) - held for batch in batches]


def lru(batches: Batches, slots: int) -> Missing:
    """The rows used last stay; of one batch, the first."""
    found, order = [], []  # of rows, the best first
    for batch in batches:
        found.append(set(batch) - set(order))
        order = (sorted(batch) + [row for row in order if row not in batch])[:slots]
    return found


def belady(batches: Batches, slots: int) -> Missing:
    """The rows used next stay."""

    def next_use(row: int, begin: int) -> int:
        return next((k for k in range(begin, len(batches)) if row in batches[k]), len(batches))

    found, held = [], set()
    for k, batch in enumerate(batches):
        found.append(set(batch) - held)
        held = set(sorted(held | set(batch), key=lambda row, k=k: (next_use(row, k + 1), row))[:slots])
    return found
