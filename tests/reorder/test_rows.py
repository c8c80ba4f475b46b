"""Permuted rows by every strategy, within its budget; order by score in pieces: the same as in memory."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_datasets import Leaves

from tiering import native
from tiering.formats.features import FeatureTable
from tiering.memory import own_memory, parse_memory
from tiering.reorder.arrays import PieceSizes
from tiering.reorder.rank import ScoreRanges, descending_keys
from tiering.reorder.rows import PermutedRows
from tiering.reorder.rows.permute import BUFFERS

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


SMALL = PieceSizes(chunk=4096, free=0)
NO_CACHE = PieceSizes(free=0)


def tight(window: int) -> Leaves:
    """A budget with so many bytes for a window beside chunks of 4 KiB."""
    return Leaves(window + 4 * 4096, "test")


@settings(max_examples=60)
@given(
    rows=st.integers(1, 400), row_bytes=st.sampled_from([1, 7, 64, 100, 512, 5000]), windows=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 400), max_size=3), multiple=st.integers(1, 9), threads=st.integers(1, 3),
    offset=st.sampled_from([0, 128]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_strategy_gives_the_same_rows(rows, row_bytes, windows, cuts, multiple, threads, offset, seed):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, content, order = make_table(folder, rows, row_bytes, offset, seed)
        bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
        room = -(-rows // windows) * row_bytes
        for sizes, left in ((PieceSizes(chunk=4096, free=1 << 60), 0), (SMALL, room)):
            budget = Leaves(left + BUFFERS * max(4096, row_bytes), "test")
            options = {"budget": budget, "scratch": folder / "scratch", "threads": threads, "sizes": sizes}
            with PermutedRows(table, order, inverse(order), **options) as source:
                count = -(-rows // max(1, min(rows, room // row_bytes)))
                expected = "passes" if count <= 3 else "scatter"
                assert source.plan.strategy == ("gather" if sizes.free else expected)
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


def test_a_table_in_rank_order_is_read_front_to_back(tmp_path):
    table, content, _ = make_table(tmp_path, 100, 300)
    with PermutedRows(table, None, None, budget=tight(0), scratch=tmp_path / "s", threads=2, sizes=SMALL) as source:
        assert source.plan.strategy == "in order"
        np.testing.assert_array_equal(np.concatenate([np.array(rows) for _, rows in source.chunks(0, 100)]), content)


def test_no_rows(tmp_path):
    table, _, order = make_table(tmp_path, 0, 8)
    with PermutedRows(table, order, order, budget=tight(100), scratch=tmp_path / "s", threads=1, sizes=SMALL) as source:
        assert list(source.chunks(0, 0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("windows", [2, 8])
def test_memory_and_disk_as_planned(tmp_path, peak_memory, windows):
    """400 MB of rows; 256 or 64 MiB of window."""
    table, content, order = make_table(tmp_path, 400_000, 1000)
    back = inverse(order)
    budget = parse_memory(own_memory() + BUFFERS * NO_CACHE.chunk + 400_000_000 // windows + MIB)
    with (
        peak_memory() as peak,
        PermutedRows(table, order, back, budget=budget, scratch=tmp_path / "s", threads=2, sizes=NO_CACHE) as source,
    ):
        assert source.plan.strategy == ("passes" if windows == 2 else "scatter")
        most = 0
        for first, rows in source.chunks(0, table.rows):
            np.testing.assert_array_equal(rows[::997], content[order[first : first + len(rows)][::997]])
            scratch = tmp_path / "s"
            most = max(most, sum(f.stat().st_blocks * 512 for f in scratch.iterdir()) if scratch.exists() else 0)
    assert peak.bytes < budget.limit + 16 * MIB
    assert most <= source.plan.bytes_scratch + windows * 4096


any_scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.floats(allow_nan=False))
few_scores = hnp.arrays(np.float64, st.integers(0, 300), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, 1e-300]))


@pytest.mark.slow
@settings(max_examples=80)
@given(scores=st.one_of(any_scores, few_scores), piece=st.integers(1, 80), bins=st.sampled_from([2, 7, 4096]))
def test_pieces_are_the_order(scores, piece, bins):
    pieces = list(ScoreRanges(scores, piece, 2, PieceSizes(score_bins=bins)).pieces())
    found = np.concatenate([np.empty(0, np.int32), *pieces])
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, native.sort_by_score(scores, 2))
    assert all(len(each) <= piece or np.unique(scores[each] + 0.0).size == 1 for each in pieces)


@given(st.one_of(any_scores, few_scores))
def test_keys_ascend_as_scores_fall(scores):
    keys = descending_keys(scores)
    order = np.lexsort((np.arange(scores.size), keys))
    np.testing.assert_array_equal(order, native.sort_by_score(scores, 1))


def test_chunks():
    scores = np.random.default_rng(0).zipf(1.5, 3000).astype(float)
    ranges = ScoreRanges(scores, 200, 1, PieceSizes(scores=100))
    np.testing.assert_array_equal(np.concatenate(list(ranges.pieces())), native.sort_by_score(scores, 1))
    close = np.random.default_rng(1).permutation(1000).view(np.float64)  # the least numbers, one after the other
    for bins in (2, 7):
        found = np.concatenate(list(ScoreRanges(close, 90, 1, PieceSizes(scores=100, score_bins=bins)).pieces()))
        np.testing.assert_array_equal(found, native.sort_by_score(close, 1))
    scores[2345] = np.nan
    with pytest.raises(ValueError, match="the score of node 2345 is NaN"):
        list(ranges.pieces())
