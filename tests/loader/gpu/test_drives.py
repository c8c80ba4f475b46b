"""Rows that a simulated GPU reads from simulated drives, each of which plays a stripe file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tiering import cuda
from tiering.errors import CapabilityError, FormatError, InputError, StorageError

ROWS = 900


@pytest.fixture
def make(gpu, kit, build):
    """Makes a layout of rows of random bytes; returns it, its rows by rank, and its stripe files as drives."""

    def made(row_bytes=512, images=2, tiers=(50, 50, 100), page=4096):
        rng = np.random.default_rng(row_bytes)
        table = rng.integers(0, 256, (ROWS, row_bytes), dtype=np.uint8)
        nodes = kit.Nodes(ROWS, table, "uint8", tiers=tiers)
        data = kit.Dataset({"paper": nodes}, images=images, page_bytes=page)
        layout = build(data)
        return layout, table[data.order("paper")], [str(path) for path in layout.artifact.images]

    return made


@pytest.mark.parametrize("row_bytes, images, page", [(512, 1, 4096), (100, 2, 4096), (602, 3, 512), (9000, 2, 4096)])
def test_rows_are_right(gpu, make, row_bytes, images, page):
    layout, rows, paths = make(row_bytes, images, page=page)
    with layout.features(device="cuda", engine="bam", drives=paths) as features:
        opened = gpu.drive_reads(paths[0])
        assert features.engine == "bam" and features.placement()["ssd"]["where"] == "drives (read by the GPU)"
        for count in (0, 1, 2000):
            ids = np.random.default_rng(count).integers(0, ROWS, count)
            np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
        assert features.counters.tiers["ssd"].rows > 1000
        assert gpu.drive_reads(paths[0]) > opened
    assert gpu.drive_reads(paths[0]) < 0  # closed


@pytest.mark.parametrize("row_bytes, images, page", [(512, 1, 4096), (100, 2, 512), (9000, 3, 4096)])
def test_gpus_that_see_pages_after_a_flush(gpu, make, row_bytes, images, page):
    gpu.set_drive_writes("flushed")
    layout, rows, paths = make(row_bytes, images, page=page, tiers=(0, 0, 0))
    with layout.features(device="cuda", engine="bam", drives=paths) as features:
        for count in (0, 1, 4000):  # of more pages than there are places for
            ids = np.random.default_rng(count).integers(0, ROWS, count)
            np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
        gpu.break_drive(paths[0], 0)
        with pytest.raises(StorageError, match=f"{paths[0]}: reading {page} bytes at byte 0: the drive refused"):
            features.gather(np.arange(ROWS))


def test_gpus_that_never_see_what_drives_write_are_refused(gpu, make):
    gpu.set_drive_writes("none")
    layout, _, paths = make()
    with pytest.raises(CapabilityError, match="this GPU does not see what drives write to its memory"):
        layout.features(device="cuda", engine="bam", drives=paths)


@pytest.mark.parametrize("depth, pairs", [(1, 1), (255, 1), (256, 2), (1000, 4)])
def test_depth_sets_the_pairs_of_queues(make, monkeypatch, depth, pairs):
    layout, rows, paths = make(images=3, tiers=(0, 0, 0))
    made, opened = cuda.Drives, []
    monkeypatch.setattr(cuda, "Drives", lambda *given: opened.append(given[-1]) or made(*given))
    with layout.features(device="cuda", engine="bam", drives=paths, depth=depth) as features:
        ids = np.random.default_rng(depth).integers(0, ROWS, 3000)
        np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
    assert opened == [pairs]


def test_tables_read_side_by_side(make):
    """Two lists at a time, of three tables that share the drives."""
    layout, rows, paths = make(512, 2, tiers=(0, 0, 0))
    with ExitStack() as stack:
        tables = [stack.enter_context(layout.features(device="cuda", engine="bam", drives=paths)) for _ in range(3)]
        ids = [np.random.default_rng(seed).integers(0, ROWS, 700) for seed in range(9)]
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda table, wanted: table.gather(wanted).numpy(), tables * 3, ids))
        for wanted, own in zip(ids, found, strict=True):
            np.testing.assert_array_equal(own, rows[wanted])


def test_each_page_is_read_once(gpu, make):
    layout, rows, paths = make(images=1, tiers=(0, 0, 0))
    with layout.features(device="cuda", engine="bam", drives=paths) as features:
        before = gpu.drive_reads(paths[0])
        ids = np.random.default_rng(0).integers(0, ROWS, 300)
        np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
        assert gpu.drive_reads(paths[0]) - before == np.unique(ids // 8).size


def test_drives_that_hold_something_else_are_refused(make):
    layout, _, paths = make()
    with pytest.raises(FormatError, match=rf"{paths[1]}: expected stripe file 0 of .*: it contains stripe file 1"):
        layout.features(device="cuda", engine="bam", drives=paths[::-1])
    with pytest.raises(InputError, match=r"drives: expected 2, one per stripe file of .*, found 1"):
        layout.features(device="cuda", engine="bam", drives=paths[:1])
    with Path(paths[0]).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    with pytest.raises(FormatError, match=r"its page \d+ \(from byte \d+ on\) does not match the layout's checksum"):
        layout.features(device="cuda", engine="bam", drives=paths)
    os.truncate(paths[0], 4096)
    with pytest.raises(CapabilityError, match="expected space for"):
        layout.features(device="cuda", engine="bam", drives=paths)
    with pytest.raises(StorageError, match="opening it"):
        layout.features(device="cuda", engine="bam", drives=[*paths[:1], "/nowhere/libnvm0"])


def test_verify_reads_every_page(gpu, make):
    layout, _, paths = make(4096, 1, tiers=(0, 0, 0))
    with layout.features(device="cuda", engine="bam", drives=paths):
        assert gpu.drive_reads(paths[0]) == 256
    with layout.features(device="cuda", engine="bam", drives=paths, verify=True):
        assert gpu.drive_reads(paths[0]) == ROWS


def test_failures_are_errors(gpu, make, monkeypatch):
    monkeypatch.setattr("tiering.loader.gpu.drives.PATIENCE", 0.3)
    layout, rows, paths = make(4096, 1, tiers=(0, 0, 0))
    with layout.features(device="cuda", engine="bam", drives=paths) as features:
        gpu.break_drive(paths[0], 8 * 400)
        with pytest.raises(
            StorageError, match=f"{paths[0]}: reading 4096 bytes at byte {400 * 4096}: the drive refused"
        ):
            features.gather(np.arange(380, 420))
        np.testing.assert_array_equal(features.gather(np.arange(10)).numpy(), rows[:10])
        gpu.break_drive(paths[0])
        with pytest.raises(StorageError, match="the drive did not answer for"):
            features.gather(np.arange(10))
        with pytest.raises(CapabilityError, match="reading from the drives stopped after a failure; open"):
            features.gather(np.arange(10))


def test_options_go_together(make):
    layout, _, paths = make()
    with pytest.raises(InputError, match="drives: needs engine='bam', and engine='bam' needs drives"):
        layout.features(device="cuda", engine="bam")
    with pytest.raises(InputError, match="drives: needs engine='bam'"):
        layout.features(device="cuda", drives=paths)
    with pytest.raises(CapabilityError, match="engine='bam': a GPU reads the drives; give device='cuda'"):
        layout.features(engine="bam", drives=paths)
    with (
        layout.features(device="cuda", engine="bam", drives=paths),
        pytest.raises(StorageError, match="another process reads from this drive"),
    ):
        layout.features(device="cuda", engine="bam", drives=[*paths[:1], paths[0]])
