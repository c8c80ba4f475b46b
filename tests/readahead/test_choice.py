"""The choice of a window, against every window tried by hand; slots for the memory there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from striped_rows import Striped

from tiering import native
from tiering.readahead.config import ReadaheadConfig, SsdTables, choose_config, divide_slots, price_epochs
from tiering.readahead.disk_speed import DiskSpeed

PAGE, ROW = 4096, 512
DISK = DiskSpeed(100_000, 1e9)


def tables_of(*kinds: tuple[int, int]) -> SsdTables:
    """Tables of (rows, bytes of a row), one after the other on one image, in units of a page."""
    rows, page = [], 0
    for count, row_bytes in kinds:
        in_page = PAGE // row_bytes
        rows.append((count, row_bytes, page, row_bytes, in_page))
        page += -(-count // in_page)
    return SsdTables([f"type {k}" for k in range(len(kinds))], rows, [0] * len(kinds), (PAGE, PAGE), 1)


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([4, 100, 512])), min_size=1, max_size=4),
       st.integers(1, 3), st.integers(1, 4))  # fmt: skip
def test_pages_are_of_the_type_whose_rows_they_hold(sizes, images, pages):
    space = Striped(sizes, 512, images, pages=pages)
    tables = SsdTables([str(k) for k in range(len(sizes))], space.core, [0] * len(sizes), space.shape, images)
    for row in range(space.count):
        image, begin, end = space.place(row)
        for page in range(begin // 512, (end - 1) // 512 + 1):
            assert tables.type_of_page(page * images + image) == str(space.table_of(row))


def drawn(count: int, rows: int, each: int, seed: int = 0) -> list[np.ndarray]:
    """Batches of different rows at random."""
    random = np.random.default_rng(seed)
    return [random.choice(rows, each, replace=False).astype(np.uint32) for _ in range(count)]


def in_parts(batches: list[np.ndarray], slots: int) -> list[np.ndarray]:
    """Batches that take more than an eighth of the slots in parts of the same size, in the order of their rows."""
    parts = []
    for batch in batches:
        number = -(-len(batch) // (slots // 8))
        size = -(-len(batch) // number)
        parts += [batch] if number == 1 else [np.sort(batch)[k * size : (k + 1) * size] for k in range(number)]
    return parts


def seconds_by_hand(tables: SsdTables, slots: int, batches: list[np.ndarray], window: int, horizon: int) -> float:
    """Seconds per batch, by the pages that each round asks for: those behind the first third of the batches.

    Reads are counted from the rows of the rounds alone: neighboring pages go together up to 256 KiB. A batch of the
    first rows comes before all others.
    """
    warm = np.arange(min(slots, tables.num_rows), dtype=np.uint32)
    table = native.simulate_rounds(
        tables.rows, tables.shape, 1, [(ROW, slots)], window, horizon, [warm, *batches], [0, DISK.gap // 4, DISK.gap]
    ).tolist()
    late = [line for line in table if line[0] - 1 >= len(batches) // 3] or table[-1:]
    number = sum(line[1] - line[0] for line in late)
    return min(sum(DISK.seconds(line[at], line[at + 1]) for line in late) / number for at in (4, 6, 8))


@pytest.mark.parametrize("each", [20, 60, 250, 1000, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("slots", [4000, 10_000, 29_000])
def test_the_cheapest_window(each, slots):
    """No power of two is cheaper by more than a fifth, whatever is known behind it, though few are tried.

    The price is that of its rounds.
    """
    tables, batches = tables_of((30_000, ROW)), drawn(64, 30_000, each)
    choice = choose_config(tables, [(ROW, slots)], batches, DISK)
    parts = in_parts(batches, slots)
    window = min(choice.window, len(parts) // 4)  # larger ones are taken at the price of the largest that was tried
    foreseen = seconds_by_hand(tables, slots, parts, window, choice.horizon) * len(parts) / len(batches)
    assert choice.seconds == pytest.approx(foreseen)
    assert choice.parts == len(parts) / len(batches)
    horizons = (0, 1, 4, 16)
    prices = {
        (1 << k, h): seconds_by_hand(tables, slots, batches, 1 << k, h) for k in range(5) for h in (*horizons, 1 << k)
    }  # of whole batches
    assert choice.seconds <= 1.2 * min(prices.values())
    assert choice.gap in (0, DISK.gap)


def test_no_more_batches_are_held_than_allowed():
    tables, batches = tables_of((30_000, ROW)), drawn(200, 30_000, 50)
    for most in (2, 5, 20):
        choice = choose_config(tables, [(ROW, 10_000)], batches, DISK, max_known=most)
        assert choice.window + choice.horizon <= max(2, most)


def test_a_disk_of_few_reads_reads_through_gaps():
    tables, batches = tables_of((30_000, ROW)), drawn(40, 30_000, 300)
    slow, fast = DiskSpeed(100, 1e9), DiskSpeed(1e6, 1e7)
    assert choose_config(tables, [(ROW, 3000)], batches, slow).gap >= slow.gap // 4 > 2_000_000
    assert choose_config(tables, [(ROW, 3000)], batches, fast).read_bytes <= 300 * PAGE


KINDS = st.lists(st.tuples(st.integers(1, 500), st.sampled_from([64, 128, 512, 4096])), min_size=1, max_size=4)


@given(KINDS, st.integers(0, 1 << 21), st.data())
def test_slots_stay_within_their_bytes(kinds, nbytes, data):
    tables = tables_of(*kinds)
    total: dict[int, int] = {}
    for count, row_bytes in kinds:
        total[row_bytes] = total.get(row_bytes, 0) + count
    sizes = {row_bytes: data.draw(st.integers(0, 3 * count)) for row_bytes, count in total.items()}
    pools = divide_slots(tables, nbytes, sizes)
    assert sorted(row_bytes for row_bytes, _ in pools) == sorted(total)
    assert all(0 <= slots <= total[row_bytes] for row_bytes, slots in pools)
    assert sum(slots * (row_bytes + 8) for row_bytes, slots in pools) <= nbytes
    whole = sum(count * (row_bytes + 8) for row_bytes, count in total.items())
    if nbytes >= whole + len(total):
        assert dict(pools) == total
    elif len(total) == 1:  # no slot is left that would fit
        [(row_bytes, slots)] = pools
        assert slots == nbytes // (row_bytes + 8)


def test_all_rows_get_slots_where_all_fit():
    """Pools are served in the order of what they need with the 8 bytes that a slot takes beside its row."""
    assert dict(divide_slots(tables_of((403, 64), (172, 4096)), 777_723, {64: 1207, 4096: 511})) == {64: 403, 4096: 172}


@given(st.integers(0, 1 << 20))
def test_shares_go_by_what_batches_use(nbytes):
    """Three times the bytes of one size are used: it gets three times the bytes, unless there are not so many."""
    tables = tables_of((4000, 512), (500, 4096))
    slots = dict(divide_slots(tables, nbytes, {512: 24, 4096: 1}))
    assert slots[512] == pytest.approx(0.75 * nbytes / 520, abs=1)
    assert slots[4096] == pytest.approx(0.25 * nbytes / 4104, abs=1)


@pytest.mark.parametrize("slots", [20_000, 90_000])
def test_what_an_eighth_of_the_rows_says_of_the_whole(slots):
    """Of a tier large enough to be thinned, skewed batches: the same window serves, and its price is foreseen."""
    random = np.random.default_rng(5)
    tables = tables_of((1_100_000, ROW))
    batches = [
        np.unique((1_100_000 * random.random(4000) ** 3).astype(np.uint32)).astype(np.uint32) for _ in range(160)
    ]
    assert tables.thinning == 8
    thin = [tables.thinned(batch) for batch in batches]
    assert sum(map(len, thin)) == pytest.approx(sum(map(len, batches)) / 8, rel=0.15)
    choice = choose_config(tables, [(ROW, slots)], thin, DISK, scale=8)
    whole = choose_config(tables, [(ROW, slots)], batches, DISK)
    assert choice.seconds == pytest.approx(whole.seconds, rel=0.2)
    assert seconds_by_hand(tables, slots, batches, choice.window, choice.horizon) <= 1.2 * whole.seconds


@pytest.mark.parametrize(("window", "horizon"), [(1, 0), (3, 0), (3, 5), (4, 20)])
def test_an_epoch_ends_for_the_plan(window, horizon):
    """Rounds of the first epoch are those of it alone; none has batches of both, and all of both are there."""
    tables, batches = tables_of((2000, ROW)), drawn(24, 2000, 90)
    run = tables.rows, tables.shape, 1, [(ROW, 700)], window, horizon
    alone = native.simulate_rounds(*run, batches[:11], [0])
    both = native.simulate_rounds(*run, batches, [0], epoch_ends=[11])
    np.testing.assert_array_equal(both[: len(alone)], alone)
    assert not ((both[:, 0] < 11) & (both[:, 1] > 11)).any()
    assert (both[:, 1] - both[:, 0]).sum() == 24


def test_the_price_of_epochs():
    """Epochs one after the other cost their own rounds; one of which some batches are known, as many times these."""
    tables, epochs = tables_of((30_000, ROW)), [drawn(40, 30_000, 500, seed) for seed in range(6)]
    choice = ReadaheadConfig(2, 3, 0)
    costs = price_epochs(tables, [(ROW, 8000)], epochs, DISK, choice, 40)
    rounds = native.simulate_rounds(
        tables.rows, tables.shape, 1, [(ROW, 8000)], 2, 4, [part for batches in epochs for part in batches], [0],
        epoch_ends=range(40, 240, 40),
    )  # fmt: skip
    assert len(costs) == 5
    for number, cost in enumerate(costs, 1):
        own = rounds[rounds[:, 0] // 40 == number]
        assert (cost.reads, cost.read_bytes) == tuple(own[:, 4:6].sum(axis=0))
        assert cost.seconds == pytest.approx(cost.reads * 1e-5 + (cost.read_bytes - 4096 * cost.reads) * 1e-9)
        assert cost.hit_rate == pytest.approx(1 - own[:, 3].sum() / 20_000)
    [more] = price_epochs(tables, [(ROW, 8000)], [epochs[4][:20], epochs[5][:20]], DISK, choice, 400)
    for name in ("reads", "read_bytes", "seconds"):
        assert getattr(more, name) == pytest.approx(10 * getattr(costs[-1], name), rel=0.03)
    assert 0 < cost.hit_rate < 1 and more.hit_rate == pytest.approx(cost.hit_rate, abs=0.03)


def test_epochs_with_room_for_all_rows_read_those_that_none_before_them_used():
    tables, epochs = tables_of((30_000, ROW)), [drawn(6, 30_000, 900, seed) for seed in range(5)]
    used, fresh = set(np.concatenate(epochs[0]).tolist()), []
    for batches in epochs[1:]:
        rows = set(np.concatenate(batches).tolist())
        fresh.append(len(rows - used))
        used |= rows
    costs = price_epochs(tables, [(ROW, 30_000)], epochs, DISK, ReadaheadConfig(2, 8, 0), 6)
    assert [round((1 - cost.hit_rate) * 5400) for cost in costs] == fresh
