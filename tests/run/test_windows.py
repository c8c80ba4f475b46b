"""Windows of a file that tasks write: whole blocks, each in one window, with all parts that lie in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.artifacts import checksum
from tiering.artifacts.overlap import file_system
from tiering.run import files
from tiering.run.files import TaskFile, ends_of

BLOCK = 64


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksum, "BLOCK_BYTES", BLOCK)
        yield


@given(sizes=st.lists(st.sampled_from([0, 1, 10, 63, 64, 65, 128, 300]), max_size=90))
def test_blocks_and_parts(sizes):
    file = TaskFile("x", "/tmp", "uint8", [sum(sizes)], ends_of(sizes))
    windows, begin = list(file.windows()), 0
    for (block, end), (first, last) in windows:
        assert block == begin
        starts = [0, *file.ends]
        low, high = block * BLOCK, block * BLOCK + file.span(block, end)
        assert starts[first] <= low
        assert starts[last] >= high
        assert all(
            first <= part < last
            for part, size in enumerate(sizes)
            if size and starts[part] < high and low < starts[part + 1]
        )
        begin = end
    assert begin == checksum.num_blocks(sum(sizes))
    assert windows[-1][1][1] == len(sizes)
    made_twice = sum(last - first for _, (first, last) in windows) - len(sizes)
    assert made_twice <= len(windows) - 1


def test_parts_of_whole_blocks_have_a_window_each():
    assert len(list(TaskFile("x", "/tmp", "uint8", [7 * 128], ends_of([128] * 7)).windows())) == 7
    assert len(list(TaskFile("x", "/tmp", "uint8", [7 * 130], ends_of([130] * 7)).windows())) == 4
    assert len(list(TaskFile("x", "/tmp", "uint8", [700 * 130], ends_of([130] * 700)).windows())) == 88


@pytest.mark.parametrize(("kind", "count"), [("fuse.s3fs", 1), ("fuse.gcsfuse", 1), ("fuse.ceph", 7), ("nfs4", 7)])
def test_where_one_task_writes_a_whole_file(monkeypatch, kind, count):
    """File systems that put a whole object when it is closed."""
    monkeypatch.setattr(files, "file_system", lambda path: kind)
    assert len(list(TaskFile("x", "/tmp", "uint8", [7 * 128], ends_of([128] * 7)).windows())) == count


def test_the_kind_of_a_file_system():
    assert file_system(Path("/proc/self")) == "proc"
