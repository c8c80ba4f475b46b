"""Costs of accesses fitted to trials with caches of several sizes: what is missed, the line, and `layout --fit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tiering
from tiering import cuda, pipeline
from tiering.errors import CapabilityError, InputError
from tiering.formats.layout import Layout
from tiering.layout.options import LayoutOptions
from tiering.loader.gpu import device as devices
from tiering.loader.gpu import fit
from tiering.memory import parse_memory
from tiering.sampling import NeighborSampler

MEMORY = parse_memory("1GiB")
Cli = Callable[..., Any]


def sampled(layout, **options):
    graph = layout.artifact.graph
    return graph, NeighborSampler(graph, [4, 3], **options), fit.plan_batches(graph, 32)


def test_batches_without_a_split_begin_anywhere(kit, build):
    data = kit.small_graph()
    data.nodes["node"].splits.clear()
    plan = sampled(build(data))[2]
    assert len(plan) == 10 and sorted(plan.ids["node"]) == list(range(300))


@pytest.mark.parametrize("rule", ["uniform", "weighted"])
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("data", ["small_graph", "hetero_graph"])
def test_trials_of_lists(gpu, kit, build, data, rule, frontier, monkeypatch):
    """What is missed falls with the cache, by the amount that numpy finds."""
    monkeypatch.setattr(fit, "BATCHES", 2)
    graph, sampler, plan = sampled(build(getattr(kit, data)()), rule=rule, frontier=frontier)
    seconds = 0.0
    for batch in range(2):
        sample = sampler.sample(plan[batch], batch=batch)
        for number, relation in enumerate(sampler.relations):
            degrees, known = np.diff(graph.csc(relation)[0]), 0
            for hop, counts in enumerate(sample.num_nodes):
                if hop == len(sampler.fanouts) or not sampler.fanouts[hop][number]:
                    continue
                columns = sample.nodes[relation[2]][known : counts[relation[2]]]
                known = counts[relation[2]] if frontier == "new" else 0
                for degree in degrees[columns]:
                    places = np.mean([min(degree, n) + sums(degree, n, rule) for n in (4, 3)])
                    seconds += fit.ASSUMED.list_seconds + places * fit.ASSUMED.neighbour_seconds
    missed = []
    for trial in fit.try_lists(graph, sampler, devices.open_device(-1), plan, MEMORY):
        trial.run()
        missed.append(trial.missed)
    assert_allclose(missed[0], seconds)
    assert missed[-1] == 0.0 and missed == sorted(missed, reverse=True) and missed[3] < missed[0]


def sums(degree: int, fanout: int, rule: str) -> float:
    """Sums of weights that drawing `fanout` neighbors reads."""
    if rule == "uniform":
        return 0.0
    return degree / 4 if degree <= fanout else fanout * np.ceil(np.log2(degree + 1))


def test_caches_fit_the_memory_of_the_gpu(gpu, kit, build, monkeypatch):
    graph, sampler, plan = sampled(build(kit.hetero_graph()))
    whole = sum(lists.bytes for lists in fit.first_lists(graph, 1.0, False).values())
    monkeypatch.setattr(cuda, "free_bytes", lambda device: 2 * whole)  # a quarter of it: half of the lists
    trials = list(fit.try_lists(graph, sampler, devices.open_device(-1), plan, MEMORY))
    assert trials[-1].missed > 0
    del trials
    with pytest.raises(Exception, match="adjacency lists in page-locked memory"):
        next(fit.try_lists(graph, sampler, devices.open_device(-1), plan, parse_memory(1)))


def test_trials_of_rows(gpu, kit, build, monkeypatch):
    """The table is bounded; ids beyond its end begin at its front again."""
    _, sampler, plan = sampled(build(kit.small_graph()))
    monkeypatch.setattr(fit, "ROW_BYTES", 100 * 48)
    monkeypatch.setattr(fit, "BATCHES", 3)
    ids = np.concatenate([sampler.sample(plan[batch], batch=batch).nodes["node"] for batch in range(3)]) % 100
    expected = [(ids >= end).sum() for end in (0, 1, 6, 25, 100)]
    found = []
    for trial in fit.try_rows(48, sampler, devices.open_device(-1), plan, MEMORY):
        trial.run()
        found.append(trial.missed / fit.ASSUMED.feature(48))
    assert_allclose(found, expected)


def line(missed, seconds, monkeypatch):
    taken = iter(seconds)
    monkeypatch.setattr(fit, "time_trial", lambda trial: next(taken))
    return fit.fit_line((fit.Trial(value, lambda: None) for value in missed), "x")


def test_the_line(monkeypatch):
    missed = np.array([5.0, 3.0, 2.0, 0.5, 0.0])
    assert_allclose(line(missed, 0.02 + 3 * missed, monkeypatch), (3.0, 0.0), atol=1e-12)
    seconds = 0.5 + missed + [0.1, -0.2, 0.0, 0.3, -0.1]
    slope, constant = np.polyfit(missed, seconds, 1)
    left = ((seconds - constant - slope * missed) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()
    assert_allclose(line(missed, seconds, monkeypatch), (slope, left))
    assert line(missed, -missed, monkeypatch) == (0.0, 1.0)  # no slope below 0
    assert line(missed, np.full(5, 0.5), monkeypatch) == (0.0, 0.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A generated graph."""
    folder = tmp_path_factory.mktemp("fit")
    tiering.generate_dataset(folder / "data", nodes=400, edges=4000, dim=16, seed=2)
    return pipeline.import_graph(folder / "data", folder / "graph")


