"""Unique nodes by bucket and group of batches: against the sampler's batches and the sums over the epochs."""

from __future__ import annotations

import numpy as np
import pytest

from tiering.evaluation import counting
from tiering.evaluation.counting import BUCKETS, ReferenceEpochs
from tiering.formats.train_set import resolve_train
from tiering.sampling import AccessCounts, SamplingOptions, batches, make_sampler


def reference(graph, threads, batch_size):
    options = SamplingOptions([4, 3], batch_size=batch_size, seed=5)
    return ReferenceEpochs(make_sampler(graph, options), resolve_train(graph), options, range(2, 4), threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [40, 3])
def test_tally(generated, threads, batch_size):
    """Each map counts one type; tasks of one batch and of several."""
    graph, rng, epochs = generated, np.random.default_rng(0), reference(generated, threads, batch_size)
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


def test_groups_and_no_maps(generated, monkeypatch):
    """Beyond `MAX_GROUPS`, neighbouring batches share a group; without maps only accesses are counted."""
    maps, epochs = [("paper", np.zeros(generated.num_nodes("paper"), np.uint8))], reference(generated, 2, 40)
    whole = epochs.count(maps)
    monkeypatch.setattr(counting, "MAX_GROUPS", 5)
    hits = epochs.count(maps).hits[0, :, 0]
    assert hits.size == 5 and hits.sum() == whole.hits.sum()
    per_group = np.bincount([counting.group_of(batch, 5 * 3 + 2) for batch in range(17)])
    assert per_group.size == 5 and set(per_group) == {3, 4}
    none = epochs.count([])
    assert none.hits.shape[0] == 0
    assert none.accesses.features["fos"].tolist() == whole.accesses.features["fos"].tolist()
