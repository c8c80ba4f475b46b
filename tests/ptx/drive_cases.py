"""Lists of rows that the kernels read from drives, and what they must leave behind."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from ptx_drives import NO_FAILURE, DriveMemory, Shape, Table, read_list
from ptx_program import Kernel


class Case(NamedTuple):
    """Some launches, one after the other, that read `rows` random rows each."""

    shape: Shape = Shape()
    row_bytes: int = 64
    unit_pages: int = 1
    rows: int = 40
    launches: int = 1
    flushed: bool = False
    first_unit: int = 0
    begin: int = 0
    """Number of the first command: a multiple of two rounds of the queue."""
    seed: int = 0


CASES = [
    Case(),
    Case(seed=1, launches=3),
    Case(Shape(drives=2, pairs=2), row_bytes=100, unit_pages=4, launches=2),
    Case(Shape(drives=3, depth=8), row_bytes=700, unit_pages=4, rows=30),
    Case(Shape(depth=64, page=4096), row_bytes=1024, rows=150),
    Case(Shape(drives=2, depth=16, page=8192), row_bytes=2000, rows=40, launches=2),
    Case(Shape(drives=2, pairs=2, depth=8, page=4096), row_bytes=4096, rows=24),
    Case(Shape(drives=3, pairs=2, depth=2), row_bytes=36, rows=70),
    Case(Shape(pairs=2, depth=8), row_bytes=601, unit_pages=8, rows=30),
    Case(Shape(drives=3, depth=8, page=4096), row_bytes=64, first_unit=2**36 // 3 * 3, begin=2**32 - 16, launches=2),
    Case(Shape(drives=2, pairs=2, depth=4), row_bytes=512, flushed=True, launches=2),
    Case(Shape(pairs=2, depth=8), row_bytes=601, unit_pages=8, rows=30, flushed=True),
    Case(Shape(depth=8, page=4096), row_bytes=4096, rows=14, flushed=True),
    Case(Shape(depth=64), row_bytes=500, unit_pages=2, rows=60, flushed=True),  # more pages land than a warp has lanes
    Case(Shape(depth=32, page=4096), row_bytes=1500, unit_pages=2, rows=24),
    Case(Shape(depth=16, page=4096), row_bytes=1360, unit_pages=2, rows=30),
    Case(Shape(depth=16, page=4096), row_bytes=1360, unit_pages=2, rows=30, flushed=True),
    Case(Shape(depth=8, page=8192), row_bytes=9000, unit_pages=2, rows=12, flushed=True),
]


def read_case(kernels: dict[str, Kernel], case: Case) -> None:
    """Read the rows of a case, and compare them, the commands and the state of the queues."""
    shape, chance = case.shape, np.random.default_rng(case.seed)
    memory = DriveMemory(shape, case.seed, flushed=case.flushed, begin=case.begin)
    table = Table(case.row_bytes, shape, case.unit_pages, case.first_unit)
    per_unit = table.unit // table.stride
    units = max(24 // case.unit_pages, -(-2 * case.rows // per_unit) if case.unit_pages > 1 else 6)
    once = case.unit_pages == 1 or shape.page % table.stride == 0  # each row lies in one page
    for _ in range(case.launches):
        memory.commanded, memory.loads = [], Counter()
        wanted = np.sort(chance.choice(units * per_unit, case.rows, replace=once))
        (found,) = read_list(memory, kernels, [(table, wanted)])
        assert memory.failure() == NO_FAILURE
        expected = [table.row(row) for row in wanted.tolist()]
        assert [row.tobytes() for row in found] == expected
        assert sum(size * count for size, count in memory.loads.items()) == found.nbytes, "each byte is loaded once"
        assert min(memory.loads) == max(n for n in (1, 4, 16) if case.row_bytes % n == 0), "words are as wide as can be"
        claim = min(shape.depth - 1, 32)  # each warp makes one behind the end of the list
        most = case.rows * table.per_row + claim * (shape.pairs + 1)
        assert case.flushed or memory.cursors[0].view(np.uint32).max() <= most, "claims"
        assert sorted(memory.commanded) == sorted({page for row in wanted.tolist() for page in table.pages_of(row)})
        memory.check_idle()


def refused_page(kernels: dict[str, Kernel], flushed: bool = False) -> None:
    """A page that a drive refuses is named, and all others are read."""
    shape = Shape(drives=2, depth=8)
    table, memory = Table(512, shape), DriveMemory(shape, 1, flushed=flushed)
    memory.bad = (1, 3)
    (found,) = read_list(memory, kernels, [(table, np.arange(20))])
    assert memory.failure() == (2 * 3 + 1 + 1) << 16 | 0x281
    for row in range(20):
        assert found[row].tobytes() == (b"\xee" * 512 if row == 7 else table.row(row))
    memory.check_idle()


def refused_page_of_a_flushed_drive(kernels: dict[str, Kernel]) -> None:
    """The same by launches that read and launches that copy."""
    refused_page(kernels, flushed=True)


def drives_that_fail(kernels: dict[str, Kernel]) -> None:
    """Silent: too late; stopped by the host; completions of commands that were not sent. The word names the queue."""
    shape = Shape(drives=2, depth=8)
    for why, name in ((3, "silent"), (1, "silent"), (2, "repeats")):
        memory = DriveMemory(shape, why)
        setattr(memory, name, True)
        memory.stop[0] = why == 1
        (found,) = read_list(memory, kernels, [(Table(64, shape), np.arange(8, 16))])  # all in the second drive
        assert memory.failure() == 1 << 4 | why
        assert (found == 0xEE).all()


def slow_drive(kernels: dict[str, Kernel]) -> None:
    """Patience is for the next completion: all commands together may take longer."""
    memory, table = DriveMemory(Shape(), 0), Table(512, Shape())
    memory.slow = 250
    (found,) = read_list(memory, kernels, [(table, np.arange(12))])
    assert memory.failure() == NO_FAILURE
    assert [row.tobytes() for row in found] == [table.row(row) for row in range(12)]


def nothing_to_read(kernels: dict[str, Kernel]) -> None:
    """An empty list sends no command."""
    memory = DriveMemory(Shape(), 0)
    read_list(memory, kernels, [(Table(64, Shape()), np.arange(0))])
    assert not memory.commanded
    memory.check_idle()


def two_rounds_at_a_time(kernels: dict[str, Kernel]) -> None:
    """Two launches read side by side, each by pairs of its own, as the calls of two threads do."""
    shape = Shape(drives=2, pairs=2, depth=8, rounds=2)
    for seed in range(3):
        memory, chance = DriveMemory(shape, seed), np.random.default_rng(seed)
        tables = [(Table(n, shape, 4, unit), np.sort(chance.choice(90, 60))) for n, unit in ((512, 3), (64, 40))]
        for _ in range(2):
            found = read_list(memory, kernels, tables)
            for rows, (table, wanted) in zip(found, tables, strict=True):
                assert [row.tobytes() for row in rows] == [table.row(row) for row in wanted.tolist()]
            assert memory.failure(0) == memory.failure(1) == NO_FAILURE
            memory.check_idle()


CHECKS = [
    refused_page, refused_page_of_a_flushed_drive, drives_that_fail, slow_drive, nothing_to_read, two_rounds_at_a_time
]  # fmt: skip
