"""Counts batch by batch: against sets, and against the sums over the epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judged_graphs import import_graph

from tiering.datasets.generated.synthetic import generate
from tiering.evaluation.counting import BUCKETS, JudgedEpochs, OwnJudge
from tiering.formats.graph import Graph
from tiering.formats.train_set import resolve_train
from tiering.sampling import AccessCounts, SamplingOptions, batches, make_sampler


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("counted")
    generate(folder / "data", nodes=3000, edges=30_000, dim=4, classes=3, seed=1, hetero=True)
    return import_graph(folder / "data", folder / "graph")


def marks(graph: Graph, *types: str) -> dict[str, Any]:
    random = np.random.default_rng(len(types))
    return {t: random.integers(0, BUCKETS, graph.num_nodes(t)).astype(np.uint8) for t in types}


def test_marks(graph: Graph) -> None:
    """Every map counts the types that are in it; all types together are the sums of the epochs."""
    options = SamplingOptions([4, 3], batch_size=40, seed=5)
    sampler = make_sampler(graph, options)
    train = resolve_train(graph)
    maps = [marks(graph, *graph.node_types), marks(graph, "paper", "fos"), marks(graph, "author")]
    found = JudgedEpochs(OwnJudge(sampler), graph, train, options, [2, 3], threads=3).count(maps)
    assert found.hits.shape == (3, found.batches, BUCKETS) and found.groups == found.batches
    for of_map, counted in zip(maps, found.hits, strict=True):
        for mark in (0, 17, BUCKETS - 1):
            expected = sum(found.accesses.features[t][own == mark].sum() for t, own in of_map.items())
            assert counted[:, mark].sum() == expected
    plan = batches(train, 40, 3, seed=5)
    nodes = sampler.sample(plan[1], epoch=3, batch=1).nodes
    number = len(plan) + 1
    for of_map, counted in zip(maps, found.hits, strict=True):
        expected = np.bincount(np.concatenate([own[nodes[t]] for t, own in of_map.items()]), minlength=BUCKETS)
        assert counted[number].tolist() == expected.tolist()
    sums = AccessCounts.zeros(graph)
    for epoch in (2, 3):
        sampler.count_accesses(sampler.batches(train, 40, epoch), sums)
    for t in graph.node_types:
        assert found.accesses.features[t].tolist() == sums.features[t].tolist()
    for r in graph.relations:
        assert found.accesses.adjacency[r].tolist() == sums.adjacency[r].tolist()


def test_threads_do_not_matter(graph: Graph) -> None:
    options = SamplingOptions([4, 3], batch_size=7)
    sampler, train = OwnJudge(make_sampler(graph, options)), resolve_train(graph)
    maps = [marks(graph, "paper")]
    one, many = (JudgedEpochs(sampler, graph, train, options, [0], threads=n).count(maps) for n in (1, 5))
    assert one.hits.tolist() == many.hits.tolist()
    none = JudgedEpochs(sampler, graph, train, options, [0], threads=2).count([])
    assert none.hits.shape[0] == 0 and none.accesses.features["fos"].tolist() == one.accesses.features["fos"].tolist()
