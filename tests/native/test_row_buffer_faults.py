"""The buffer in front of the ssd tier where images are damaged, rings refused and processes forked."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_process import in_child
from forbidden_calls import FORBID, run_script
from row_buffers import ENGINES, Rows, descriptors, random_batches, run_epoch, within
from striped_rows import Striped

from tiering import native

PAGE = 4096
SHORT = Path("/sys/kernel/btf/vmlinux")
"""A file of the kernel, of which a read returns a page at most: short reads in the middle of a file."""
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Two tables over two images, half of whose pages hold rows that run over their ends."""
    return Rows(tmp_path, Striped([(300, 512), (60, 5732)], 4096, 2, 1), cached=5)


@pytest.mark.parametrize("left", [0, 700, 40_000])
def test_an_image_truncated_before_it_is_read(rows, engine, left):
    batches = random_batches(rows, 20, 60)
    buffer = rows.buffer(rows.slots(batches, 10), engine, depth=2)
    whole = rows.paths[1].read_bytes()
    os.truncate(rows.paths[1], left)
    with pytest.raises(OSError, match=rf"image-1: ends at byte {left}, but bytes .* were expected") as caught:
        run_epoch(rows, buffer, batches)
    assert caught.value.errno == errno.EIO
    rows.paths[1].write_bytes(whole)  # in place: the buffer goes on with the same file
    run_epoch(rows, buffer, batches)


def checksums(rows: Rows) -> list[Any]:
    return [native.page_hashes(np.fromfile(path, np.uint8), rows.space.page_bytes) for path in rows.paths]


@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_a_damaged_page_is_named(tmp_path, engine, page_bytes):
    rows = Rows(tmp_path, Striped([(200, 512), (30, 5732)], page_bytes, 3, 2))
    batches = [*random_batches(rows, 10, 60), [list(range(200)), list(range(30))]]
    buffer = rows.buffer({512: 200, 5732: 30}, engine, checksums=checksums(rows))
    run_epoch(rows, buffer, batches)
    assert buffer.bad_page == -1
    for page in (2, 7, rows.space.pages - 1):
        buffer = rows.buffer({512: 200, 5732: 30}, engine, checksums=checksums(rows))
        path, at = rows.paths[page % 3], page // 3 * page_bytes + 1
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(OSError, match=f"page {page} is damaged") as caught:
            run_epoch(rows, buffer, batches)
        assert caught.value.errno == errno.EIO
        assert buffer.bad_page == page
        path.write_bytes(whole)
        run_epoch(rows, buffer, batches)
        assert buffer.bad_page == -1


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

    assert in_child(child, 20) == 2  # the images
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
    table = native.TieredTable(PAGE, [0, 0, 0, count], None, [], None, reader, 0, PAGE, 1, PAGE)
    out = np.zeros_like(content)
    within(60, lambda: table.gather(np.arange(count), out))
    np.testing.assert_array_equal(out, content)


RING_REFUSED = """
    import sys
    sys.path.insert(0, sys.argv[1] + "/tests/support")
    import row_buffers as t
    from pathlib import Path
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        rows = t.Rows(Path(folder), t.Striped([(300, 512), (60, 5732)], 4096, 2, 1))
        batches = t.random_batches(rows, 30, 40)
        buffer = rows.buffer(rows.slots(batches, 10), depth=3)
        def read():
            try:
                t.run_epoch(rows, buffer, batches)
                print("read by", buffer.engine, buffer.fallback)
            except OSError as error:
                print("refused:", error)
        forbid(CALL, EPERM, WAITING)
        read()
        read()
"""


@pytest.mark.skipif("io_uring" not in ENGINES, reason="no io_uring here")
@pytest.mark.parametrize(("call", "waiting"), [("SETUP", False), ("ENTER", False), ("ENTER", True)])
def test_a_ring_that_is_refused_is_replaced_by_threads(repository, call, waiting):
    """`waiting`: some of the reads arrive, and are not asked for again."""
    script = RING_REFUSED.replace("CALL", call).replace("WAITING", str(waiting))
    out = run_script(FORBID, script, argument=repository)
    if "no seccomp here" in out:
        pytest.skip(out)
    lines = out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("read by threads io_uring is forbidden here") for line in lines), out
