"""Every number of an evaluation is that of one process, however its batches are shared."""

from __future__ import annotations

import pytest

import tiering
from tiering.cluster import tasks
from tiering.cluster.session import ClusterOptions
from tiering.datasets.generated.synthetic import generate
from tiering.pipeline import evaluate_scores

ASKED = {"fanouts": [4, 3], "batch_size": 16, "epochs": 2, "resamples": 20}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A graph of several types, and two scores of it."""
    folder = tmp_path_factory.mktemp("evaluate")
    generate(folder / "data", nodes=900, edges=9000, dim=5, hetero=True, featureless=["institute"])
    graph = tiering.import_graph(folder / "data", folder / "graph")
    scores = [
        tiering.score_graph(graph, folder / "degree", "degree"),
        tiering.score_graph(graph, folder / "counted", "presample", fanouts=[4, 3], batch_size=16),
    ]
    return graph, scores


def found(scored, cluster=None, **more):
    graph, scores = scored
    return evaluate_scores(graph, scores, cluster=cluster, **{**ASKED, **more}).to_json()


TIERS = {"gpu": "10%", "cpu": "20%", "ssd": True}


@pytest.mark.parametrize("shards", [2, 3, 16])
@pytest.mark.parametrize("more", [{}, {"tiers": TIERS}, {"resamples": 0, "epochs": 3}, {"sampler": "replacement"}])
def test_same_numbers(scored, more, shards):
    if "tiers" in more:
        more = {"tiers": tiering.layout.parse_capacities(**TIERS)}
    expected = found(scored, **more)
    assert found(scored, ClusterOptions(shards=shards, workers=2), **more) == expected
    graph, _ = scored
    assert not list(graph.path.parent.glob(".*tasks"))


def test_many_groups(scored, monkeypatch):
    """More batches than groups that the bootstrap draws from: groups go across tasks."""
    from tiering.cluster.stages import judging
    from tiering.evaluation import bootstrap, counting

    for module in (bootstrap, counting, judging):
        monkeypatch.setattr(module, "MAX_GROUPS", 5)
    expected = found(scored, epochs=3)
    assert found(scored, ClusterOptions(shards=3), epochs=3) == expected


def test_a_task_that_counts_twice_is_seen(scored, monkeypatch):
    from tiering.cluster.stages import accesses

    whole = accesses.add_counts

    def twice(context, counts):
        for column in counts.features.values():
            column *= 1 + (context.index == 1)
        whole(context, counts)

    expected = found(scored)
    monkeypatch.setattr(accesses, "add_counts", twice)
    assert found(scored, ClusterOptions(shards=3)) != expected


def test_the_judge_of_dgl_counts_where_it_is(scored, monkeypatch):
    pytest.importorskip("dgl")
    monkeypatch.setattr(tasks, "run_attempt", None)
    assert found(scored, ClusterOptions(shards=3), judge="dgl", epochs=1) == found(scored, judge="dgl", epochs=1)


def test_the_command(tiering_cli, scored, tmp_path):
    graph, scores = scored
    asked = ["evaluate", graph.path, "-s", scores[0].path, "--fanouts", "4,3", "--batch-size", "16", "--ssd", "--json"]
    expected = tiering_cli(*asked).ok().json
    more = ["--executor", "local", "--shards", "4", "--store", tmp_path / "store"]
    assert tiering_cli(*asked, *more).ok().json == expected
    assert not (tmp_path / "store").exists()
    tiering_cli(*asked, "--shards", "4").refused("--shards", "--executor")
