"""Unique nodes by bucket and group of batches, and bytes of adjacency lists: against the sampler's batches, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import two_types

from tiering.artifacts.manifest import relation_key
from tiering.evaluation import counting, evaluate
from tiering.evaluation.counting import BUCKETS, ReferenceEpochs
from tiering.formats.user_arrays import resolve_train
from tiering.sampling import AccessCounts, SamplingOptions, batches, list_read_bytes, list_read_places, make_sampler


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
    """Beyond `MAX_GROUPS`, neighbouring batches share a group; without maps only accesses are counted."""
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


def test_two_types(tmp_path):
    """Four lists of one entry of 4 bytes each per epoch, whatever the fanout."""
    for epochs in (1, 3):
        found = evaluate(two_types(tmp_path / f"{epochs}"), {}, [2], batch_size=1, epochs=epochs)
        (relation,) = found.adjacency["relations"]
        expected = {"reads_per_epoch": 4, "bytes_per_epoch": 4 * (16 + 4)}
        assert found.to_json()["adjacency"] == {**expected, "relations": {relation: expected}}


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
