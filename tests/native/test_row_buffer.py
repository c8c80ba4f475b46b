"""The buffer in front of the ssd tier: batches get their rows, whatever is read ahead, and however an epoch ends."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_process import in_child
from hypothesis import given, settings
from hypothesis import strategies as st
from row_buffers import ENGINES, Batch, Epoch, Rows, descriptors, random_batches, run_epoch, within
from striped_rows import Striped, cut, plain_rounds

from tiering import native
from tiering.errors import RefusedError
from tiering.loader.tables.resident import anonymous

PAGE = 4096
SHORT = Path("/sys/kernel/btf/vmlinux")
"""A file of the kernel, of which a read returns a page at most: short reads in the middle of a file."""
SIZES = [4, 40, 512, 520, 1536, 4096, 5732]


@pytest.fixture(params=ENGINES)
def engine(request):
    return str(request.param)


@pytest.fixture
def rows(tmp_path):
    """Two tables over two images, half of whose pages hold rows that run over their ends."""
    return Rows(tmp_path, Striped([(300, 512), (60, 5732)], 4096, 2, 1), cached=5)


@st.composite
def works(draw: st.DrawFn) -> tuple[Striped, int, list[Batch]]:
    """Tables, rows of each in memory, batches."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 60), st.sampled_from(SIZES)), min_size=1, max_size=3))
    space = Striped(sizes, draw(st.sampled_from([512, 4096])), draw(st.integers(1, 3)), draw(st.integers(0, 3)))
    cached = draw(st.sampled_from([0, 3]))
    some_ids = [st.lists(st.integers(0, cached + number - 1), max_size=25, unique=True) for number, _ in sizes]
    return space, cached, draw(st.lists(st.tuples(*some_ids).map(list), min_size=1, max_size=12))


@settings(max_examples=60)
@given(
    work=works(), engine=st.sampled_from(ENGINES), direct=st.sampled_from(["auto", "off"]), depth=st.integers(1, 8),
    window=st.integers(1, 5), horizon=st.integers(0, 5), gap=st.sampled_from([0, 4096, 100_000]),
    max_read=st.sampled_from([512, 8192, 256 << 10]), spare=st.integers(0, 20), upto=st.integers(0, 12),
)  # fmt: skip
def test_every_batch_gets_its_rows(
    tmp_path_factory, work, engine, direct, depth, window, horizon, gap, max_read, spare, upto
):
    """In an epoch, in one that is broken off, and in the next, which goes on with what is there."""
    space, cached, batches = work
    rows = Rows(tmp_path_factory.mktemp("rows"), space, cached)
    buffer = rows.buffer(rows.slots(batches, spare), engine, direct, depth=depth, max_read=max_read)
    how = {"window": window, "horizon": horizon, "gap": gap}
    run_epoch(rows, buffer, batches, **how)
    assert buffer.engine == engine
    check_counters(rows, buffer, batches, window, horizon)
    run_epoch(rows, buffer, batches, upto, **how)
    run_epoch(rows, buffer, batches, **how)
    assert buffer.counters.batches == 2 * len(batches) + min(upto, len(batches))


def check_counters(rows: Rows, buffer: Any, batches: Sequence[Batch], window: int, horizon: int) -> None:
    """After the first epoch: what the plain rule says of batches that are known one by one."""
    found, disk = buffer.counters, [rows.on_disk(batch) for batch in batches]
    size = rows.space.row_bytes
    assert found.batches == len(batches)
    assert found.rows == sum(map(len, disk))
    assert found.used_bytes <= found.read_bytes
    assert found.missed <= found.needed <= found.rows
    assert found.missed >= len(set().union(*disk))
    assert (found.reads > 0) == (found.missed > 0)
    assert found.read_bytes % 4096 == 0
    assert min(found.wait_nanoseconds, found.idle_nanoseconds) >= 0
    if found.missed == len(set().union(*disk)):
        assert found.used_bytes == sum(size(row) for row in set().union(*disk))


