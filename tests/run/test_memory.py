"""A task takes no more memory than its step says, by the formulas of the modules."""

from __future__ import annotations

import numpy as np
import peaks
import pytest

import tiering
from tiering.memory import own_memory
from tiering.run import step as step_module
from tiering.run.job import ClusterOptions

SLACK = 6 << 20
"""Of the interpreter and its allocator, while a task runs."""


@pytest.fixture
def watched(monkeypatch):
    """By step: the most that a task took, and what was said."""
    seen: dict[str, tuple[int, int]] = {}
    whole = step_module.run_attempt

    def run(call, arrays=None):
        peaks.settle()
        before = own_memory()
        with peaks.peak_memory() as peak:
            record = whole(call, arrays)
        taken = peak.bytes - before
        if arrays is None and taken > seen.get(call.step.name, (0, 0))[0]:
            seen[call.step.name] = taken, call.step.memory
        return record

    monkeypatch.setattr(step_module, "run_attempt", run)
    return seen


@pytest.mark.slow
def test_tasks_stay_within_their_memory(tmp_path, watched):
    random, nodes, edges = np.random.default_rng(0), 200_000, 3_000_000
    (tmp_path / "data").mkdir()
    ends = random.integers(0, nodes, edges), (random.random(edges) ** 2 * nodes).astype(np.int64)
    np.save(tmp_path / "data" / "edge_index.npy", np.stack(ends))
    np.save(tmp_path / "data" / "edge_weight.npy", random.random(edges).astype(np.float32))
    np.save(tmp_path / "data" / "node_feat.npy", random.random((nodes, 48), np.float32))
    np.save(tmp_path / "data" / "train_idx.npy", random.permutation(nodes)[:2000])
    cluster = ClusterOptions(shards=2, workers=1)
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph", edge_ids=True, cluster=cluster)
    for method, options in (("wrpr", {"sweeps": 1}), ("vip", {"fanouts": [5]})):
        scores = tiering.score_graph(graph, tmp_path / method, method, cluster=cluster, **options)
    small = ClusterOptions(shards=3, workers=1, task_memory="64MiB")  # too little for the adjacency and a sampler
    by_hop = {"fanouts": [5, 5], "sampler": "weighted", "batch_size": 500}
    tiering.score_graph(graph, tmp_path / "presample", "presample", cluster=small, **by_hop)
    assert "hop-1" in watched
    ordered = tiering.reorder_graph(graph, scores, tmp_path / "ordered", cluster=cluster)
    tiering.write_layout(ordered, tmp_path / "layout", cpu="20%", ssd=[tmp_path / "ssd"], cluster=cluster)
    over = {name: (taken, said) for name, (taken, said) in watched.items() if taken > said + SLACK}
    assert not over
    assert sum(taken > 8 << 20 for taken, _ in watched.values()) > 4  # and some were seen to take something
