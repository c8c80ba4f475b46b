"""Disks that fail, and reads of which the kernel does only a part, under the buffer and under a table.

The disk is this process's own memory, ``/proc/self/mem``, at the addresses of a mapped file: where that file is cut, a
read ends early, and the read of the rest fails with EIO. Files of the kernel, of which a read returns a page at the
most, stand for short reads in the middle of a file.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiering import native

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # under pytest's importlib mode

from row_buffers import ENGINES, Rows, run_epoch, within
from striped_rows import Striped

PAGE = 4096
SHORT = Path("/sys/kernel/btf/vmlinux")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class FailingDisk:
    """Rows on an image that is memory; `cut` makes reads fail from a byte of the image on, `repair` ends that."""

    def __init__(self, folder: Path) -> None:
        self.rows = rows = Rows(folder, Striped([(400, 512), (80, 5732)], PAGE, 1))
        (self._file,) = rows.paths
        self._whole = self._file.read_bytes()
        with self._file.open("rb") as file:
            self._mapping = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self.begin = np.frombuffer(self._mapping, np.uint8).ctypes.data
        first = self.begin // PAGE
        rows.space.tables = [replace(table, first_page=table.first_page + first) for table in rows.space.tables]
        rows.paths = [Path("/proc/self/mem")]

    def cut(self, at: int) -> None:
        os.truncate(self._file, at)

    def repair(self) -> None:
        self._file.write_bytes(self._whole)


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path)


def in_page_order(count: int) -> list[Any]:
    """Batches that use the rows from the first to the last."""
    return [[list(range(40 * k, 40 * k + 40)), list(range(8 * k, 8 * k + 8))] for k in range(count)]


def expect_failure(disk: FailingDisk, caught: pytest.ExceptionInfo[OSError], cut: int) -> None:
    """The error is the disk's, of a place behind the cut."""
    assert caught.value.errno == errno.EIO
    message = re.search(r"/proc/self/mem: reading (\d+) bytes at byte (\d+): Input/output error", str(caught.value))
    assert message is not None, caught.value
    assert int(message[1]) > 0
    assert int(message[2]) - disk.begin >= cut


def test_a_disk_that_fails_is_repaired_and_read_again(disk, engine):
    """Whatever is behind the failing place is an error; the same buffer goes on once the disk works."""
    batches = in_page_order(10)
    buffer = disk.rows.buffer(disk.rows.slots(batches, 10), engine, "off", depth=3)
    run_epoch(disk.rows, buffer, batches)
    for cut in (0, PAGE, 20 * PAGE):
        disk.cut(cut)
        for _ in range(2):
            with pytest.raises(OSError, match="reading") as caught:
                run_epoch(disk.rows, buffer, batches)
            expect_failure(disk, caught, cut)
        disk.repair()
        run_epoch(disk.rows, buffer, batches)


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


def test_a_table_whose_disk_fails(disk, engine):
    """Without a buffer: the gather fails, the next one works."""
    rows = disk.rows
    reader = native.SsdReader([str(path) for path in rows.paths], PAGE, engine, 4, "off")
    for space, truth in zip(rows.space.tables, rows.truth, strict=True):
        table = native.TieredTable(
            space.row_bytes, [0, 0, 0, space.rows], None, [], None, reader,
            space.first_page, space.stride, space.rows_per_page, PAGE,
        )  # fmt: skip
        ids = np.random.default_rng(1).permutation(space.rows)
        out = np.zeros_like(truth)
        disk.cut(0)
        with pytest.raises(OSError, match="reading") as caught:
            within(60, lambda table=table, ids=ids, out=out: table.gather(ids, out))
        expect_failure(disk, caught, 0)
        disk.repair()
        table.gather(ids, out)
        np.testing.assert_array_equal(out, truth[ids])


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
    table = native.TieredTable(PAGE, [0, 0, 0, count], None, [], None, reader, 0, PAGE, 1, PAGE)
    out = np.zeros_like(content)
    within(60, lambda: table.gather(np.arange(count), out))
    np.testing.assert_array_equal(out, content)
