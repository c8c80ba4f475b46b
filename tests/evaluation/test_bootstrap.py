"""Intervals against a plain bootstrap of per-batch hits, and what they are where there is little to resample."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import star_graph, two_types

from tiering.evaluation import evaluate
from tiering.evaluation.counting import Bootstrap
from tiering.formats.user_arrays import resolve_train
from tiering.layout import parse_capacities
from tiering.sampling import NeighborSampler, batches
from tiering.scores import score_graph


def plain_interval(hits, found, draws):
    """One ratio, one draw at a time."""
    random = np.random.default_rng(99)
    ratios = []
    for _ in range(draws):
        chosen = random.integers(0, len(hits), len(hits))
        ratios.append(hits[chosen].sum() / found[chosen].sum())
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def test_against_a_plain_bootstrap(cnr_graph, tmp_path):
    """Hits of each batch are counted again from the batch itself, with sets."""
    degree = score_graph(cnr_graph, "degree", tmp_path / "degree")
    shares, tiers = [0.01, 0.1], parse_capacities("1%", cpu="9%", ssd=True)
    result = evaluate(
        cnr_graph, {"degree": degree}, [10, 10], batch_size=64, train="1%", epochs=2, shares=shares, tiers=tiers,
        resamples=2000, seed=3,
    )  # fmt: skip
    order = np.argsort(-degree.values(), kind="stable")
    train = resolve_train(cnr_graph, "1%", 3)
    sampler = NeighborSampler(cnr_graph, [10, 10], seed=3)
    for at, share in enumerate(shares):
        cached = set(order[: int(share * order.size)].tolist())
        hits, found = [], []
        for epoch in range(2):
            plan = batches(train, 64, epoch, seed=3)
            for b in range(len(plan)):
                nodes = sampler.sample(plan[b], epoch=epoch, batch=b).nodes["node"]
                hits.append(len(cached & set(nodes.tolist())))
                found.append(nodes.size)
        low, high = plain_interval(np.array(hits), np.array(found), 2000)
        ours = result.intervals["degree"]
        assert result.hit_rates["degree"][at] == sum(hits) / sum(found)
        assert ours[at] == pytest.approx((low, high), abs=0.15 * (high - low))
    # One row size: the gpu tier's share of the bytes is the hit rate at its capacity, and so is its interval.
    assert "oracle" not in {**result.intervals, **result.bands}
    links = result.tiers["degree"].to_json()["links"]
    assert links["gpu_memory"]["interval"] == pytest.approx(ours[0])
    assert all(link["interval"][0] <= link["share"] <= link["interval"][1] for link in links.values())
    assert result.tiers["oracle"].intervals is None


def test_intervals_of_types_and_links(tmp_path):
    """Every batch reads one row of `a` (8 bytes) and one of `b` (2 bytes).

    The tier holds b0 alone: 3 of 4 batches read it, so its hit rate moves between 0 and 1/2 in halves of the draws'
    shares, and its share of the bytes is 2/10 of the share of the batches drawn that read it.
    """
    graph = two_types(tmp_path / "source")
    score = {"s": {"b": [1.0, 0.0]}}
    found = evaluate(graph, score, [1], batch_size=1, epochs=1, shares=[2 / 36], tiers=parse_capacities("2"))
    assert found.hit_rates["s"] == [3 / 8]
    ((low, high),) = found.intervals["s"]
    assert low == 1 / 8 and high == 1 / 2
    assert found.types["b"].intervals["s"] == [[2 * low, 2 * high]]
    assert found.types["a"].intervals["s"] == [[0, 0]]
    link = found.tiers["s"].to_json()["links"]["gpu_memory"]
    assert link["share"] == pytest.approx(3 * 2 / 40)
    assert link["interval"] == pytest.approx([0.2 * 2 * low, 0.2 * 2 * high])


def test_few_batches(tmp_path):
    """One batch has no spread: no interval. Two have one. None are asked for: none, and the same rates."""
    star = star_graph(tmp_path / "star")
    score = {"s": {"node": np.arange(10)[::-1]}}
    options = {"train": [1, 2], "epochs": 1, "shares": [0.1, 0.2]}
    one = evaluate(star, score, [1], batch_size=2, **options)
    assert one.batches == 1 and one.intervals == {"s": [None, None]} and one.bands == {}
    two = evaluate(star, score, [1], batch_size=1, **options)
    # Both read node 0 and themselves: at 1 row always a half; at 2 rows (0 and 1) 1/2, 3/4 or 1.
    assert two.intervals["s"] == [[0.5, 0.5], [0.5, 1.0]]
    none = evaluate(star, score, [1], batch_size=1, resamples=0, **options)
    assert none.intervals == one.intervals and none.hit_rates == two.hit_rates


def test_same_seed_same_intervals():
    random = np.random.default_rng(0)
    parts = random.integers(0, 100, (50, 7))
    wholes = parts.sum(axis=1) + 100
    first, again, other = (Bootstrap(50, 200, seed).interval(parts, wholes) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()
    assert np.all(first[:, 0] < parts.sum(axis=0) / wholes.sum()) and first.shape == (7, 2)
    nothing = Bootstrap(3, 10).interval(np.zeros((3, 1), int), np.zeros(3, int))
    assert nothing.tolist() == [[0, 0]]
