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
from tiering.evaluation.cache_order import Rows
from tiering.evaluation.ssd_reading import POLICIES, ReadingSpec
from tiering.readahead.config import SsdTables
from tiering.readahead.disk_speed import DiskSpeed
from tiering.text.units import Size

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


@given(BATCHES, st.sets(st.integers(0, ROWS - 1)))
def test_held_rows_are_never_missing_and_others_always(batches, held):
    missing = policies.held_throughout(future(batches), np.array(sorted(held), np.uint32))
    assert sets(missing) == plain.fixed(batches, held)


@given(BATCHES, st.integers(0, ROWS), st.integers(0, 2**32))
def test_rows_at_random_are_as_many_as_slots(batches, slots, seed):
    everything = [*batches, list(range(ROWS))]
    *missing, others = sets(policies.at_random(future(everything), slots, seed))
    assert len(others) == ROWS - slots
    assert missing == plain.fixed(batches, set(range(ROWS)) - others)


@given(BATCHES, st.integers(0, ROWS), st.integers(0, 5), st.integers(0, 100))
def test_what_the_window_pins_is_not_read_again(batches, slots, window, seed):
    """A row that is missing was not there since its last use, or some batch since then left more pinned than slots."""
    missing = sets(policies.window_buffering(future(batches), slots, window, seed))
    seen: set[int] = set()
    for k, rows in enumerate(missing):
        assert set(batches[k]) - seen <= rows <= set(batches[k])
        for row in rows & seen:
            before = max(j for j in range(k) if row in batches[j])
            pinning = range(max(before, k - window), k)
            crowded = any(
                len({r for b in batches[j + 1 : j + 1 + window] for r in b if r in seen}) > slots for j in pinning
            )
            assert crowded or before < k - window
        seen |= set(batches[k])


@given(BATCHES, st.integers(0, 100))
def test_with_room_for_all_only_first_uses_are_missing(batches, seed):
    first = [set(batch) - {row for before in batches[:k] for row in before} for k, batch in enumerate(batches)]
    for window in policies.BUFFERED_WINDOWS:
        assert sets(policies.window_buffering(future(batches), ROWS, window, seed)) == first


SPEED = DiskSpeed(100_000, 1e9)
TABLES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([7, 400, 600, 1536, 4096, 5732])), min_size=1, max_size=3
)


def tables_of(entries: list[tuple[int, int]], page: int = 4096) -> SsdTables:
    counts, sizes = zip(*entries, strict=True)
    names = tuple(f"t{k}" for k in range(len(entries)))
    return ReadingSpec(Rows(names, counts, sizes, ("given",) * len(names)), (Size("1", bytes=1),), page, SPEED).tables


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
            tables.rows, page, 1, pools, 1, 0, [array], [gap], max_read=1 << 30
        )
        assert found[1] == nbytes and (found[0] == reads or nbytes > plain.LONGEST)


def test_long_reads_are_cut():
    """1000 rows of 4 KiB side by side: 4,096,000 bytes are 16 requests of up to 256 KiB."""
    tables = tables_of([(1000, 4096)])
    assert read_merged(tables, np.arange(1000, dtype=np.uint32), 0) == (16, 4_096_000)
    assert read_merged(tables, np.array([0, 2], np.uint32), 4095) == (2, 8192)
    assert read_merged(tables, np.array([0, 2], np.uint32), 4096) == (1, 12288)
    assert read_merged(tables, np.zeros(0, np.uint32), 0) == (0, 0)


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
    assert {"random", "window-4", "window-8", "window-16", *POLICIES} < set(found)
