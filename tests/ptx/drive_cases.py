"""Lists of rows that the kernels read from drives, and what they must leave behind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from ptx_drives import NO_FAILURE, DriveMemory, Shape, Table, read_list
from ptx_program import Kernel


class Case(NamedTuple):
    """Some launches, one after the other, that read `rows` random rows each."""

    shape: Shape = Shape()  # noqa: RUF009
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
    Case(Shape(depth=8, page=8192), row_bytes=9000, unit_pages=2, rows=12, flushed=True),
]


def read_case(kernels: dict[str, Kernel], case: Case, most_turns: int = 2_000_000) -> None:
    """Read the rows of a case, and compare them, the commands and the state of the queues."""
    shape, chance = case.shape, np.random.default_rng(case.seed)
    memory = DriveMemory(shape, case.seed, flushed=case.flushed, begin=case.begin, most_turns=most_turns)
    table = Table(case.row_bytes, shape, case.unit_pages, case.first_unit)
    per_unit = table.unit // table.stride
    units = max(24 // case.unit_pages, -(-2 * case.rows // per_unit) if case.unit_pages > 1 else 6)
    once = case.unit_pages == 1 or shape.page % table.stride == 0  # each row lies in one page
    for _ in range(case.launches):
        memory.commanded = []
        wanted = np.sort(chance.choice(units * per_unit, case.rows, replace=once))
        (found,) = read_list(memory, kernels, [(table, wanted)])
        assert memory.failure() == NO_FAILURE
        expected = [table.row(row) for row in wanted.tolist()]
        assert [row.tobytes() for row in found] == expected
        assert sorted(memory.commanded) == sorted({page for row in wanted.tolist() for page in table.pages_of(row)})
        memory.check_idle()
