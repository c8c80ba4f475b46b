"""Windows: whatever blocks are made together, in whatever order, a file has the same bytes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.windows import Window, make_missing
from tiering.formats.protocols import EdgeData
from tiering.graph.sizes import CscSizes
from tiering.graph.windows import Windows, count_columns
from tiering.memory import Budget


class FakeFile:
    def __init__(self, missing: set[int]) -> None:
        self.left = missing

    def missing(self) -> list[int]:
        return sorted(self.left)


@given(st.sets(st.integers(0, 30)), st.integers(1, 6))
def test_each_block_is_made_once_and_as_many_together_as_fit(missing, most):
    file, made = FakeFile(set(missing)), []

    def make(span: range) -> None:
        assert file.left.issuperset(span)
        file.left.difference_update(span)
        made.append(span)

    make_missing(file, lambda span: len(span) <= most, make)
    assert sorted(block for span in made for block in span) == sorted(missing)
    assert all(1 <= len(span) <= most for span in made)
    for before, after in itertools.pairwise(made):
        assert before.stop < after.start or len(before) == most


def test_a_single_block_is_made_even_if_it_does_not_fit():
    file = FakeFile({3})
    make_missing(file, lambda span: False, lambda span: file.left.difference_update(span))
    assert not file.left


@settings(max_examples=50)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.sampled_from([1, 3, 4, 8, 24]), st.data())
def test_windows_cover_the_entries_of_their_columns(degrees, item, data):
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    total = int(indptr[-1]) * item
    if total == 0:
        return
    file = type("File", (), {"span": lambda self, block: (block * 32, min(total, block * 32 + 32))})()
    count = -(-total // 32)
    first = data.draw(st.integers(0, count - 1))
    window = Window.of(file, range(first, data.draw(st.integers(first + 1, count))), item, indptr)
    assert window.first * item <= window.begin < window.stop <= window.end * item
    assert window.begin - window.first * item < item > window.end * item - window.stop
    owners = np.repeat(np.arange(len(degrees)), degrees)[window.first : window.end]
    assert window.columns.start <= owners[0] and owners[-1] < window.columns.stop
    assert indptr[window.columns.start] <= window.first < indptr[window.columns.start + 1]
    entries = np.arange((window.end - window.first) * item, dtype=np.int64).astype(np.uint8)
    assert window.bytes_of(entries, item).size == window.stop - window.begin
    assert window.memory(item) == entries.size + 8 * len(window.columns)


@pytest.mark.parametrize("seed", range(3))
def test_each_block_is_a_function_of_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Made alone, in random order, some of them twice, as by workers that were given up, blocks have the same bytes."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, 100, (2, 3000))
    edges, sizes = EdgeData(("node", "to", "node"), src, dst), CscSizes(3000, 100, 100)
    budget = Budget(1 << 40, "test")
    windows = Windows(edges, sizes, count_columns(edges, sizes, budget, 2), budget, 2)
    with FileWriter(tmp_path / "together", 12_000) as together:
        windows.fill(together, 4)
        expected = together.digests()
    with FileWriter(tmp_path / "alone", 12_000) as alone:
        order = random.permutation(alone.missing()).tolist()
        for block in [*order[: len(order) // 2], *order]:
            windows.make(alone, range(block, block + 1), 4)
        assert not alone.missing()
        assert alone.digests() == expected
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "alone", np.int32), native.coo_to_csc(src, dst, 100, 100, 1)[1]
    )
