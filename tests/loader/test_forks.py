"""Forks of a process that reads: children go on by themselves, parents notice nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from campaign import Campaign
from child_process import Child, in_child
from row_buffers import ENGINES
from row_datasets import Epochs, LayoutRows, Rows
from torch.utils.data import ConcatDataset, DataLoader

from tiering import native
from tiering.loader.process import ForkLock

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.fixture
def table(kit, build, engine) -> Any:
    return open_table(kit, build, engine)


def open_table(kit: Any, build: Any, engine: str) -> Any:
    """An open table, most of it on ssd, and the truth beside it."""
    rows = kit.random_table(2000, 1024)
    data = kit.Dataset({"node": kit.Nodes(2000, rows, "uint8", tiers=(10, 20, 30))}, images=2)
    found = build(data).features(engine=engine, depth=16, threads=2)
    found.truth = rows[data.order("node")]
    return found


def check_gathers(table: Any, seed: int, rounds: int) -> int:
    """Gather at random and compare; returns the number of rows."""
    random_ids = np.random.default_rng(seed)
    for _ in range(rounds):
        ids = random_ids.integers(0, len(table), int(random_ids.integers(1, 400)))
        np.testing.assert_array_equal(table.gather_numpy(ids), table.truth[ids])
    return rounds


@pytest.fixture
def busy(table) -> Iterator[Any]:
    with gathering(table):
        yield table


@contextmanager
def gathering(table: Any) -> Iterator[None]:
    """Two threads of this process gather from a table without a pause."""
    stop, failed = threading.Event(), []

    def gather(seed: int) -> None:
        try:
            while not stop.is_set():
                check_gathers(table, seed, 1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def test_a_child_reads_on(table):
    check_gathers(table, 0, 1)
    assert in_child(lambda: (check_gathers(table, 1, 20), table.engine)) == (20, table.engine)
    assert in_child(lambda: in_child(lambda: check_gathers(table, 2, 20))) == 20
    check_gathers(table, 3, 20)


def test_memory_tiers_are_not_loaded_again(table):
    def addresses() -> list[int]:
        check_gathers(table, 0, 1)
        return [rows.array.ctypes.data for rows in table._resident]

    assert in_child(addresses) == addresses()


def test_locks_held_by_another_thread_at_the_fork(kit, build):
    """The layout's own lock, that of the memory tiers, that of the counters: held while the child is made."""
    from tiering.loader.tables import resident

    layout = build(kit.small_graph())
    table = layout.features(engine="threads")
    locks = [layout._lock, resident._lock, table.counters._lock]
    assert all(isinstance(lock, ForkLock) for lock in locks)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with locks[0], locks[1], locks[2]:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = Child(lambda: layout.features(engine="threads").gather_numpy([0, 299]).shape)
    release.set()
    thread.join()
    assert child.result() == (2, 8)


def test_sampling_while_forked(kit, build):
    """The sampler's mutex: threads sample all the time, children sample the same batches."""
    loader = build(kit.small_graph()).loader(batch_size=16, fanouts=(5, 5), features=None, workers=4)
    expected = [batch.nodes["node"].tolist() for batch in loader.epoch(0)]
    for _ in range(3):
        running = loader.epoch(1)
        next(running)
        assert in_child(lambda: [batch.nodes["node"].tolist() for batch in loader.epoch(0)]) == expected
        running.close()


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)])
def test_data_loader_workers(kit, build, engine, context, workers):
    if context == "spawn" and engine == "threads":
        pytest.skip("there is nothing to inherit")
    layout = build(kit.small_graph())
    table = layout.features(engine=engine)
    loader = layout.loader(batch_size=64, fanouts=(3,), engine=engine)
    items = ConcatDataset([Rows(table), LayoutRows(layout, engine), Epochs(loader)])
    expected, found = list(items), list(DataLoader(items, None, num_workers=workers, multiprocessing_context=context))
    assert len(found) == 300 + 300 + 2
    assert all(torch.equal(each, there) for each, there in zip(found, expected, strict=True))


def fork_at_random(table: Any, luck: random.Random) -> int:
    """Children of a process that gathers or not, which read, fork again, close, or do nothing; return their number."""
    works = []
    for _ in range(luck.randint(1, 3)):
        seed = luck.randrange(1 << 32)
        works.append(
            luck.choice(
                [
                    lambda seed=seed: check_gathers(table, seed, 3),
                    lambda seed=seed: in_child(lambda: check_gathers(table, seed, 2)) + 1,
                    lambda: (table.close(), 3)[1],
                    lambda: 3,
                ]
            )
        )
    running = [Child(work) for work in works]
    check_gathers(table, luck.randrange(1 << 32), luck.randint(0, 4))
    assert [child.result() for child in running] == [3] * len(running)
    return len(running)


def test_forks_at_random(busy):
    luck = random.Random("forks")
    for _ in range(5):
        fork_at_random(busy, luck)


@pytest.mark.long
def test_forks_for_long(kit, build):
    tables = [open_table(kit, build, engine) for engine in ENGINES]
    for table in tables:
        check_gathers(table, 0, 1)  # numpy.testing is loaded: children would wait for a thread that loads it

    def trial(luck: random.Random) -> str:
        table = luck.choice(tables)
        with gathering(table):
            fork_at_random(table, luck)
            return f"over {table.engine}"

    Campaign("forks").run(trial)


def test_reads_under_way_are_the_parents(tmp_path):
    """A stage's reader between `start` and `finish`: the child is told and reads anew; the parent's reads arrive."""
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8)
    (tmp_path / "data").write_bytes(data.tobytes())
    for engine in ("threads", *([] if native.uring_unavailable() else ["io_uring"])):
        raw = np.empty((1 << 20) + 3 * 4096, np.uint8)
        buffer = raw[-raw.ctypes.data % 4096 :][: (1 << 20) + 8192]
        reader = native.StreamReader([str(tmp_path / "data")], [buffer], engine)

        def read(reader: Any = reader, buffer: Any = buffer) -> bool:
            reader.start([(0, 0, 1 << 20, 0, 0)])
            [begin] = reader.finish()
            return bool((buffer[begin : begin + (1 << 20)] == data).all())

        def in_the_child(reader: Any = reader, read: Any = read) -> bool:
            with pytest.raises(OSError, match="these reads belong to another process, and this is a fork of it"):
                reader.finish()
            return read()

        reader.start([(0, 0, 1 << 20, 0, 0)])
        assert in_child(in_the_child)
        [begin] = reader.finish()
        np.testing.assert_array_equal(buffer[begin : begin + (1 << 20)], data)
