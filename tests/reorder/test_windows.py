"""Windows of the entries of columns: blocks of a file, whatever the columns' lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.reorder.adjacency import _Window


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
    window = _Window.of(file, range(first, data.draw(st.integers(first + 1, count))), item, indptr)
    assert window.first * item <= window.begin < window.stop <= window.end * item
    assert window.begin - window.first * item < item > window.end * item - window.stop
    owners = np.repeat(np.arange(len(degrees)), degrees)[window.first : window.end]
    assert window.columns.start <= owners[0] and owners[-1] < window.columns.stop
    assert indptr[window.columns.start] <= window.first < indptr[window.columns.start + 1]
    assert window.memory(item, starts=False) == (window.end - window.first) * item
    assert window.memory(item, starts=True) == window.memory(item, starts=False) + 8 * len(window.columns)
