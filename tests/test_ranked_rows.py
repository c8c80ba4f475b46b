"""Rows in rank order: every way gives the same rows, within its budget."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.artifacts import random_rows
from tiering.errors import BudgetError, StorageError
from tiering.formats import feature_rows
from tiering.formats.features import FeatureTable
from tiering.memory import Budget, own_memory
from tiering.ranked_rows import RankedRows, plan, plan_rows

MIB = 1 << 20


def make_table(folder: Path, rows: int, row_bytes: int, offset: int = 0, seed: int = 0):
    random = np.random.default_rng(seed)
    content = random.integers(0, 256, (rows, row_bytes), np.uint8)
    with (folder / "table").open("wb") as file:
        file.write(b"h" * offset)
        file.write(content.tobytes())
    order = random.permutation(rows).astype(np.int32)
    return FeatureTable(folder / "table", rows, row_bytes, "uint8", offset, "original"), content, order


def inverse(order):
    found = np.empty_like(order)
    found[order] = np.arange(order.size, dtype=order.dtype)
    return found


@pytest.fixture
def tight(monkeypatch):
    """Chunks of 4 KiB, no page cache to speak of, and a budget that leaves so many bytes for a window."""

    def set_up(window: int) -> Budget:
        monkeypatch.setattr(feature_rows, "CHUNK_BYTES", 4096)
        monkeypatch.setattr(plan, "CHUNK_BYTES", 4096)
        monkeypatch.setattr(plan, "available_memory", lambda: 0)
        monkeypatch.setattr(Budget, "left", lambda self: window + 4 * 4096)
        monkeypatch.setattr(Budget, "require", lambda self, needed, what: None)
        return Budget(1, "test")

    return set_up


@settings(max_examples=60)
@given(
    rows=st.integers(1, 400), row_bytes=st.sampled_from([1, 7, 64, 100, 512, 5000]), windows=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 400), max_size=3), multiple=st.integers(1, 9), threads=st.integers(1, 3),
    offset=st.sampled_from([0, 128]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_way_gives_the_same_rows(rows, row_bytes, windows, cuts, multiple, threads, offset, seed):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        table, content, order = make_table(folder, rows, row_bytes, offset, seed)
        patch.setattr(feature_rows, "CHUNK_BYTES", 4096)
        patch.setattr(plan, "CHUNK_BYTES", 4096)
        patch.setattr(Budget, "require", lambda self, needed, what: None)
        bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
        some = -(-rows // windows) * row_bytes
        for free, left, expected in ((1 << 60, 0, "gather"), (0, some, None), (0, some, "random")):
            patch.setattr(plan, "_random_is_faster", lambda *table, wanted=expected: wanted == "random")
            patch.setattr(plan, "available_memory", lambda free=free: free)
            patch.setattr(Budget, "left", lambda self, left=left: left + plan.BUFFERS * max(4096, row_bytes))
            options = {"budget": Budget(1, "test"), "scratch": folder / "scratch", "threads": threads}
            with RankedRows(table, order, inverse(order), **options) as source:
                count = -(-rows // source.plan.window_rows)
                if expected == "random" and -(-rows * row_bytes // max(1, left)) < 2:
                    expected = "passes"
                assert source.plan.strategy == (expected or ("passes" if count <= 3 else "scatter"))
                found = np.empty_like(content)
                for begin, end in itertools.pairwise(bounds):
                    at = begin
                    for first, chunk in source.chunks(begin, end, multiple):
                        assert first == at and (first - begin) % multiple == 0
                        found[first : first + len(chunk)] = chunk
                        at += len(chunk)
                    assert at == end
            np.testing.assert_array_equal(found, content[order])
            assert sorted(path.name for path in folder.iterdir()) == ["table"]


def test_a_table_in_rank_order_is_read_front_to_back(tmp_path, tight):
    table, content, _ = make_table(tmp_path, 100, 300)
    with RankedRows(table, None, None, budget=tight(0), scratch=tmp_path / "s", threads=2) as source:
        assert source.plan.strategy == "in order"
        np.testing.assert_array_equal(np.concatenate([np.array(rows) for _, rows in source.chunks(0, 100)]), content)


def test_no_rows(tmp_path, tight):
    table, _, order = make_table(tmp_path, 0, 8)
    with RankedRows(table, order, order, budget=tight(100), scratch=tmp_path / "s", threads=1) as source:
        assert list(source.chunks(0, 0)) == []


@pytest.mark.parametrize("windows", [2, 8])
def test_memory_and_disk_as_planned(tmp_path, monkeypatch, peak_memory, windows):
    """400 MB of rows; 256 or 64 MiB of window."""
    table, content, order = make_table(tmp_path, 400_000, 1000)
    monkeypatch.setattr(plan, "available_memory", lambda: 0)
    back = inverse(order)
    budget = Budget(own_memory() + plan.BUFFERS * feature_rows.CHUNK_BYTES + 400_000_000 // windows + MIB, "test")
    with (
        peak_memory() as peak,
        RankedRows(table, order, back, budget=budget, scratch=tmp_path / "s", threads=2) as source,
    ):
        assert source.plan.strategy == ("passes" if windows == 2 else "scatter")
        most = 0
        for first, rows in source.chunks(0, table.rows):
            np.testing.assert_array_equal(rows[::997], content[order[first : first + len(rows)][::997]])
            scratch = tmp_path / "s"
            most = max(most, sum(f.stat().st_blocks * 512 for f in scratch.iterdir()) if scratch.exists() else 0)
    assert peak.bytes < budget.limit + 16 * MIB
    assert most <= source.plan.bytes_scratch + windows * 4096


def test_the_disk_is_asked_whether_rows_are_read_at_random(tmp_path, monkeypatch):
    table, content, order = make_table(tmp_path, 3000, 600, 100)
    monkeypatch.setattr(plan, "_WORTH_MEASURING", 0)
    speed = random_rows.measure_rows(table.path, table.offset, table.rows, table.row_bytes)
    assert speed.rows > 0 and speed.stream > 0
    for rows_per_second, expected in ((3000.0, True), (1000.0, False)):
        measured = random_rows.RowSpeed(rows_per_second, table.bytes)
        monkeypatch.setattr(plan, "measure_rows", lambda *table, measured=measured: measured)
        assert plan._random_is_faster(table, 2) == expected  # twice the table takes 2 s
    monkeypatch.setattr(plan, "SMALL_ROW", 601)
    assert not plan._random_is_faster(table, 2)
    rows, out = random_rows.open_rows(table.path, table.offset, table.row_bytes), np.empty((3000, 600), np.uint8)
    rows.read(order, out)
    np.testing.assert_array_equal(out, content[order])
    for ids, message in (([3000], "row 3000 is not in .*: it has 3000 rows"), ([-1], "row -1 is not in")):
        with pytest.raises(ValueError, match=message):
            rows.read(np.array(ids), out[:1])
    with pytest.raises(ValueError, match="expected 2 rows of 600 bytes"):
        rows.read(np.array([1, 2]), out[:1])


def test_too_little_memory(tmp_path, monkeypatch):
    table, _, order = make_table(tmp_path, 1000, 1000)
    monkeypatch.setattr(plan, "available_memory", lambda: 0)
    with pytest.raises(BudgetError, match=r"rows of table: eight chunks of 32 MiB need 256 MiB .* give --memory"):
        plan_rows(table, False, Budget(own_memory() + 50 * MIB, "50MiB"))
    assert order.size


def test_no_room_for_the_scratch_files(tmp_path, tight):
    table, _, order = make_table(tmp_path, 2000, 1000)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    try:
        options = {"budget": tight(200_000), "scratch": disk / "scratch", "threads": 1}
        with RankedRows(table, order, inverse(order), **options) as source:
            assert source.plan.strategy == "scatter"
            with pytest.raises(StorageError, match=r"no space left: .* needed, .* free"):
                list(source.chunks(0, 2000))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
