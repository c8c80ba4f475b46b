"""Simulated reading from SSD in plain Python: rows, sets and lists, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

Batches = Sequence[Sequence[int]]
Missing = list[set[int]]
BLOCK, LONGEST = 4096, 256 * 1024


def extents(tables: Sequence[tuple[int, int]], page: int) -> list[tuple[int, int]]:
    """First and last byte of each row; `tables` are rows and bytes of a row, each beginning at a page."""
    found, start = [], 0
    for rows, row_bytes in tables:
        stride = row_bytes if row_bytes <= 512 else (row_bytes + 511) // 512 * 512
        address = end = start
        for _ in range(rows):
            if stride <= page and address % page + stride > page:  # it would straddle
                address = (address // page + 1) * page
            found.append((address, address + row_bytes - 1))
            address = end = address + stride
        start = (end + page - 1) // page * page
    return found


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
    """Requests and bytes: neighbouring blocks come together, and those behind a gap that is read through."""
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


def next_use(batches: Batches, row: int, begin: int, end: int | None = None) -> int:
    """The first batch from `begin` on that uses a row, or one behind all."""
    end = len(batches) if end is None else min(end, len(batches))
    return next((k for k in range(begin, end) if row in batches[k]), len(batches))


def belady(batches: Batches, slots: int) -> Missing:
    """The rows used next stay."""
    found, held = [], set()
    for k, batch in enumerate(batches):
        found.append(set(batch) - held)
        held = set(sorted(held | set(batch), key=lambda row, k=k: (next_use(batches, row, k + 1), row))[:slots])
    return found


def rounds(
    batches: Batches, pools: Sequence[tuple[set[int], int]], window: int, horizon: int
) -> list[tuple[int, int, set[int]]]:
    """First batch of each round of the loader's plan, the one behind it, and the rows read; `pools`: rows and slots."""
    found, held, first = [], set[int](), 0
    while first < len(batches):
        wanted, last, known = set(batches[first]), first + 1, 0
        while last < len(batches) and last - first < window:
            more = wanted | set(batches[last])
            if any(len(more & rows) > slots for rows, slots in pools):
                known = 1  # the batch that did not fit
                break
            wanted, last = more, last + 1
        found.append((first, last, wanted - held))
        behind = last + max(horizon, known)
        after = set()
        for rows, slots in pools:
            spare = (held - wanted) & rows
            order = sorted(spare, key=lambda row, last=last, behind=behind: (next_use(batches, row, last, behind), row))
            after |= (wanted & rows) | set(order[: slots - len(wanted & rows)])
        held, first = after, last
    return found
