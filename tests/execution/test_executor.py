"""Shards: made in any order, by anybody, together or apart, a file has the same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.artifacts import blocks, checksum
from tiering.artifacts.blocks import BlockFile
from tiering.execution import LOCAL, Budget, Window
from tiering.formats.protocols import EdgeData
from tiering.graph.sizes import CscSizes
from tiering.graph.windows import Windows, count_columns


class Scattered:
    """Another executor: shards one by one in random order, some of them twice, as by workers that were given up."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def run(self, file: BlockFile, fits: Callable[[range], bool], make: Callable[[range], None]) -> None:
        shards = self.random.permutation(file.missing()).tolist()
        for shard in [*shards[: len(shards) // 2], *shards]:
            make(range(shard, shard + 1))


class FakeFile:
    def __init__(self, missing: set[int]) -> None:
        self.left = missing

    def missing(self) -> list[int]:
        return sorted(self.left)


@given(st.sets(st.integers(0, 30)), st.integers(1, 6))
def test_local_makes_each_shard_once_and_as_many_together_as_fit(missing, most):
    file, made = FakeFile(set(missing)), []

    def make(shards: range) -> None:
        assert file.left.issuperset(shards)
        file.left.difference_update(shards)
        made.append(shards)

    LOCAL.run(file, lambda shards: len(shards) <= most, make)
    assert sorted(shard for shards in made for shard in shards) == sorted(missing)
    assert all(1 <= len(shards) <= most for shards in made)
    for before, after in itertools.pairwise(made):
        assert before.stop < after.start or len(before) == most


def test_a_single_shard_is_made_even_if_it_does_not_fit():
    file = FakeFile({3})
    LOCAL.run(file, lambda shards: False, lambda shards: file.left.difference_update(shards))
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
def test_another_executor_makes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for module in (blocks, checksum):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1024)
    src, dst = np.random.default_rng(seed).integers(0, 100, (2, 3000))
    edges, sizes = EdgeData(("node", "to", "node"), src, dst), CscSizes(3000, 100, 100)
    budget = Budget(1 << 40, "test")
    indptr = count_columns(edges, sizes, budget, 2)
    found = []
    for name, executor in (("local", LOCAL), ("other", Scattered(seed))):
        with BlockFile(tmp_path / name, 12_000) as file:
            Windows(edges, sizes, indptr, budget, 2, executor).fill(file, 4)
            found.append(file.digests())
    assert found[0] == found[1]
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "other", np.int32), native.coo_to_csc(src, dst, 100, 100, 1)[1]
    )
