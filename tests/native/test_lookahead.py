"""What is read when, ahead of batches: rounds, the rows that give way, and the reads that bring the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from striped_rows import Striped, plain_rounds

from tiering import native
from tiering.errors import RefusedError

SIZES = [4, 40, 300, 512, 520, 1536, 4096, 5732, 9000]
ENDLESS = 1 << 40


def simulated(
    space: Striped,
    slots: dict[int, int],
    window: int,
    horizon: int,
    batches: Sequence[Sequence[int]],
    gaps: Sequence[int] = (),
    **rules: int,
) -> Any:
    """The core's rounds: first, last, rows needed, rows read, then reads and bytes for each gap."""
    return native.simulate_rounds(
        space.core, space.shape, space.images, list(slots.items()), window, horizon,
        [np.array(batch, np.uint32) for batch in batches], list(gaps), **rules,
    )  # fmt: skip


def one_table(rows: int, row_bytes: int = 512) -> Striped:
    return Striped([(rows, row_bytes)], 4096, 1)


@st.composite
def batches_of(draw: st.DrawFn, rows: int, most: int = 12) -> list[list[int]]:
    """Batches of different rows, in any order; some are empty."""
    numbers = st.integers(0, rows - 1)
    sizes = st.integers(0, 8)
    return draw(
        st.lists(sizes.flatmap(lambda size: st.lists(numbers, max_size=size, unique=True)), min_size=1, max_size=most)
    )


@st.composite
def spaces(draw: st.DrawFn) -> Striped:
    """Up to three tables, of equal and of different row sizes, one of which may be empty."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(SIZES)), min_size=1, max_size=3))
    sizes = sizes if any(rows for rows, _ in sizes) else [(5, 512)]
    return Striped(sizes, draw(st.sampled_from([512, 4096])), draw(st.integers(1, 3)), draw(st.integers(0, 5)))


def largest(space: Striped, batches: Sequence[Sequence[int]]) -> dict[int, int]:
    """By bytes of a row, how many rows the largest batch needs at once."""
    sizes = {table.row_bytes for table in space.tables}
    return {size: max(sum(space.row_bytes(row) == size for row in batch) for batch in batches) for size in sizes}


@st.composite
def works(draw: st.DrawFn) -> tuple[Striped, dict[int, int], list[list[int]]]:
    """Tables, slots that suffice for each batch, batches."""
    space = draw(spaces())
    batches = draw(batches_of(space.count))
    slots = {size: least + draw(st.integers(0, 12)) for size, least in largest(space, batches).items()}
    return space, slots, batches


@given(works(), st.integers(1, 5), st.integers(0, 6))
def test_rounds_are_those_of_the_plain_rule(work, window, horizon):
    """As long as window and slots allow; a row is read where it is not in the buffer, once per round."""
    space, slots, batches = work
    plain = plain_rounds(space, slots, window, horizon, [set(batch) for batch in batches])
    rounds = simulated(space, slots, window, horizon, batches)
    expected = [[r.first, r.last, len(r.needed), len(r.read)] for r in plain]
    assert rounds.tolist() == expected


@given(works(), st.integers(1, 5), st.sampled_from([512, 4096]), st.sampled_from([512, 8192, 32768, ENDLESS]))
def test_reads_are_whole_blocks_through_gaps_up_to_the_longest(work, window, align, max_read):
    space, slots, batches = work
    gaps = [0, 512, 5000, 20_000, ENDLESS]
    rounds = simulated(space, slots, window, 3, batches, gaps, align=align, max_read=max_read)
    plain = plain_rounds(space, slots, window, 3, [set(batch) for batch in batches])
    for found, expected in zip(rounds.tolist(), plain, strict=True):
        for k, gap in enumerate(gaps):
            assert tuple(found[4 + 2 * k : 6 + 2 * k]) == space.reads(expected.read, gap, align, max_read)


@given(works(), st.integers(1, 5), st.integers(0, 3))
def test_the_smallest_buffer_serves_and_one_slot_less_is_refused(work, window, horizon):
    space, _, batches = work
    slots = largest(space, batches)
    rounds = simulated(space, slots, window, horizon, batches)
    assert [first for first, *_ in rounds.tolist()][:1] == [0]
    assert rounds[-1, 1] == len(batches)
    for size, most in slots.items():
        if most > 0:
            words = f"a batch needs {most} rows of {size} bytes of the ssd tier, and the buffer has room for {most - 1}"
            with pytest.raises(RefusedError, match=words):
                simulated(space, {**slots, size: most - 1}, window, horizon, batches)


@given(spaces(), st.data())
def test_rows_among_ids(space, data):
    """Ids of each table from its begin on, counted through the tables."""
    begins = [data.draw(st.integers(0, 10)) for _ in space.tables]
    ids = [
        data.draw(st.lists(st.integers(0, begin + table.rows - 1), max_size=20)) if begin + table.rows else []
        for begin, table in zip(begins, space.tables, strict=True)
    ]
    expected = [
        space.firsts[t] + one - begins[t] for t, some in enumerate(ids) for one in some if one >= begins[t]
    ]  # fmt: skip
    arrays = [np.array(some, np.int64) for some in ids]
    found = native.ssd_rows_among(space.core, space.shape, begins, arrays)
    assert found.dtype == np.uint32
    assert found.tolist() == expected


@pytest.mark.parametrize("bad", [-1, 17, 1 << 40])
def test_ids_that_no_table_has(bad):
    space = Striped([(10, 512), (7, 40)], 4096, 1)
    with pytest.raises(RefusedError, match=rf"ids: expected ranks of 0\.\.16, found {bad}"):
        native.ssd_rows_among(space.core, space.shape, [0, 10], [np.array([3]), np.array([0, bad])])


@pytest.mark.parametrize("bad", [[5], [0, 1 << 31], [(1 << 32) - 1]])
def test_rows_that_no_table_has(bad):
    with pytest.raises(RefusedError, match=f"batches: expected rows of 0..4, found {bad[-1]}"):
        simulated(one_table(5), {512: 5}, 1, 0, [[1], bad])


@pytest.mark.parametrize(("change", "words"), [
    ({"tables": []}, "tables: expected at least one"),
    ({"tables": [(5, 512, 4, 512, 8), (5, 512, 0, 512, 8)]}, "in the order of their units"),
    ({"tables": [(9, 512, 0, 512, 8), (5, 512, 1, 512, 8)]}, "in the order of their units"),
    ({"tables": [(5, 512, 0, 256, 8)]}, "do not match"),
    ({"tables": [(5, 512, 0, 512, 9)]}, "do not match"),
    ({"tables": [(1 << 32, 512, 0, 512, 8)]}, "supports less than 2"),
    ({"shape": (4096, 0)}, "do not match"), ({"num_images": 0}, "do not match"),
    ({"pools": [(40, 5)]}, "pools: expected one for rows of 512 bytes"),
    ({"pools": [(512, -1)]}, "slots"),
    ({"window": 0}, "window: expected at least 1 batch, found 0"),
    ({"horizon": -1}, "horizon: expected 0 or more batches, found -1"),
])  # fmt: skip
def test_plans_that_make_no_sense(change, words):
    given = {
        "tables": one_table(5).core, "shape": (4096, 4096), "num_images": 1, "pools": [(512, 5)], "window": 1,
        "horizon": 0, "batches": [np.array([1], np.uint32)], "gaps": [0],
    }  # fmt: skip
    native.simulate_rounds(**given)
    with pytest.raises(RefusedError, match=words):
        native.simulate_rounds(**{**given, **change})
