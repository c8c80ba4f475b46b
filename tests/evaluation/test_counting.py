"""Unique nodes by bucket and group of batches: against the sampler's batches and the sums over the epochs."""

from __future__ import annotations

import numpy as np
import pytest
from judged_graphs import import_graph

from tiering.datasets.generated import generate
from tiering.evaluation import bootstrap, counting
from tiering.evaluation.counting import BUCKETS, ReferenceEpochs
from tiering.formats.graph import Graph
from tiering.formats.train_set import resolve_train
from tiering.sampling import AccessCounts, SamplingOptions, batches, make_sampler


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("counted")
    generate(folder / "data", nodes=3000, edges=30_000, dim=4, classes=3, seed=1, hetero=True)
    return import_graph(folder / "data", folder / "graph")


def reference(graph: Graph, threads: int, batch_size: int) -> ReferenceEpochs:
    options = SamplingOptions([4, 3], batch_size=batch_size, seed=5)
    return ReferenceEpochs(make_sampler(graph, options), resolve_train(graph), options, range(2, 4), threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [40, 3])
def test_tally(graph: Graph, threads: int, batch_size: int) -> None:
    """Each map counts one type; tasks of one batch and of several."""
    rng, epochs = np.random.default_rng(0), reference(graph, threads, batch_size)
    maps = [(t, rng.integers(0, BUCKETS, graph.num_nodes(t)).astype(np.uint8)) for t in ("paper", "author", "paper")]
    found = epochs.count(maps)
    sums, expected = AccessCounts.zeros(graph), []
    for epoch in (2, 3):
        plan = batches(epochs.train, batch_size, epoch, seed=5)
        epochs.sampler.count_accesses(plan, sums)
        for b in range(len(plan)):
            nodes = epochs.sampler.sample(plan[b], epoch=epoch, batch=b).nodes
            expected.append([np.bincount(of[nodes[t]], minlength=BUCKETS) for t, of in maps])
    assert found.batches == epochs.batches == len(expected)
    assert np.array_equal(found.hits, np.array(expected).swapaxes(0, 1))
    for t in graph.node_types:
        assert found.accesses.features[t].tolist() == sums.features[t].tolist()
    for r in graph.relations:
        assert found.accesses.adjacency[r].tolist() == sums.adjacency[r].tolist()


def test_groups_and_no_maps(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `MAX_GROUPS`, neighbouring batches share a group; without maps only accesses are counted."""
    maps, epochs = [("paper", np.zeros(graph.num_nodes("paper"), np.uint8))], reference(graph, 2, 40)
    whole = epochs.count(maps)
    for module in (bootstrap, counting):
        monkeypatch.setattr(module, "MAX_GROUPS", 5)
    hits = epochs.count(maps).hits[0, :, 0]
    assert hits.size == 5 and hits.sum() == whole.hits.sum()
    none = epochs.count([])
    assert none.hits.shape[0] == 0
    assert none.accesses.features["fos"].tolist() == whole.accesses.features["fos"].tolist()