def test_rounds_and_misses_are_those_of_the_plan(rows, engine):
    """One round is planned before the next batch is known: what is read equals the plain rule's, to the row."""
    batches = random_batches(rows, 30, 40)
    slots = rows.slots(batches, 30)
    buffer = rows.buffer(slots, engine, depth=4)
    parts = [set(part) for batch in batches for part in cut(rows.space.row_bytes, slots, sorted(rows.on_disk(batch)))]
    assert len(parts) > 2 * len(batches)
    run_epoch(rows, buffer, batches, window=3, horizon=len(parts), gap=8192)
    plain = plain_rounds(rows.space, slots, 3, len(parts), parts)
    read = [row for one in plain for row in one.read]
    found = buffer.counters
    assert (found.rounds, found.needed, found.missed) == (
        len(plain), sum(len(one.needed) for one in plain), len(read)
    )  # fmt: skip
    assert found.used_bytes == sum(rows.space.row_bytes(row) for row in read)
    assert found.used_bytes < found.read_bytes


def test_who_waits_is_released_by_stop(rows, engine):
    """A gather whose batch nobody adds, and a feeder whose batches nobody takes."""
    batches = random_batches(rows, 40, 40)
    buffer = rows.buffer(rows.slots(batches), engine)
    buffer.begin(1, 0, 0)
    stopper = threading.Timer(0.02, buffer.stop)
    stopper.start()
    with pytest.raises(RefusedError, match="the epoch was ended"):
        within(60, lambda: buffer.wait(0))
    stopper.join()
    buffer.cancel()
    epoch = Epoch(buffer, batches)
    time.sleep(0.02)
    within(60, epoch.close)
    assert epoch.error is None
    run_epoch(rows, buffer, batches)


def test_one_epoch_at_a_time(rows):
    buffer = rows.buffer({512: 300, 5732: 60})
    buffer.begin(1, 0, 0)
    with pytest.raises(RefusedError, match="an epoch is running"):
        buffer.begin(1, 0, 0)
    buffer.cancel()
    assert not buffer.add([np.empty(0, np.int64)] * 2)
    for window, horizon, words in ((0, 0, "window: expected at least 1"), (1, -1, "horizon: expected 0 or more")):
        with pytest.raises(RefusedError, match=words):
            buffer.begin(window, horizon, 0)
    run_epoch(rows, buffer, random_batches(rows, 5, 20))


@pytest.mark.parametrize("slots", [{512: 1, 5732: 1}, {512: 7, 5732: 30}, {512: 40, 5732: 9}])
def test_batches_larger_than_the_buffer_come_in_parts(rows, engine, slots):
    """Down to a slot for rows of each size."""
    batches = [*random_batches(rows, 4, 60), [[], list(range(65))], [list(range(305)), []], [[], []]]
    for window, horizon in ((1, 0), (3, 9)):
        buffer = rows.buffer(slots, engine, depth=2)
        run_epoch(rows, buffer, batches, window=window, horizon=horizon)
        assert buffer.counters.rows == sum(map(len, map(rows.on_disk, batches)))
        assert buffer.counters.batches == len(batches)
        run_epoch(rows, buffer, batches, 3, window=window, horizon=horizon)
        run_epoch(rows, buffer, batches, window=window, horizon=horizon)


def test_a_buffer_without_slots_for_rows_of_a_size_refuses_them(rows):
    buffer = rows.buffer({512: 30, 5732: 0})
    buffer.begin(1, 0, 0)
    with pytest.raises(RefusedError, match=r"a batch needs 1 rows of 5732 bytes .*, and the buffer has no room"):
        buffer.add([np.array([5]), np.array([9])])
    buffer.cancel()


@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_rows_longer_than_the_longest_read(tmp_path, engine, page_bytes):
    """A read takes the whole of a row on an image, and the engine has room for it."""
    rows = Rows(tmp_path, Striped([(12, 20_000), (9, 70_001)], page_bytes, 1, 3))
    batches = [[list(range(12)), list(range(9))], [[3], [8, 0]]]
    for direct in ("auto", "off"):
        buffer = rows.buffer({20_000: 12, 70_001: 9}, engine, direct, depth=8, max_read=1)
        run_epoch(rows, buffer, batches)


