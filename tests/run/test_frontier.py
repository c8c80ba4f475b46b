"""Counts that are made hop by hop, by tasks that have a range of the lists, are those of one process."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from toy_datasets import tree_bytes, write_odd_types

import tiering
from tiering.artifacts.manifest import Manifest
from tiering.errors import InputError
from tiering.formats.graph import Graph
from tiering.run.grid import Grid
from tiering.run.job import ClusterOptions, Job
from tiering.scores import hops
from tiering.scores import plan as score_plan

NODES, EDGES = 700, 5000
LEAST, MOST = 1, 30 << 20
"""Of a task: for one batch of a wave, and for all; less than a sampler is said to take beside the adjacency."""
OPTIONS = {"epochs": 1, "first_epoch": 1, "batch_size": 16, "seed": 5}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tasks may be as small as tests want them, and make all scores; nothing need outlast the machine."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    cut = property(lambda options: Grid(options.task_memory or LEAST, options.shards))
    monkeypatch.setattr(ClusterOptions, "grid", cut)
    monkeypatch.setattr(score_plan, "_count_tasks", lambda *_: 1)


@pytest.fixture
def ran(monkeypatch):
    """The stages that were run, by name."""
    stages, run = {}, Job.run

    def noted(job, stage, only=None):
        stages[stage.name] = stage
        return run(job, stage, only)

    monkeypatch.setattr(Job, "run", noted)
    return stages


def odd_edges() -> tuple[np.ndarray, np.ndarray]:
    """Duplicates, loops, a list with a third of the edges, nodes without any; weights, a list with none but 0."""
    random = np.random.default_rng(3)
    src = random.integers(0, NODES // 2, EDGES)
    dst = np.where(random.random(EDGES) < 0.3, 17, (random.random(EDGES) ** 3 * NODES).astype(np.int64))
    src[:50], dst[:50], dst[100:120] = src[50:100], dst[50:100], src[100:120]
    weights = random.random(EDGES).astype(np.float32)
    weights[(dst % 5 == 0) | (dst > NODES // 2)] = 0  # of whole ranges, too
    return np.stack([src, dst]), weights


def import_edges(folder: Path, weights: np.ndarray | None) -> Graph:
    data = folder / "data"
    data.mkdir(parents=True)
    np.save(data / "edge_index.npy", odd_edges()[0])
    np.save(data / "train_idx.npy", np.random.default_rng(4).permutation(NODES)[:90])
    if weights is not None:
        np.save(data / "edge_weight.npy", weights)
    return tiering.import_graph(data, folder / "graph")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return import_edges(tmp_path_factory.mktemp("odd"), odd_edges()[1])


@pytest.fixture(scope="module")
def types(tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    return tiering.import_graph(write_odd_types(folder / "data"), folder / "graph")


def both(graph, folder: Path, shards: int, method: str = "presample", memory: int = LEAST, **options):
    """What one process makes, and what tasks make."""
    options = {**OPTIONS, **options}
    alone = tiering.score_graph(graph, folder / "alone", method, **options)
    cluster = ClusterOptions(shards=shards, task_memory=memory, workers=2, threads=1 + shards % 2)
    found = tiering.score_graph(graph, folder / "found", method, cluster=cluster, **options)
    return tree_bytes(alone.path), tree_bytes(found.path)


@pytest.mark.parametrize(
    ("shards", "memory", "options"),
    [
        (1, MOST, {"fanouts": [4, 3]}),
        (2, LEAST, {"fanouts": [4, 3], "frontier": "new", "epochs": 2}),
        (8, MOST, {"fanouts": [4, 3, 2], "epochs": 2}),
        (3, MOST, {"fanouts": [60, -1]}),
        (3, LEAST, {"fanouts": [3, -1], "sampler": "replacement"}),
        (2, MOST, {"fanouts": [5, 2], "sampler": "replacement", "frontier": "new"}),
        (8, LEAST, {"fanouts": [3, 2, 2], "sampler": "weighted"}),
        (3, MOST, {"fanouts": [-1, 2], "sampler": "weighted", "frontier": "new"}),
        (3, LEAST, {"fanouts": [-1, -1], "sampler": "full"}),
        (2, MOST, {"fanouts": [-1, -1], "sampler": "full", "frontier": "new", "batch_size": 7}),
    ],
)
def test_one_type(odd, tmp_path, ran, shards, memory, options):
    alone, found = both(odd, tmp_path, shards, memory=memory, **options)
    assert found == alone
    plan = ran["hop-1"].params
    assert len(hops.waves(plan)) == (1 if memory == MOST else plan["batches"])
    assert len(plan["nodes"]) in range(-(-shards // 2), shards + 1)
    assert "sample" not in ran


def test_waves_of_some_batches(odd, tmp_path, ran):
    alone, found = both(odd, tmp_path, 3, fanouts=[4, 3], memory=140_000, batch_size=5)
    assert found == alone
    plan = ran["hop-1"].params
    assert 1 < plan["wave"] < plan["batches"] and plan["batches"] % plan["wave"]


EACH = {"x": 3, "w": 0, "y": 1, "v": 0, "u": 2, "t": -1}


@pytest.mark.parametrize(
    ("shards", "method", "options"),
    [
        (2, "presample", {"fanouts": [EACH, {**EACH, "x": 0, "w": 2}], "epochs": 2}),
        (3, "presample", {"fanouts": [EACH, {**EACH, "u": 0, "w": 2}, 2], "frontier": "new"}),
        (3, "presample", {"fanouts": [dict.fromkeys(EACH, 0), 2], "sampler": "replacement"}),
        (3, "presample", {"fanouts": [2, EACH], "sampler": "weighted"}),
        (5, "presample", {"fanouts": [2, 2], "batch_size": 11}),
        (2, "hybrid", {"fanouts": [3, 2], "epochs": 2}),
    ],
)
def test_types_and_relations_of_nothing(types, tmp_path, ran, shards, method, options):
    alone, found = both(types, tmp_path, shards, method, **options)
    assert found == alone and "merge-2" in ran


def test_a_task_reads_its_range_alone(odd, tmp_path, monkeypatch):
    read, asked, csc = Manifest.read, [], Graph.csc

    def noted(self, name, begin=0, end=None):
        values = read(self, name, begin, end)
        asked.append((name.rpartition("/")[2], begin, begin + len(values)))
        return values

    def mapped(self, relation=None):
        assert not threading.current_thread().name.startswith("task")
        return csc(self, relation)

    monkeypatch.setattr(Manifest, "read", noted)
    monkeypatch.setattr(Graph, "csc", mapped)
    alone, found = both(odd, tmp_path, 8, fanouts=[2, 2], epochs=2)
    assert found == alone
    sizes = {name: max(end - begin for of, begin, end in asked if of == name) for name in ("indices", "indptr")}
    assert sizes["indices"] < 0.6 * EDGES and sizes["indptr"] < NODES  # one list has a third of the edges
    times = Counter((begin, end) for name, begin, end in asked if name == "indices")
    assert sum(end - begin for begin, end in times) == EDGES and set(times.values()) == {2 * 2}  # hops and epochs


@pytest.mark.parametrize("weights", [None, np.zeros(EDGES, np.float32)])
def test_weights_are_refused_as_by_one_process(tmp_path, weights):
    graph, said = import_edges(tmp_path, weights), []
    for cluster in (None, ClusterOptions(shards=8)):
        with pytest.raises(InputError, match="weight") as error:
            tiering.score_graph(
                graph, tmp_path / "scores", "presample", cluster=cluster, fanouts=[3], sampler="weighted", **OPTIONS
            )
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(("sampler", "fanouts"), [("ladies", [30, 30]), ("pinsage", [3])])
def test_samplers_that_need_more_than_a_range_say_so(odd, tmp_path, ran, capsys, sampler, fanouts):
    alone, found = both(odd, tmp_path, 3, sampler=sampler, fanouts=fanouts)
    assert found == alone and "sample" in ran and "hop-0" not in ran
    said = capsys.readouterr().err
    assert "whole adjacency" in said and sampler in said and "needs up to 32" in said


def test_what_fits_is_counted_by_batches(odd, tmp_path, ran, capsys):
    alone, found = both(odd, tmp_path, 3, memory=1 << 32, fanouts=[4, 3])
    assert found == alone and "sample" in ran and "hop-0" not in ran
    assert "adjacency" not in capsys.readouterr().err
