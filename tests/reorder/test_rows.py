"""Rows are moved within the memory and disk that were planned; order by score in pieces: the same as in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tiering import native
from tiering.artifacts.file_writer import FileWriter
from tiering.formats.features import FeatureTable
from tiering.memory import own_memory, parse_memory
from tiering.reorder.arrays import PieceSizes
from tiering.reorder.rank import ScoreRanges, descending_keys
from tiering.reorder.table_reader import TableReader
from tiering.run.move import Items, move, plan_moves
from tiering.run.places import Places

MIB = 1 << 20


def make_table(folder: Path, rows: int, row_bytes: int, offset: int = 0, seed: int = 0):
    random = np.random.default_rng(seed)
    content = random.integers(0, 256, (rows, row_bytes), np.uint8)
    with (folder / "table").open("wb") as file:
        file.write(b"h" * offset)
        file.write(content.tobytes())
    order = random.permutation(rows).astype(np.int32)
    return FeatureTable(folder / "table", rows, row_bytes, "uint8", offset, "original"), content, order


@pytest.mark.slow
@pytest.mark.parametrize("windows", [2, 8])
def test_memory_and_disk_as_planned(tmp_path, peak_memory, windows, settled_memory):
    """400 MB of rows; 256 or 64 MiB of window."""
    table, content, order = make_table(tmp_path, 400_000, 1000)
    reader = TableReader(table, (order, np.argsort(order)), 2, PieceSizes(free=0))
    items = Items(reader, Places.row_by_row(table.rows, table.row_bytes), 2)
    rows, scratch, most = [(items.places, reader.reading)], tmp_path / "scratch", 0
    with FileWriter(tmp_path / "made", table.bytes) as file, peak_memory() as peak:
        budget = parse_memory(own_memory() + reader.reading.memory + (320 if windows == 2 else 70) * MIB)
        plan = plan_moves(rows, budget, "rows")
        assert plan.costs[0].how == ("2 passes" if windows == 2 else "pieces")

        def watched(*_):
            nonlocal most
            most = max(most, sum(f.stat().st_blocks * 512 for f in scratch.with_name("scratch-0").rglob("*")))

        move([items], [file], plan, scratch, "rows", watched)
    found = np.memmap(tmp_path / "made", np.uint8, "r", shape=content.shape)
    np.testing.assert_array_equal(found[::997], content[order[::997]])
    assert peak.bytes < budget.limit + 16 * MIB
    assert most <= plan.costs[0].scratch + windows * MIB


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
