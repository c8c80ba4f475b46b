"""The sampling benchmarks run at toy size, with whatever peers are there, and refuse to time unequal work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tiering.bench.graphbolt_side import graphbolt_sides
from tiering.bench.sampling import bench_sampling
from tiering.bench.sampling_task import SamplingTask
from tiering.bench.sizes import Sizes
from tiering.errors import InternalError

SMALL = Sizes(scale=8, edges=2000, repeats=2)
FAKE_WORKER = """
import json, sys
print(json.dumps({{"name": "fake"}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"edges": {edges}}}), flush=True)
"""


@pytest.mark.filterwarnings("ignore")
def test_beside_dgl():
    pytest.importorskip("dgl")
    found = bench_sampling(SMALL).to_json()
    peers = {peer["name"]: peer for peer in found["peers"]}
    ran = [name for name in peers if name.startswith("dgl")]
    assert found["amount"] > 0 and len(ran) == 2 and all("(fused)" in name for name in ran)
    assert all(len(peers[name]["seconds"]) == 2 and peers[name]["ratio"] > 0 for name in ran)
    assert "--graphbolt-python" in peers["graphbolt"]["note"]


def test_without_peers(monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    found = bench_sampling(Sizes(scale=8, edges=2000, repeats=2, graphbolt_python=Path(sys.executable))).to_json()
    assert found["rate"] > 0
    assert [peer["name"] for peer in found["peers"]] == ["dgl", "graphbolt"]
    assert all("not installed" in peer["note"] for peer in found["peers"])


def test_an_interpreter_that_is_not_there_is_said():
    with graphbolt_sides(SamplingTask.of(SMALL), Path("/nowhere/python")) as sides:
        assert "No such file" in sides["graphbolt"]


def test_another_process_answers_turns(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(FAKE_WORKER.format(edges=12))
    monkeypatch.setattr("tiering.bench.graphbolt_side.WORKER", worker)
    with graphbolt_sides(SamplingTask.of(SMALL), Path(sys.executable)) as sides:
        assert [side() for side in sides.values() if callable(side)] == [12, 12]


def test_a_peer_that_samples_fewer_edges_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", None)
    worker = tmp_path / "worker.py"
    worker.write_text(FAKE_WORKER.format(edges=12))
    monkeypatch.setattr("tiering.bench.graphbolt_side.WORKER", worker)
    sizes = Sizes(scale=8, edges=2000, repeats=1, graphbolt_python=Path(sys.executable))
    with pytest.raises(InternalError, match="number of edges"):
        bench_sampling(sizes)


@pytest.mark.slow
def test_beside_graphbolt():
    python = os.environ.get("TIERING_GRAPHBOLT_PYTHON")
    if not python:
        pytest.skip("TIERING_GRAPHBOLT_PYTHON names no interpreter with GraphBolt")
    sizes = Sizes(scale=8, edges=2000, repeats=1, graphbolt_python=Path(python))
    ran = [peer for peer in bench_sampling(sizes).to_json()["peers"] if peer["name"].startswith("graphbolt 2")]
    assert len(ran) == 2 and all(peer["ratio"] > 0 for peer in ran)


def test_every_side_gets_the_same_distinct_seeds():
    task = SamplingTask.of(SMALL)
    assert task.seeds.shape == (16, 16)
    assert np.unique(task.seeds).size == task.seeds.size
