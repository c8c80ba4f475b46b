"""Missing blocks are made once, as many together as fit."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tiering.artifacts.file_writer import FileWriter


class FakeFile:
    def __init__(self, missing: set[int]) -> None:
        self.left = missing

    def missing(self) -> list[int]:
        return sorted(self.left)


@given(st.sets(st.integers(0, 30)), st.integers(1, 6))
def test_each_block_is_made_once_and_as_many_together_as_fit(missing, most):
    file, made = FakeFile(set(missing)), []
    for span in FileWriter.missing_ranges(file, lambda span: len(span) <= most):
        assert file.left.issuperset(span)
        file.left.difference_update(span)
        made.append(span)
    assert sorted(block for span in made for block in span) == sorted(missing)
    assert all(1 <= len(span) <= most for span in made)
    for before, after in itertools.pairwise(made):
        assert before.stop < after.start or len(before) == most


def test_a_single_block_is_made_even_if_it_does_not_fit():
    file = FakeFile({3})
    for span in FileWriter.missing_ranges(file, lambda span: False):
        file.left.difference_update(span)
    assert not file.left