@pytest.fixture(scope="module")
def chain(graph):
    """Its reordered graph, and the scores behind that."""
    folder = graph.path.parent
    scores = pipeline.score_graph(graph, folder / "scores", "presample", fanouts=[4, 3], batch_size=16, epochs=1)
    return pipeline.reorder_graph(graph, scores, folder / "reordered"), scores


@pytest.fixture
def clock(monkeypatch):
    """Time that passes as if lists cost twice, and rows three times what is assumed."""

    def seconds(trial: fit.Trial) -> float:
        trial.run()
        return 1e-4 + trial.missed * (2 if "try_lists" in trial.run.__qualname__ else 3)

    monkeypatch.setattr(fit, "time_trial", seconds)


def test_a_layout_is_planned_by_what_was_measured(gpu, chain, clock, tmp_path, tiering_cli: Cli):
    """The same division as by a file of the same costs, recorded with where they come from."""
    reordered, scores = chain
    given = ("--gpu", "8KiB", "--adjacency-cache", "auto", "--scores", scores.path)
    done = tiering_cli("layout", reordered.path, *given, "--fit", "auto", "--out", tmp_path / "fitted").ok()
    assert "note: access costs fitted on reordered, " in done.err and "rows of 64 B 0.0 %" in done.err
    layout = Layout.open(tmp_path / "fitted")
    recorded = layout.manifest.provenance["options"]
    costs = recorded["gpu_times"]
    assert recorded["fit"] == "auto"
    assert costs["source"].startswith("fitted on reordered, ")
    assumed = fit.ASSUMED.to_json()
    assert_allclose([costs[name] / assumed[name] for name in ("list_seconds", "neighbour_seconds")], 2)
    assert_allclose(
        [costs["feature_seconds"][name] / assumed["feature_seconds"][name] for name in ("base", "per_byte")], 3
    )
    document = {name: costs[name] for name in ("feature_seconds", "list_seconds", "neighbour_seconds")}
    (tmp_path / "costs.json").write_text(json.dumps({"device": "x", **document}))
    by_file = ("--access-costs", tmp_path / "costs.json", "--out", tmp_path / "by-file")
    tiering_cli("layout", reordered.path, *given, *by_file).ok()
    assert Layout.open(tmp_path / "by-file").manifest.body == layout.manifest.body
    assert not layout.problems("full")


