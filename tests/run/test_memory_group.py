"""A task at its planned size, in a control group of the memory that its stage says and a worker holds beside."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from memory_group import memory_group

import tiering
from tiering.run.carrier import ClusterOptions
from tiering.run.executor import WORKER_BYTES
from tiering.run.job import Job

pytestmark = pytest.mark.slow
NODES, EDGES = 1_000_000, 10_000_000
CLUSTER = ClusterOptions(shards=2, workers=1)
PROGRAM = """
import pickle, sys
from tiering.run.step import attempt

with open(sys.argv[1], "rb") as file:
    call = pickle.load(file)
outcome = attempt(call)
assert outcome.record is not None, outcome.error
assert outcome.record["index"] == call.index
"""


class CaughtError(KeyboardInterrupt):
    """A stage that is to be tried again in another process has run."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("group") / "data", np.random.default_rng(1)
    folder.mkdir()
    np.save(folder / "edge_index.npy", random.integers(0, NODES, (2, EDGES)))
    np.save(folder / "node_feat.npy", random.random((NODES, 64), np.float32))
    np.save(folder / "train_idx.npy", np.arange(1000))
    return folder


def score(folder, graph):
    tiering.score_graph(graph, folder / "scores", "wrpr", sweeps=1, cluster=CLUSTER)


def layout(folder, graph):
    scores = tiering.score_graph(graph, folder / "degree", "degree")
    ordered = tiering.reorder_graph(graph, scores, folder / "ordered")
    tiering.write_layout(ordered, folder / "layout", cpu="10%", ssd=[folder / "ssd"], cluster=CLUSTER)


def lists(folder, graph):
    tiering.import_graph(folder.parent / "data", folder / "again", cluster=CLUSTER)


@pytest.fixture(scope="module")
def graph(dataset):
    return tiering.import_graph(dataset, dataset.parent / "graph")


@pytest.mark.parametrize(
    ("make", "name", "index"), [(lists, "node__to__node.sort", 1), (score, "blocks", 0), (layout, "rows.files", 1)]
)
def test_a_task_in_a_memory_group(graph, monkeypatch, make, name, index):
    folder = graph.path.parent / name
    folder.mkdir()
    whole, calls = Job.run, []

    def run(self, stage, only=None):
        manifests = whole(self, stage, only)
        if stage.name == name:
            calls.append(self.call(stage, index))
            raise CaughtError
        return manifests

    monkeypatch.setattr(Job, "run", run)
    with pytest.raises(CaughtError):
        make(folder, graph)
    (call,) = calls
    (folder / "call").write_bytes(pickle.dumps(call))
    command = [sys.executable, "-c", PROGRAM, str(folder / "call")]
    memory = call.step.memory
    assert memory > 64 << 20
    with memory_group(memory + WORKER_BYTES) as group:
        done = subprocess.run(command, preexec_fn=group.group.enter, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with memory_group(memory // 4) as group:  # the limit is one
        assert subprocess.run(command, preexec_fn=group.group.enter, capture_output=True).returncode == -signal.SIGKILL
