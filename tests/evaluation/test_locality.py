"""Locality of training sets: by plain counting, and on graphs where local and spread training nodes are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_graphs import import_graph

from tiering.evaluation import locality, run
from tiering.evaluation.counting import ReferenceEpochs
from tiering.evaluation.locality import Locality, measure_locality
from tiering.evaluation.predict import predict
from tiering.sampling import SamplingOptions, make_sampler
from tiering.sampling.lists import list_files

HOW = SamplingOptions([3, 3], batch_size=16, seed=4)


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Return 5,000 nodes in a circle, each with eight in-neighbors at most 20 ids away."""
    folder, rng = tmp_path_factory.mktemp("ring"), np.random.default_rng(0)
    target = np.repeat(np.arange(5000), 8)
    source = (target + rng.integers(-20, 21, target.size)) % 5000
    (folder / "data").mkdir()
    np.save(folder / "data" / "edge_index.npy", np.stack([source, target]))
    return import_graph(folder / "data", folder / "graph")


def measured(graph, train, how=HOW, first=0, threads=2, **options):
    epochs = ReferenceEpochs(make_sampler(graph, how), train, how, range(first, first + 3), threads, **options)
    return measure_locality(epochs)


def test_nodes_are_those_of_the_first_epochs_batches(ring):
    train = {"node": np.arange(70, 170)}
    sampler, nodes = make_sampler(ring, HOW), set()
    plan = sampler.batches(train, HOW.batch_size, 2)
    for batch in range(len(plan)):
        nodes |= set(sampler.sample_nodes(plan[batch], epoch=2, batch=batch)["node"].tolist())
    found = measured(ring, train, first=2)
    assert (found.seeds, found.nodes) == (100, len(nodes))
    assert found == measured(ring, train, first=2, threads=1)
    windows = list_files(sampler, 1 << 20)
    assert windows is not None and found == measured(ring, train, first=2, lists=windows)


def test_runs_are_local_and_random_nodes_are_not(ring):
    """Of 5,000 nodes in a circle a run reads itself and 40 ids at each end, random nodes nearly all of the circle."""
    assert measured(ring, {"node": np.arange(250)}).ratio > 4
    spread = np.random.default_rng(1).choice(5000, 250, replace=False)
    assert measured(ring, {"node": spread}).ratio == pytest.approx(1, abs=0.06)
    assert measured(ring, {"node": np.arange(5000)}).ratio == 1


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 300), limit=st.integers(1, 400), seed=st.integers(0, 9))
def test_parts_of_training_sets(ring, count, limit, seed):
    """At most about `SEEDS` nodes are sampled, and no count exceeds the graph or falls below the seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locality, "SEEDS", limit)
        found = measured(ring, {"node": np.arange(count)}, SamplingOptions([2], batch_size=7, seed=seed))
    assert found.seeds == min(count, limit)
    assert found.seeds <= min(found.nodes, found.random_nodes) <= max(found.nodes, found.random_nodes) <= 5000


def test_several_types_and_repeated_seeds(generated, ring):
    split = {t: generated.split("train", t) for t in generated.node_types if "train" in generated.splits(t)}
    two = split | {"author": np.arange(40)}
    found = measured(generated, two, SamplingOptions([2, 2], batch_size=32))
    assert found.seeds == sum(map(len, two.values())) and 0.5 < found.ratio < 2
    again = {"node": np.repeat(np.arange(3), 3000)}  # more seeds than nodes
    assert measured(ring, again).ratio > 4


def test_evaluations_and_plans_report_it(ring):
    found = run.evaluate(ring, {}, HOW, train=np.arange(250))
    assert found.locality == measured(ring, {"node": np.arange(250)})
    assert str(found.locality) in str(found.describe())
    assert json.loads(json.dumps(found.to_json()))["locality"] == {
        "seeds": 250, "nodes": found.locality.nodes, "random_nodes": found.locality.random_nodes,
        "ratio": found.locality.ratio,
    }  # fmt: skip
    degree = {"node": np.bincount(ring.csc()[1], minlength=5000)}
    plan = predict(ring, HOW, scores=degree, train=np.arange(250), row_bytes=64, rows_in_memory="1GiB")
    assert plan.locality == found.locality and str(plan.locality) in str(plan.describe())
    assert plan.to_json()["locality"]["ratio"] == found.locality.ratio
    assert str(Locality(250, 2000, 2400)) == (
        "locality 1.2: an epoch with 250 training nodes reads 2,000 nodes, with 250 random nodes 2,400"
    )
    assert str(Locality(250, 300, 2400)).endswith(
        "2,400; order by hybrid, vip or presample, which know the training nodes"
    )
