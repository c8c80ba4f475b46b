"""Several processes that train together: together they get the batches of one process alone, but for the last."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.loader.processes.machine import ProcessRank, find_rank
from tiering.sampling import LinkPlan, Links, Negatives, batches

LINKS = ("node", "to", "node")


def links_of(count: int) -> Links:
    """Links between 50 nodes."""
    ends = np.random.default_rng(0).integers(0, 50, (2, count))
    return Links.of_ids(LINKS, ends[0], ends[1], (50, 50))


@settings(deadline=None)
@example(4097, 0, 1024, 4, False, True)
@example(1, 0, 5, 8, False, False)
@given(
    st.integers(1, 200), st.integers(0, 60), st.integers(1, 30), st.integers(1, 9), st.booleans(), st.booleans()
)  # fmt: skip
def test_shares_are_equal_and_cover_the_epoch(
    ones: int, others: int, size: int, world_size: int, drop_last: bool, shuffle: bool
) -> None:
    train, total = {"one": np.arange(ones), "other": 1000 + np.arange(others)}, ones + others
    rounds, rest = divmod(total, size * world_size)
    options: dict[str, Any] = {"seed": 5, "shuffle": shuffle}
    together = {**options, "world_size": world_size, "drop_last": drop_last}
    if drop_last and not rounds:
        with pytest.raises(InputError, match=f"{total} training nodes do not fill a batch of {size}"):
            batches(train, size, 3, **together)
        return
    alone, plan = batches(train, size, 3, **options), batches(train, size, 3, **together)
    shares = [list(ProcessRank(rank, world_size).batches(len(plan))) for rank in range(world_size)]
    assert {len(share) for share in shares} == {rounds + (rest > 0 and not drop_last)}
    assert sorted(itertools.chain(*shares)) == list(range(len(plan)))  # numbers are keys of what is drawn
    for k in range(rounds):
        for rank, share in enumerate(shares):
            for t, ids in alone[rank + k * world_size].items():
                np.testing.assert_array_equal(plan[share[k]][t], ids)
    sizes = [sum(ids.size for ids in plan[batch].values()) for batch in range(len(plan))]
    links = LinkPlan(links_of(total), size, 3, **together)
    assert [links.linked_nodes(batch).places.size for batch in range(len(links))] == sizes
    if not rest or drop_last:
        assert sizes == [size] * rounds * world_size
        return
    for t, ids in train.items():
        np.testing.assert_array_equal(np.unique([s for b in range(len(plan)) for s in plan[b][t]]), ids)
    last = sizes[-world_size:]
    assert 1 <= min(last) <= max(last) <= min(size, min(last) + 1)
    assert sum(sizes) - total == max(0, world_size - rest)


def test_negatives_of_a_last_round_differ_between_ranks() -> None:
    """One link is repeated for three other ranks; each epoch of each rank is the same again."""
    made = [LinkPlan(links_of(1), 4, 0, seed=2, negatives=Negatives(amount=6), world_size=4) for _ in range(2)]
    first, again = ([plan.linked_nodes(rank) for rank in range(4)] for plan in made)
    assert all(linked.places.tolist() == [0] for linked in first)
    negatives = [linked.nodes["node"][linked.src[1:]].tolist() for linked in first]
    assert len(set(map(tuple, negatives))) == 4
    assert negatives == [linked.nodes["node"][linked.src[1:]].tolist() for linked in again]


def test_a_world_without_processes() -> None:
    with pytest.raises(InputError, match="world_size: expected a whole number, 1 or more, found 0"):
        batches({"node": [1]}, 1, 0, world_size=0)


@pytest.mark.parametrize(("rank", "world_size", "words"), [
    (1, None, "give both or neither, found rank=1, world_size=None"),
    (2, 2, r"rank: expected a whole number of 0\.\.1, as world_size is 2, found 2"),
    (-1, 2, "found -1"),
    ("0", 2, "rank: expected a whole number of .*, found '0'"),
    (0, True, "world_size: expected a whole number of 1 or more, found True"),
])  # fmt: skip
def test_ranks_that_there_are_not(rank: Any, world_size: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_rank(rank, world_size)


def test_fewer_batches_than_processes(kit: Any, build: Any) -> None:
    layout = build(kit.small_graph())
    with pytest.raises(InputError, match="do not fill a batch of 128 for each of 400 processes"):
        layout.loader(batch_size=128, fanouts=(3,), drop_last=True, rank=0, world_size=400)
    assert len(layout.loader(batch_size=128, fanouts=(3,), rank=399, world_size=400)) == 1


@pytest.mark.parametrize("make", ["loader", "link_loader"])
def test_a_rank_that_is_told(make: str, kit: Any, build: Any) -> None:
    """Whole rounds are those of one process; the last one's seeds are divided, in the same order."""
    layout = build(kit.small_graph())
    options: dict[str, Any] = {"batch_size": 16, "fanouts": (3, 2), "seed": 5}
    if make == "link_loader":
        options |= {"links": np.random.default_rng(0).integers(0, 50, (2, 130)), "negatives": 1.0}
    ranks = [getattr(layout, make)(**options, rank=rank, world_size=3) for rank in range(3)]
    alone = list(getattr(layout, make)(**options).epoch(1))
    shares = [list(loader.epoch(1)) for loader in ranks]
    total = sum(batch.input_id.numel() for batch in alone)
    rounds, rest = divmod(total, 3 * 16)
    assert rest and [len(loader) for loader in ranks] == [len(share) for share in shares] == [rounds + 1] * 3
    for k, batch in enumerate(alone[: 3 * rounds]):
        same = shares[k % 3][k // 3]
        np.testing.assert_array_equal(same.input_id.numpy(), batch.input_id.numpy())
        np.testing.assert_array_equal(same.x.numpy(), batch.x.numpy())
    last = [share[-1].input_id.tolist() for share in shares]
    assert [*itertools.chain(*last)] == [i for batch in alone[3 * rounds :] for i in batch.input_id.tolist()]
    assert [len(ids) for ids in last] == [rest // 3 + (rank < rest % 3) for rank in range(3)]
    for rank, loader in enumerate(ranks):
        again = list(loader.epoch(1))[-1]
        np.testing.assert_array_equal(again.x.numpy(), shares[rank][-1].x.numpy())


def test_a_rank_of_torchrun(kit: Any, build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    layout = build(kit.small_graph())
    loader = layout.loader(batch_size=16, fanouts=(3,))
    assert loader.rank == ProcessRank(1, 2)
    assert [batch.index for batch in loader.epoch(0)] == list(range(1, 2 * len(loader), 2))
