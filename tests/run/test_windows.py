"""Windows of a file that tasks write: whole blocks, each in one window, with all parts that lie in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.artifacts import checksum
from tiering.artifacts.checksum import DIGEST_BYTES
from tiering.artifacts.overlap import file_system
from tiering.run import files, step
from tiering.run.files import TaskFile, ends_of
from tiering.run.job import Job
from tiering.run.step import LocalExecutor
from tiering.run.store import Store

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
    windows = list(TaskFile("x", "/tmp", "uint8", [7 * 128], ends_of([128] * 7)).windows())
    assert windows == [([2 * k, 2 * k + 2], [k, k + 1]) for k in range(7)]
    assert len(list(TaskFile("x", "/tmp", "uint8", [7 * 130], ends_of([130] * 7)).windows())) == 4
    assert len(list(TaskFile("x", "/tmp", "uint8", [700 * 130], ends_of([130] * 700)).windows())) == 88


@pytest.mark.parametrize(("kind", "count"), [("fuse.s3fs", 1), ("fuse.gcsfuse", 1), ("fuse.ceph", 7), ("nfs4", 7)])
def test_where_one_task_writes_a_whole_file(monkeypatch, kind, count):
    """File systems that put a whole object when it is closed."""
    monkeypatch.setattr(files, "file_system", lambda path: kind)
    assert len(list(TaskFile("x", "/tmp", "uint8", [7 * 128], ends_of([128] * 7)).windows())) == count


def test_the_kind_of_a_file_system():
    assert file_system(Path("/proc/self")) == "proc"


def fill(context):
    """Write parts of 128 bytes, each of its number."""
    with files.output_window(context) as out:
        for part in out.parts:
            out.append(np.full(128, part, np.uint8))


def test_a_run_that_goes_on_makes_the_windows_that_are_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "resolve", lambda _: fill)
    file = TaskFile("x", str(tmp_path), "uint8", [5 * 128], ends_of([128] * 5))
    made = files.files_step("write", "here:fill", [file], {}, (), 0)

    def run():
        job = Job(Store(tmp_path / "store"), "job", LocalExecutor(2))
        (whole,) = files.whole_files(job.run(made))
        return job.counters.run, whole, np.fromfile(tmp_path / whole.at, np.uint8)

    count, first, values = run()
    assert (count, values.tolist()) == (5, np.repeat(np.arange(5), 128).tolist())
    assert len(first.blocks) == 2 * DIGEST_BYTES * 10
    values[3 * 128 + 70] ^= 1
    values.tofile(tmp_path / first.at)
    count, again, values = run()
    assert (count, again) == (1, first)
    assert values.tolist() == np.repeat(np.arange(5), 128).tolist()
