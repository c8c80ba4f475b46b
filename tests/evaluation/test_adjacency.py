"""Bytes of adjacency lists: by hand, and edge by edge."""

from __future__ import annotations

import numpy as np
from judged_graphs import two_types

from tiering.artifacts.manifest import relation_key
from tiering.evaluation import evaluate
from tiering.formats.train_set import resolve_train
from tiering.sampling import SamplingOptions, batches, list_read_bytes, list_read_places, make_sampler


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
