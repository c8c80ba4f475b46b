"""Cache policies of other systems: against plain Python, against the best there is, and by what they promise."""

from __future__ import annotations

import numpy as np
import plain_reading as plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import cache_policies as policies
from benchmarks.cache_policies import Future, read_merged, simulate_policies
from tiering import native
from tiering.formats.ssd_rows import SsdRows
from tiering.readahead.config import SsdTables
from tiering.readahead.disk_speed import DiskSpeed

ROWS = 14
BATCHES = st.lists(st.sets(st.integers(0, ROWS - 1), min_size=1).map(sorted), min_size=1, max_size=9)


def future(batches: list[list[int]], rows: int = ROWS) -> Future:
    return Future([np.array(batch, np.uint32) for batch in batches], rows)


def sets(missing: object) -> list[set[int]]:
    return [set(rows.tolist()) for rows in missing]  # type: ignore[attr-defined]


@given(BATCHES, st.integers(0, ROWS))
def test_lru_and_belady_miss_what_plain_python_misses(batches, slots):
    assert sets(policies.least_recently_used(future(batches), slots)) == plain.lru(batches, slots)
    assert sets(policies.belady(future(batches), slots)) == plain.belady(batches, slots)


SPEED = DiskSpeed(100_000, 1e9)
TABLES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([7, 400, 600, 1536, 4096, 5732])), min_size=1, max_size=3
)


def tables_of(entries: list[tuple[int, int]], page: int = 4096) -> SsdTables:
    unit, places = SsdRows.plan_all(entries, page, 1)
    rows = [
        (*entry, place.first_unit, place.stride, place.rows_per_unit)
        for entry, place in zip(entries, places, strict=True)
    ]
    return SsdTables([f"t{k}" for k in range(len(entries))], rows, [0] * len(entries), (unit, page), 1)


@given(TABLES, st.sampled_from([512, 4096, 16384]), st.data())
def test_pages_are_those_of_a_walk_over_the_blocks(entries, page, data):
    rows = data.draw(st.sets(st.integers(0, sum(count for count, _ in entries) - 1)))
    spans = policies.row_spans(tables_of(entries, page), np.array(sorted(rows), np.uint32))
    assert policies.read_pages(*spans) == plain.page_by_page(rows, plain.extents(entries, page))


@given(TABLES, st.sampled_from([512, 4096, 16384]), st.sampled_from([0, 4096, 50_000]), st.data())
def test_merged_reads_are_those_of_a_walk_and_of_the_loader(entries, page, gap, data):
    """The loader cuts reads longer than its longest between rows: there only the bytes are the same."""
    rows = data.draw(st.sets(st.integers(0, sum(count for count, _ in entries) - 1), min_size=1))
    tables, array = tables_of(entries, page), np.array(sorted(rows), np.uint32)
    found = read_merged(tables, array, gap)
    assert found == plain.merged(rows, plain.extents(entries, page), gap)
    if page == 4096:
        pools = [(size, 200) for size in {size for _, size in entries}]
        ((*_, reads, nbytes),) = native.simulate_rounds(
            tables.rows, tables.shape, 1, pools, 1, 0, [array], [gap], max_read=1 << 30
        )
        assert found[1] == nbytes and (found[0] == reads or nbytes > plain.LONGEST)


@settings(max_examples=60)
@given(st.integers(4, 30), st.sampled_from([100, 1536, 4096]), st.data())
def test_seconds_are_those_of_plain_python(count, size, data):
    some = st.sets(st.integers(0, count - 1), min_size=1, max_size=count // 2).map(sorted)
    batches = data.draw(st.lists(some, min_size=3, max_size=12))
    slots = data.draw(st.integers(count // 2, count))
    where, first = plain.extents([(count, size)], 4096), len(batches) // 3
    found = simulate_policies(
        tables_of([(count, size)]), SPEED, [np.array(batch, np.uint32) for batch in batches], slots, 3
    )

    def seconds(reads: list[tuple[int, int]]) -> float:
        return float(np.mean([SPEED.seconds(*read) for read in reads]))

    for name, missing in (
        ("static", plain.fixed(batches, set(range(slots)))),
        ("lru", plain.lru(batches, slots)),
        ("belady", best := plain.belady(batches, slots)),
    ):
        assert found[name] == pytest.approx(seconds([plain.page_by_page(rows, where) for rows in missing[first:]]))
    merged = [[plain.merged(rows, where, gap) if rows else (0, 0) for rows in best[first:]] for gap in (0, SPEED.gap)]
    assert found["belady-merged"] == pytest.approx(min(map(seconds, merged)))
    assert {"random", "window-4", "window-8", "window-16", "static", "look-ahead"} < set(found)