def test_another_graph_and_a_dry_run(gpu, graph, chain, clock, tmp_path, capfd):
    reordered, scores = chain
    options = LayoutOptions(gpu="8KiB", adjacency_cache="auto", fit=reordered.path)
    estimate = pipeline.estimate_layout(reordered, tmp_path / "out", options, scores=scores)
    assert "note: access costs fitted on reordered, " in capfd.readouterr().err
    assert any("adjacency lists take" in note for note in estimate.plans[0].notes)
    with pytest.raises(InputError, match="expected a reordered graph"):
        pipeline.layout(reordered, tmp_path / "out", scores=scores, gpu=800, adjacency_cache="auto", fit=graph.path)


def test_a_chain_does_not_measure_twice(gpu, clock, tmp_path, monkeypatch):
    tiering.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    (tmp_path / "chain.toml").write_text(
        '[dataset]\npath = "data"\n[score]\nfanouts = [3, 2]\nbatch_size = 8\n'
        '[layout]\ngpu = "4KiB"\nadjacency_cache = "auto"\nfit = "auto"\n[output]\ndir = "out"\n'
    )
    assert pipeline.run_config(tmp_path / "chain.toml")[-1]["done"] is True
    monkeypatch.setattr(fit, "fit_costs", None)
    assert [stage["done"] for stage in pipeline.run_config(tmp_path / "chain.toml")] == [False] * 4


def test_what_is_refused(chain, tmp_path, monkeypatch):
    reordered, scores = chain
    with pytest.raises(InputError, match=r"fit: has an effect only with .*give adjacency_cache=\"auto\" too"):
        LayoutOptions(gpu="1GiB", fit="auto")
    (tmp_path / "costs.json").write_text("{}")
    with pytest.raises(InputError, match="fit: measures the costs that `access_costs` gives; omit one"):
        LayoutOptions(gpu="1GiB", adjacency_cache="auto", fit="auto", access_costs=tmp_path / "costs.json")
    options = LayoutOptions(gpu="8KiB", adjacency_cache="auto", fit="auto")
    with pytest.raises(InputError, match="fit: needs the scores"):
        pipeline.layout(reordered, tmp_path / "out", options)
    monkeypatch.setattr(cuda, "_found", None)
    monkeypatch.setattr(cuda, "_missing", "No module named 'tiering._cuda'")
    with pytest.raises(CapabilityError, match=r"fit: a GPU is needed .*no CUDA part.*; omit `fit`"):
        pipeline.layout(reordered, tmp_path / "out", options, scores=scores)
    assert not (tmp_path / "out").exists()


def test_times_that_depend_on_other_things(gpu, chain, clock, tmp_path, monkeypatch, capfd):
    """Noise is said to be noise; so it is where one kind alone is in doubt."""
    reordered, scores = chain
    options = LayoutOptions(gpu="8KiB", adjacency_cache="auto", fit="auto")
    noise = np.random.default_rng(3)
    exact = fit.time_trial
    monkeypatch.setattr(
        fit, "time_trial", lambda trial: exact(trial) + noise.random() * ("rows" in trial.run.__qualname__)
    )
    pipeline.estimate_layout(reordered, tmp_path / "out", options, scores=scores)
    said = capfd.readouterr().err
    assert "note: the times of rows of 64 B hardly depend on what is cached: the GPU or its link was busy" in said
    assert "times of lists" not in said


def test_other_samplers_and_links_as_fast_as_memory(gpu, graph, chain, clock, tmp_path, monkeypatch):
    reordered, scores = chain
    walks = pipeline.score_graph(graph, tmp_path / "w", "presample", fanouts=[2], sampler="pinsage", num_walks=2)
    by_walks = pipeline.reorder_graph(graph, walks, tmp_path / "by-walks")
    options = LayoutOptions(gpu="8KiB", adjacency_cache="auto", fit="auto")
    with pytest.raises(InputError, match="fit: supports neighbor sampling only, not 'pinsage'"):
        pipeline.layout(by_walks, tmp_path / "out", options, scores=walks)
    monkeypatch.setattr(fit, "time_trial", lambda trial: 1.0 - trial.missed)
    with pytest.raises(
        InputError, match=r"host memory was as fast as the GPU's own memory, .* omit `adjacency_cache` and `fit`"
    ):
        pipeline.layout(reordered, tmp_path / "out", options, scores=scores)
