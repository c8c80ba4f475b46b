"""Scores and evaluation of training in time: counts against a search of what each seed sees."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tiering
from cli.main import main
from tiering.errors import InputError
from tiering.evaluation import evaluate

NODES, EDGES, HOPS = 60, 400, [-1, -1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph with times of edges; seeds, some of them several times, and their times."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("times")
    src, dst, times = *random.integers(0, NODES, (2, EDGES)), random.integers(0, 20, EDGES)
    (folder / "d").mkdir()
    np.save(folder / "d/edge_index.npy", np.stack([src, dst]))
    np.save(folder / "d/edge_t.npy", times.astype("M8[s]"))
    graph = tiering.import_graph(folder / "d", folder / "g", time="t", num_nodes=NODES)
    seeds, at = random.integers(0, NODES, 30), random.integers(0, 20, 30)
    np.save(folder / "seeds.npy", seeds)
    np.save(folder / "at.npy", at.astype("M8[s]"))
    return graph, (src, dst, times), seeds, at


def reads_of(edges, seeds, at):
    """Return how many seeds reach each node in two steps over edges up to their time: batches of one seed."""
    src, dst, times = edges
    reads = np.zeros(NODES)
    for seed, time in zip(seeds, at, strict=True):
        known = {int(seed)}
        for _ in HOPS:
            known |= {int(u) for u in src[(times <= time) & np.isin(dst, list(known))]}
        reads[list(known)] += 1
    return reads


ASKED = {"fanouts": HOPS, "batch_size": 1, "time": "t", "epochs": 2}


@pytest.mark.parametrize("shards", [None, 3])
def test_presample_counts_what_seeds_see(made, tmp_path, shards):
    graph, edges, seeds, at = made
    cluster = None if shards is None else tiering.ClusterOptions(executor="local", shards=shards)
    scores = tiering.score_graph(
        graph, tmp_path / "s", "presample", train=seeds, seed_time=at, cluster=cluster, **ASKED
    )
    np.testing.assert_array_equal(scores.values("node"), reads_of(edges, seeds, at))
    early = tiering.score_graph(graph, tmp_path / "e", "presample", train=seeds, seed_time=at - 20, **ASKED)
    np.testing.assert_array_equal(early.values("node"), np.bincount(seeds, minlength=NODES))
    assert scores.manifest.provenance["inputs"] != early.manifest.provenance["inputs"]


def test_the_locality_looks_from_each_seeds_own_time(made):
    graph, edges, seeds, at = made
    asked = {"batch_size": 1, "time": "t", "epochs": 1, "train": seeds}
    for times in (at, at[::-1], at - 20):
        found = evaluate(graph, {}, HOPS, seed_time=times, **asked).locality
        assert (found.seeds, found.nodes) == (30, np.count_nonzero(reads_of(edges, seeds, times)))
    assert found.random_nodes == 30  # nothing is known before the first edge


def test_commands_take_files(made, tmp_path, capsys):
    graph, edges, seeds, at = made
    folder = graph.path.parent
    sampling = ["--fanouts", "-1,-1", "--batch-size", "1", "--time", "t", "--train", str(folder / "seeds.npy")]
    sampling += ["--seed-time", str(folder / "at.npy")]
    assert main(["score", str(graph.path), "--method", "presample", *sampling, "--out", str(tmp_path / "s")]) == 0
    np.testing.assert_array_equal(tiering.open(tmp_path / "s").values("node"), reads_of(edges, seeds, at))
    capsys.readouterr()
    assert main(["evaluate", str(graph.path), *sampling, "-s", str(tmp_path / "s"), "--epochs", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accesses"] == reads_of(edges, seeds, at).sum()
    assert main(["evaluate", str(graph.path), *sampling, "--time-window", "soon"]) == 1
    assert "expected a number in the unit of the times, found 'soon'" in capsys.readouterr().err


def test_methods_that_ignore_time_say_so(made, tmp_path, capsys):
    graph, _, repeated, at = made
    for method, text in (
        ("wrpr", "time has no effect on wrpr"),
        ("vip", "vip ignores time"),
        ("hybrid", "its prior ignores time"),
    ):
        given = {} if method == "wrpr" else {"fanouts": [2], "batch_size": 4}
        given |= {"seed_time": at} if method == "hybrid" else {}
        seeds = repeated if method == "hybrid" else np.unique(repeated)
        tiering.score_graph(graph, tmp_path / method, method, train=seeds, time="t", **given)
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(("given", "message"), [
    ({"train": [3, 4]}, "these nodes have no times; give a time for each seed"),
    ({"seed_time": [1]}, "expected one for each of 30 seeds"),
    ({"time": None, "seed_time": np.zeros(30)}, "seed_time: has no effect without time"),
    ({"seed_time": np.full(30, np.nan)}, "entry 0 is nan"),
    ({"seed_time": np.full(30, "1970-01-01T00:00:00.5", "M8[ms]")}, "0.500; the graph's times are datetime64"),
    ({"seed_time": np.full(30, 2**63, np.uint64)}, "entry 0 is 9223372036854775808; the graph's times are int64"),
    (
        {"time_window": np.timedelta64(1, "Y"), "seed_time": np.zeros(30)},
        "entry 0 is 1 years; the graph's times are timedelta64",
    ),
    ({"train": [NODES], "seed_time": [1]}, "expected ids 0..59, found 60"),
])  # fmt: skip
def test_refused(made, tmp_path, given, message):
    graph, _, seeds, _ = made
    with pytest.raises(InputError, match=message):
        tiering.score_graph(graph, tmp_path / "s", "presample", **{"train": seeds, **ASKED, **given})


def test_a_window_of_dates_is_recorded(made, tmp_path):
    """A duration in the options ended `score` with Python's error about JSON."""
    graph, _, seeds, at = made
    windows = (np.timedelta64(5, "s"), 5)
    found = [
        tiering.score_graph(
            graph, tmp_path / str(k), "presample", train=seeds, seed_time=at.astype("M8[s]"), time_window=w, **ASKED
        )
        for k, w in enumerate(windows)
    ]
    np.testing.assert_array_equal(*(one.values("node") for one in found))
    assert found[0].manifest.provenance["options"]["sampling"]["time_window"] == [5, "s"]


@pytest.mark.parametrize("command", ["score", "evaluate", "plan"])
def test_commands_refuse_what_does_not_fit(made, tmp_path, capsys, command):
    graph, _, _, _ = made
    np.save(tmp_path / "at.npy", np.full(3, "1970-01-01T00:00:00.5", "M8[ms]"))
    np.save(tmp_path / "seeds.npy", [1, 2, 3])
    given = ["--fanouts", "2", "--time", "t", "--train", tmp_path / "seeds.npy", "--seed-time", tmp_path / "at.npy"]
    given += {"score": ["--out", tmp_path / "s", "--method", "presample"], "plan": ["--row-bytes", 8]}.get(command, [])
    assert main([command, str(graph.path), *map(str, given)]) == 1
    assert "entry 0 is 1970-01-01T00:00:00.500; the graph's times are datetime64[s]" in capsys.readouterr().err