def test_arguments_that_make_no_sense(rows):
    slots = {512: 30, 5732: 10}
    for change, words in (
        ({"engine": "spdk"}, "engine: expected"),
        ({"depth": 0}, "depth: expected 1 to 4096"),
        ({"max_read": 0}, "max_read: expected"),
        ({"checksums": [np.zeros(100, np.uint32)]}, "checksums: expected"),
        ({"checksums": [np.zeros(100, np.uint32), np.zeros(3, np.uint32)]}, "checksums: expected"),
    ):
        with pytest.raises(RefusedError, match=words):
            rows.buffer(slots, **change)
    with pytest.raises(RefusedError, match="arena: expected 72680 bytes, found 100"):
        native.RowBuffer(
            rows.space.core, [5, 5], rows.space.shape, [*map(str, rows.paths)], list(slots.items()), anonymous(100)
        )
    with pytest.raises(RefusedError, match="images"):
        native.RowBuffer(rows.space.core, [5, 5], rows.space.shape, [], list(slots.items()), anonymous(72680))
    with pytest.raises(RefusedError, match="max_read: expected"):
        native.buffer_staging_bytes(rows.space.core, rows.space.shape, 2, 8, 0)


def test_gathers_of_something_else_are_refused(rows):
    """Tables, ids and targets must be those of the batch; the batch can still be gathered then."""
    buffer, ids = rows.buffer({512: 30, 5732: 10}), [np.array([1, 9, 8]), np.array([7])]
    outs = [np.zeros((3, 512), np.uint8), np.zeros((1, 5732), np.uint8)]
    buffer.begin(1, 0, 0)
    assert buffer.add(ids)
    assert buffer.end()
    for bad in (
        (rows.tables[:1], ids[:1], outs[:1]),
        (rows.tables, ids[:1], outs),
        (rows.tables, ids, outs[:1]),
        (rows.tables, [ids[0][:2], ids[1]], [outs[0][:2], outs[1]]),
    ):
        with pytest.raises(RefusedError, match=r"expected"):
            within(60, lambda bad=bad: rows.gather(buffer, 0, *bad))
    rows.check_gather(buffer, 0, [[1, 9, 8], [7]])
    for batch in (-1, 0, 1, 2):
        with pytest.raises(RefusedError, match=f"batch {batch}: expected"):
            within(60, lambda batch=batch: rows.gather(buffer, batch, rows.tables, ids, outs))
    buffer.cancel()


def test_batches_released_in_any_order_get_their_rows(rows, engine):
    """Two threads take every second batch each, the second one late; rows to read come as numbers."""
    batches = random_batches(rows, 40, 12, seed=3)
    buffer = rows.buffer(rows.slots(batches, spare=25), engine)
    buffer.begin(2, 1, 0, True)

    def feed() -> None:
        for batch in batches:
            ids = [np.array(some, np.int64) for some in batch]
            numbers = native.ssd_rows_among(rows.space.core, rows.space.shape, [rows.cached] * 2, ids)
            assert buffer.add_rows(numbers)
        assert buffer.end()

    def take(first: int) -> None:
        time.sleep(0.05 * first)
        for number in range(first, len(batches), 2):
            rows.check_gather(buffer, number, batches[number])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(feed), pool.submit(take, 0), pool.submit(take, 1)]:
            done.result(60)
    assert buffer.counters.batches == len(batches)
    with pytest.raises(RefusedError, match="batch 7: expected"):
        buffer.take(7, 0)
    buffer.cancel()


