"""Windows: whatever blocks are made together, in whatever order, a file has the same bytes."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.artifacts.windows import Window, make_missing


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
