"""One copy of a tier for several processes, and nothing left when they end."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import numpy as np
import pytest
import warm_processes
from rank_programs import hold_rows
from torch.distributed import HashStore

from tiering.errors import DeviceError, FormatError
from tiering.loader import PeerGroup
from tiering.loader.tables.resident import load_rows


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows"
    np.random.default_rng(0).integers(0, 256, 300_001, dtype=np.uint8).tofile(path)
    return path


def start(path, rank):
    return warm_processes.start(hold_rows, str(path), rank, 4, str(path.with_name("store")))


@pytest.mark.slow
def test_processes_hold_one_copy(file):
    content = np.fromfile(file, np.uint8)
    maker, line = start(file, 0)
    answers = [line.recv()]
    others = [start(file, rank) for rank in (1, 2)]
    answers += [line.recv() for _, line in others]
    assert len({inode for inode, _ in answers}) == 1
    maker.kill()  # who made it may go: the others keep the memory, and who comes later makes another
    maker.join()
    newcomer, line = start(file, 3)
    answers.append(line.recv())
    assert {total for _, total in answers} == {int(content.sum(dtype=np.uint64))}
    for process in (*(process for process, _ in others), newcomer):
        process.kill()
        process.join()


def written(value, size=5000):
    def fill(memory):
        memory[:] = value

    return fill


def test_memory_that_its_maker_let_go_is_made_again():
    store = HashStore()
    first, second = PeerGroup(0, 2, store), PeerGroup(1, 2, store)
    memory = first.host_memory("rows", 5000, written(1))
    joined = second.host_memory("rows", 5000, written(2))
    memory[7] = 9
    assert joined[6] == 1 and joined[7] == 9
    del memory
    gc.collect()
    assert joined[7] == 9
    again = second.host_memory("rows", 5000, written(3))
    assert set(again.tolist()) == {3}
    assert set(first.host_memory("rows", 5000, written(4)).tolist()) == {3}


def test_who_fails_to_write_leaves_it_to_the_next():
    store = HashStore()

    def fail(memory):
        raise FormatError("damaged")

    with pytest.raises(FormatError, match="damaged"):
        PeerGroup(0, 2, store).host_memory("rows", 5000, fail)
    assert PeerGroup(1, 2, store).host_memory("rows", 5000, written(2))[0] == 2


def test_a_process_that_ends_while_it_writes_is_named():
    store = HashStore()
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)

    def end(memory):
        store.set("member/0", json.dumps([int(ended.stdout), "1"]))
        store.add("member/0/posted", 1)
        with pytest.raises(DeviceError, match=rf"peer 0 \(process {int(ended.stdout)}\) has ended"):
            PeerGroup(1, 2, store, timeout=20).host_memory("rows", 5000, written(2))
        memory[:] = 1

    assert PeerGroup(0, 2, store).host_memory("rows", 5000, end)[0] == 1


def test_within_a_process_it_is_one_object(file):
    size, group = file.stat().st_size, PeerGroup(0, 1, HashStore())
    first = load_rows(file, size, group)
    assert load_rows(file, size, group) is first
    assert load_rows(file, size) is first  # who asks for no group is served, too
    assert not first.array.flags.writeable
    with pytest.raises(FormatError, match="expected 7 bytes"):
        load_rows(file, 7, group)
    content = np.fromfile(file, np.uint8)
    content[0] ^= 1
    content.tofile(file)
    assert load_rows(file, size, group).array[0] != first.array[0]  # the file has changed


def test_what_a_process_has_alone_is_no_group_s(file):
    size, group = file.stat().st_size, PeerGroup(0, 1, HashStore())
    private = load_rows(file, size)
    shared = load_rows(file, size, group)
    assert shared is not private
    np.testing.assert_array_equal(shared.array, private.array)
