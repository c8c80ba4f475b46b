"""A batch depends on its key alone: not on threads, callers, the order of calls, or how ids were relabeled."""

from __future__ import annotations

import numpy as np
import pytest
from toy_graphs import HOMOGENEOUS, flat, homogeneous, random_graph

from tiering.sampling import LayerSampler, NeighborSampler, RandomWalkSampler, batches, epoch_order


@pytest.fixture(scope="module")
def graph():
    return random_graph(2000, 30_000)


def test_every_part_of_the_key_matters(graph):
    def draw(seed=0, **key):
        return flat(NeighborSampler(graph, [5, 5], seed=seed).sample(np.arange(50), **key))

    drawn = [draw(), draw(seed=1), draw(epoch=1), draw(batch=1), draw(seed=2**64 - 1)]
    assert all(a != b for i, a in enumerate(drawn) for b in drawn[:i])
    assert draw(epoch=1) == drawn[2]


def test_golden_batches():
    """Fixed bytes: a change here changes every user's batches and belongs into the changelog."""
    places, key = np.arange(160), {"epoch": 1, "batch": 2}
    graph = homogeneous(20, np.stack([(places * 7 + places**2) % 20, places // 8]))
    batch = NeighborSampler(graph, [3, 2], seed=42).sample([7, 3, 7], positions=True, **key)
    assert batch.nodes["node"].tolist() == [7, 3, 10, 8, 0, 18, 4]
    assert [hop[HOMOGENEOUS].positions.tolist() for hop in batch.hops] == [
        [58, 57, 63, 28, 30, 25], [58, 61, 26, 27, 85, 87, 64, 66, 3, 4]
    ]  # fmt: skip
    assert epoch_order(10, 42, 1).tolist() == [6, 7, 2, 0, 8, 4, 9, 1, 5, 3]
    batch = LayerSampler(graph, [4, 3], seed=42).sample([7, 3], positions=True, **key)
    edges = batch.hops[0][HOMOGENEOUS]
    assert batch.nodes["node"].tolist() == [7, 3, 8, 10, 0, 18, 14]
    assert edges.positions.tolist() == [56, 57, 58, 60, 61, 62, 63, 25, 26, 27, 28, 30, 31]
    a, b, c, d = 0x3E17B426, 0x3DE38E39, 0x3E430C31, 0x3E124925
    assert edges.weights.view(np.uint32).tolist() == [a, a, a, a, a, b, a, c, d, d, c, c, d]
    batch = RandomWalkSampler(graph, [2, 2], num_walks=10, seed=42).sample([7, 3], **key)
    assert batch.nodes["node"].tolist() == [7, 3, 8, 10, 18, 4]
    assert [hop[HOMOGENEOUS].weights.tolist() for hop in batch.hops] == [
        [6, 4, 7, 4], [3, 3, 6, 3, 5, 4, 7, 3, 6, 4, 7, 3]
    ]  # fmt: skip


def test_epoch_order():
    assert sorted(epoch_order(1000, 3, 4).tolist()) == list(range(1000))
    assert epoch_order(0, 0, 0).size == 0
    assert epoch_order(1000, 3, 4).tolist() != epoch_order(1000, 3, 5).tolist()
    assert epoch_order(1000, 3, 4).tolist() != epoch_order(1000, 4, 4).tolist()


def test_batches_follow_the_order():
    train = np.arange(100, 110)
    plan = batches({"node": train}, 4, 6, seed=9)
    order = train[epoch_order(10, 9, 6)]
    assert [b["node"].tolist() for b in plan] == [order[:4].tolist(), order[4:8].tolist(), order[8:].tolist()]
    assert len(batches({"node": train}, 4, 6, drop_last=True)) == 2
    assert batches({"node": train}, 4, 6, shuffle=False)[1]["node"].tolist() == [104, 105, 106, 107]


def test_batches_of_two_types():
    plan = batches({"a": np.arange(5), "b": np.arange(7)}, 5, 0, seed=1)
    assert [sum(v.size for v in b.values()) for b in plan] == [5, 5, 2]
    seen = {t: np.concatenate([b[t] for b in plan]).tolist() for t in ("a", "b")}
    assert sorted(seen["a"]) == list(range(5)) and sorted(seen["b"]) == list(range(7))
