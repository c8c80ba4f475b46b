"""Arrays that stay in memory from task to task: the bytes are those of one process, whatever is kept or gone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from toy_datasets import tree_bytes, write_odd_types

import tiering
from tiering.run import step as tasks_module
from tiering.run.job import ClusterOptions
from tiering.run.pieces import ShuffleStore
from tiering.run.ray import RayExecutor, _Attempt
from tiering.run.resident import ResidentArrays, resident
from tiering.run.step import Call, LocalExecutor, Outcome, Step
from tiering.scores import blocks

HOME = "5a" * 28  # a machine, as Ray names it


def arrays(nbytes: int) -> dict[str, np.ndarray]:
    return {"a": np.zeros(nbytes, np.uint8)}


def test_what_came_first_stays():
    kept, made = ResidentArrays(), []
    kept.begin_task("job", ("one", "two"), 100)
    kept.put({("one", 0): arrays(50), ("one", 1): arrays(20)})
    kept.put({("two", 0): arrays(10), ("two", 1): arrays(30)})  # both, or none
    kept.put({("two", 2): arrays(1), ("one", 1): arrays(1)})  # no key twice
    assert kept.nbytes == 70
    first = kept.get(("two", 0), lambda: made.append(0) or arrays(30))
    assert kept.get(("two", 0), lambda: made.append(0) or arrays(30)) is first
    assert (len(made), kept.nbytes) == (1, 100)
    for _ in range(2):
        kept.get(("two", 1), lambda: made.append(1) or arrays(1))
    assert (made, kept.nbytes) == ([0, 1, 1], 100)


@pytest.mark.parametrize(
    ("job", "steps", "limit", "left"),
    [("job", ("one", "two"), 100, 80), ("job", ("one", "three"), 100, 50), ("next", ("one", "two"), 100, 0),
     ("job", ("one", "two"), 80, 80), ("job", ("one", "two"), 79, 0)],
)  # fmt: skip
def test_arrays_go_with_their_job_their_step_and_their_memory(job, steps, limit, left):
    kept = ResidentArrays()
    kept.begin_task("job", ("one", "two"), 100)
    kept.put({("one", 0): arrays(50), ("two", 0): arrays(30)})
    kept.begin_task(job, steps, limit)
    assert kept.nbytes == left
    kept.put({("one", 9): arrays(limit - left + 1)})
    assert kept.nbytes == left
    kept.put({("one", 9): arrays(limit - left)})
    assert kept.nbytes == limit


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return tiering.import_graph(write_odd_types(folder / "data"), folder / "graph")


METHODS = {
    "rpr": {"tolerance": 1e-4}, "wrpr": {"sweeps": 3, "teleport": "train"}, "vip": {"fanouts": [3, 2, 2]},
    "vip, new": {"fanouts": [3, 2], "frontier": "new", "sampler": "replacement"},
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("limit", "gone"), [(0, False), (2000, False), (1 << 40, False), (1 << 40, True)])
def test_bytes_do_not_depend_on_what_is_kept(tmp_path, graph, monkeypatch, name, limit, gone):
    """Edges that are gone are read again; none are read where all that tasks have written fits."""
    method, options = name.partition(",")[0], METHODS[name]
    scores = tiering.score_graph(graph, tmp_path / "scores", method, **options)
    whole, read, read_csc = tasks_module.attempt, ShuffleStore.read, blocks.read_csc
    reads, lists, most = [], [], [0]

    def attempt(call: Call) -> Outcome:
        if gone:
            resident.clear()
        outcome = whole(replace(call, resident=limit))
        most[0] = max(most[0], resident.nbytes)
        return outcome

    def watched(store, step, index, partition=0, *memory):
        reads.append((step, index, partition))
        return read(store, step, index, partition, *memory)

    monkeypatch.setattr(tasks_module, "attempt", attempt)
    monkeypatch.setattr(ShuffleStore, "read", watched)
    monkeypatch.setattr(blocks, "read_csc", lambda *a: lists.append(a[1:]) or read_csc(*a))
    cluster = ClusterOptions(shards=3, workers=2)
    found = tiering.score_graph(graph, tmp_path / "found", method, cluster=cluster, **options)
    assert tree_bytes(found.path) == tree_bytes(scores.path)
    edges = [place for place in reads if place[0] == "blocks"]
    assert (len(edges) > len(set(edges))) == bool(edges) == (gone or limit < 1 << 40)
    assert (len(lists) > len(set(lists))) == (gone or limit < 1 << 40)
    assert most[0] <= limit
    assert resident.nbytes == 0


@pytest.mark.parametrize(
    ("memory", "kept"), [(None, 4 * 10), (1000, 1000 - 4 * 90), (250, 250 - 2 * 90), (50, 50 - 90)]
)
def test_executors_keep_what_tasks_leave_of_the_memory(monkeypatch, memory, kept):
    calls = []
    monkeypatch.setattr(tasks_module, "attempt", lambda call: calls.append(call) or Outcome())
    local = LocalExecutor(4, memory)
    for number, step in enumerate([Step("a", "", 9, memory=100, resident=10), Step("b", "", 9, memory=100)]):
        local.submit(number, Call("", "job", step, 0, ""))
        assert local.wait([number], 60)
    resident.begin_task("job", ("a",), 10)
    resident.put({("a", 0): arrays(10)})
    local.close()
    assert ([call.resident for call in calls], resident.nbytes) == ([kept, 0], 0)


def test_ray_sends_a_range_where_it_was():
    """To that machine if it can run tasks, anywhere else if not, or where nothing is resident."""
    pytest.importorskip("ray.util.scheduling_strategies")
    executor = RayExecutor.__new__(RayExecutor)
    executor._ray = SimpleNamespace(get=lambda said: said, exceptions=SimpleNamespace(RayError=OSError))
    executor._homes, executor._left_out, executor._listen = {}, {}, lambda tried: True
    swept, other, done = Step("sweep", "", 2, resident=1), Step("sweep", "", 2), Outcome()
    call = Call("", "job", swept, 1, "")
    executor._attempts = {7: _Attempt(call, None, "a worker", HOME, [done])}
    assert list(executor._hear(7)) == [(7, done)]
    strategy = executor._strategy(call)
    assert (strategy.node_id, strategy.soft, strategy._spill_on_unavailable) == (HOME, True, True)
    for elsewhere in (replace(call, index=0), replace(call, job="next"), replace(call, step=other)):
        assert executor._strategy(elsewhere) == "SPREAD"
    executor._left_out = {HOME: "lacks an input"}
    assert executor._strategy(call) == "SPREAD"