def test_slots_that_there_are_not_are_refused(rows):
    pools, ids = [(512, 4), (5732, 2)], [np.array([9]), np.array([7])]
    outs = [np.zeros((1, 512), np.uint8), np.zeros((1, 5732), np.uint8)]
    arena = anonymous(4 * 512 + 2 * 5732)
    for slots, memory, words in (
        ([0, 6], arena, "slots: expected some of 0..5, found 6"),
        ([0], arena, "places: expected as many as slots"),
        ([0, 4], arena[:-1], "arena: expected 13512 bytes, found 13511"),
    ):
        with pytest.raises(RefusedError, match=words):
            native.gather_from_slots(
                memory, pools, np.array(slots, np.uint32), np.empty(0, np.uint32), 2, True, rows.tables, ids, outs
            )
    for places, of_batch, words in (
        ([2], 2, r"places: expected some of 0\.\.1, found 2"),
        ([0], 3, "expected those that the batch was planned with"),
    ):
        with pytest.raises(RefusedError, match=words):
            native.gather_from_slots(
                arena, pools, np.array([0], np.uint32), np.array(places, np.uint32), of_batch, True, rows.tables, ids,
                outs,
            )  # fmt: skip
    buffer = rows.buffer({512: 30, 5732: 10})
    buffer.begin(1, 0, 0)
    with pytest.raises(RefusedError, match=r"expected rows of 0\.\.359, found 360"):
        buffer.add_rows(np.array([360], np.uint32))
    buffer.cancel()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_drops_a_buffer_whose_readers_its_parent_has(rows, engine):
    """The readers wait for more while the fork is made; in the child there are none who could be told."""
    batches = random_batches(rows, 5, 40)
    whole = {size: 8 * number for size, number in rows.slots(batches).items()}  # batches come in one part each
    held = [rows.buffer(whole, engine)]
    held[0].begin(2, 2, 0)
    for number, batch in enumerate(batches[:4]):
        held[0].add([np.array(ids, np.int64) for ids in batch])
        if number >= 3:
            rows.check_gather(held[0], 0, batches[0])
    time.sleep(0.05)

    def child() -> int:
        threads = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        gc.collect()
        before = descriptors()
        held[0].stop()
        held.clear()
        gc.collect()
        gone = before - descriptors()
        for thread in threads:
            thread.join()
        return gone

    assert in_child(child) == 2  # the images
    held[0].add([np.array(ids, np.int64) for ids in batches[4]])
    held[0].end()
    for number in range(1, 5):
        rows.check_gather(held[0], number, batches[number])
    held[0].cancel()


def test_one_of_two_disks_fails_while_the_other_has_nothing_to_do(engine, tmp_path):
    """The reader of the disk that works waits for slots, and is told."""
    rows = Rows(tmp_path, Striped([(200, PAGE)], PAGE, 2))
    rows.paths = [rows.paths[0], Path("/proc/self/mem")]  # whose first pages no process has
    on_the_first = [[list(range(at, at + 10, 2))] for at in range(0, 100, 10)]
    batches = [*on_the_first, *([[at, at + 1]] for at in range(100, 120, 2))]
    buffer = rows.buffer({PAGE: 6}, engine, "off", depth=2)
    with pytest.raises(OSError, match=r"/proc/self/mem: reading .* Input/output error"):
        run_epoch(rows, buffer, batches, window=1, horizon=1)
    assert 8 <= buffer.counters.batches <= len(on_the_first)  # what fails is asked for two rounds ahead


@pytest.mark.skipif(not os.access(SHORT, os.R_OK), reason=f"no {SHORT} here")
def test_short_reads_in_the_middle_of_a_file_are_gone_on_with(engine, tmp_path):
    count = 300
    with SHORT.open("rb", buffering=0) as file:
        assert len(os.pread(file.fileno(), 64 * PAGE, 0)) < 64 * PAGE, "not short here"
    content = np.frombuffer(SHORT.read_bytes()[: count * PAGE], np.uint8).reshape(count, PAGE)
    rows = Rows(tmp_path, Striped([(count, PAGE)], PAGE, 1))
    rows.paths, rows.truth = [SHORT], [content]
    batches = [[list(range(at, at + 100))] for at in range(0, count, 100)]
    buffer = rows.buffer({PAGE: 800}, engine, depth=2)
    run_epoch(rows, buffer, batches, window=1)
    assert buffer.counters.reads <= 9  # of up to 256 KiB, not pages

    reader = native.SsdReader([str(SHORT)], PAGE, engine, 4, "auto")
    table = native.TieredTable(PAGE, [0, 0, 0, count], None, [], None, reader, 0, PAGE, 1, PAGE, PAGE)
    out = np.zeros_like(content)
    within(60, lambda: table.gather(np.arange(count), out))
    np.testing.assert_array_equal(out, content)
