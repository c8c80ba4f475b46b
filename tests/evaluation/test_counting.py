"""Unique nodes by bucket and group of batches, bytes of adjacency lists, intervals: against plain counts, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import star_graph, two_types

from tiering.artifacts.manifest import relation_key
from tiering.evaluation import counting, evaluate
from tiering.evaluation.counting import BUCKETS, ReferenceEpochs
from tiering.formats.user_arrays import resolve_train
from tiering.layout.tiers import parse_capacities
from tiering.sampling import (
    AccessCounts,
    NeighborSampler,
    SamplingOptions,
    batches,
    list_read_bytes,
    list_read_places,
    make_sampler,
)
from tiering.scores.plan import score_graph


def reference(graph, threads, batch_size):
    options = SamplingOptions([4, 3], batch_size=batch_size, seed=5)
    return ReferenceEpochs(make_sampler(graph, options), resolve_train(graph), options, range(2, 4), threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [40, 3])
def test_tally(generated, threads, batch_size):
    """Each map counts one type; tasks of one batch and of several."""
    graph, rng, epochs = generated, np.random.default_rng(0), reference(generated, threads, batch_size)
    maps = [(t, rng.integers(0, BUCKETS, graph.num_nodes(t)).astype(np.uint8)) for t in ("paper", "author", "paper")]
    accesses, hits = epochs.count(maps)
    sums, expected = AccessCounts.zeros(graph), []
    for epoch in (2, 3):
        plan = batches(epochs.train, batch_size, epoch, seed=5)
        epochs.sampler.count_accesses(plan, sums)
        for b in range(len(plan)):
            nodes = epochs.sampler.sample(plan[b], epoch=epoch, batch=b).nodes
            expected.append([np.bincount(of[nodes[t]], minlength=BUCKETS) for t, of in maps])
    assert epochs.batches == len(expected)
    assert np.array_equal(hits, np.array(expected).swapaxes(0, 1))
    for t in graph.node_types:
        assert accesses.features[t].tolist() == sums.features[t].tolist()
    for r in graph.relations:
        assert accesses.adjacency[r].tolist() == sums.adjacency[r].tolist()


def test_groups_and_no_maps(generated, monkeypatch):
    """Beyond `MAX_GROUPS`, neighboring batches share a group; without maps only accesses are counted."""
    maps, epochs = [("paper", np.zeros(generated.num_nodes("paper"), np.uint8))], reference(generated, 2, 40)
    accesses, whole = epochs.count(maps)
    monkeypatch.setattr(counting, "MAX_GROUPS", 5)
    runs = np.arange(epochs.batches) * 5 // epochs.batches
    assert epochs.count(maps)[1][0, :, 0].tolist() == np.bincount(runs, whole[0, :, 0]).tolist()
    again, none = epochs.count([])
    assert none.shape[0] == 0
    assert again.features["fos"].tolist() == accesses.features["fos"].tolist()


def test_a_read_by_hand():
    """Begin and end are 16 bytes, an entry 8; lists of 0, 3 and 20 entries."""
    degrees = np.array([0, 3, 20])
    for sampler, fanouts, entries in (
        ("uniform", [10, 10], [0, 3, 10]),
        ("weighted", [4, 0, 6], [0, 3, 5]),
        ("full", [-1], [0, 3, 20]),
        ("ladies", [512], [0, 3, 20]),
        ("pinsage", [5], [0, 1, 1]),
        ("uniform", [0], [0, 0, 0]),
    ):
        assert list_read_bytes(degrees, 8, sampler, fanouts).tolist() == [16 + 8 * each for each in entries]


def test_places_of_a_read_by_hand():
    """Of sums of weights a whole list is read in quarters of entries, a longer one by 5 steps (20 entries) per draw."""
    degrees = np.array([0, 3, 20])
    for sampler, fanouts, places in (
        ("uniform", [10, 10], [0, 3, 10]),
        ("weighted", [4], [0, 3.75, 4 + 4 * 5]),
        ("weighted", [4, 0, -1], [0, 3.75, 12 + (4 * 5 + 5) / 2]),
    ):
        assert list_read_places(degrees, sampler, fanouts).tolist() == places


def test_every_edge_is_read_once_where_hops_are_alike(generated):
    options = SamplingOptions([3, 3], batch_size=40, seed=5)
    found = evaluate(generated, {}, options, epochs=1)
    sampler, plan = make_sampler(generated, options), batches(resolve_train(generated), 40, 0, seed=5)
    counts = sampler.count_accesses(plan)
    for relation in generated.relations:
        edges = sum(
            len(hop[relation]) for b in range(len(plan)) for hop in sampler.sample(plan[b], epoch=0, batch=b).hops
        )
        reads, nbytes = found.adjacency["relations"][relation_key(relation)].values()
        assert reads == counts.adjacency[relation].sum()
        assert nbytes == 16 * reads + generated.csc(relation)[1].itemsize * edges
    assert found.adjacency["bytes_per_epoch"] > 0


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
