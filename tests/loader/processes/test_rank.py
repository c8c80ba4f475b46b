"""Several processes that train together: together they get the batches of one process alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.loader.processes.machine import ProcessRank, find_rank


@given(st.integers(1, 60), st.integers(1, 8), st.booleans())
def test_shares_are_equal_and_cover_the_epoch(count: int, world_size: int, drop_last: bool) -> None:
    shares = [ProcessRank(rank, world_size).batches(count, drop_last) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1
    turns = [batch for turn in zip(*shares, strict=True) for batch in turn]
    if drop_last:
        assert turns == list(range(count // world_size * world_size))
    else:
        assert turns == [batch % count for batch in range(-(-count // world_size) * world_size)]


@pytest.mark.parametrize(
    ("rank", "world_size", "words"),
    [
        (1, None, "give both or none, found rank=1, world_size=None"),
        (2, 2, r"rank: expected a whole number of 0\.\.1, as world_size is 2, found 2"),
        (-1, 2, "found -1"),
        ("0", 2, "rank: expected a whole number of .*, found '0'"),
        (0, True, "world_size: expected a whole number of 1 or more, found True"),
    ],
)
def test_ranks_that_there_are_not(rank: Any, world_size: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_rank(rank, world_size)


def test_fewer_batches_than_processes(kit: Any, build: Any) -> None:
    layout = build(kit.small_graph())
    with pytest.raises(InputError, match="make fewer batches of 128 than there are processes"):
        layout.loader(batch_size=128, fanouts=(3,), drop_last=True, rank=0, world_size=400)
    assert len(layout.loader(batch_size=128, fanouts=(3,), rank=399, world_size=400)) == 1


def test_a_rank_that_is_told(kit: Any, build: Any) -> None:
    layout = build(kit.small_graph())
    ranks = [layout.loader(batch_size=16, fanouts=(3, 2), seed=5, rank=rank, world_size=3) for rank in range(3)]
    alone = list(layout.loader(batch_size=16, fanouts=(3, 2), seed=5).epoch(1))
    shares = [list(loader.epoch(1)) for loader in ranks]
    for k, batch in enumerate(alone):
        same = shares[k % 3][k // 3]
        assert same.index == k
        np.testing.assert_array_equal(same.x.numpy(), batch.x.numpy())


def test_a_rank_of_torchrun(kit: Any, build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    layout = build(kit.small_graph())
    loader = layout.loader(batch_size=16, fanouts=(3,))
    assert loader.rank == ProcessRank(1, 2)
    assert [batch.index for batch in loader.epoch(0)] == loader.rank.batches(
        len(layout.loader(batch_size=16, fanouts=(3,), rank=0, world_size=1)), drop_last=False
    )
