"""Costs of accesses fitted to trials with caches of random sizes: what is missed, the line, and `layout --fit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tiering import cuda, pipeline
from tiering.errors import CapabilityError, InputError
from tiering.layout import LayoutOptions
from tiering.loader.gpu import device as devices
from tiering.loader.gpu import fit
from tiering.loader.gpu.cache_trials import ListTrials, RowTrials, draw_batches, largest_prefixes, list_reads
from tiering.memory import parse_memory
from tiering.sampling import AccessCounts, EpochPlan, NeighborSampler

MEMORY = parse_memory("1GiB")
Cli = Callable[..., Any]


def sampled(layout, **options):
    graph = layout.artifact.graph
    sampler = NeighborSampler(graph, options.pop("fanouts", [4, 3]), **options)
    return graph, sampler, draw_batches(graph, sampler, 32, np.random.default_rng(1))


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("data", ["small_graph", "hetero_graph"])
def test_reads_of_lists_are_those_that_the_core_counts(kit, build, frontier, data):
    graph, sampler, samples = sampled(build(getattr(kit, data)()), frontier=frontier)
    (node_type,) = (t for t, ids in samples[0].seeds.items() if ids.size)
    seeds = np.concatenate([sample.seeds[node_type] for sample in samples])
    places = np.arange(seeds.size), np.append(np.arange(0, seeds.size, 32), seeds.size)
    plan = ({node_type: array} for array in (seeds, *places))
    counts: AccessCounts = sampler.count_accesses(EpochPlan(0, *plan))
    for relation in graph.relations:
        reads = list_reads(sampler, samples, relation)
        assert (
            np.bincount(reads, minlength=graph.num_nodes(relation[2])).tolist() == counts.adjacency[relation].tolist()
        )


def test_batches_without_a_split_begin_anywhere(kit, build):
    data = kit.small_graph()
    data.nodes["node"].splits.clear()
    samples = sampled(build(data))[2]
    seeds = np.concatenate([sample.seeds["node"] for sample in samples])
    assert len(samples) == 10 and np.unique(seeds).size == seeds.size == 300


@pytest.mark.parametrize("rule", ["uniform", "weighted"])
@pytest.mark.parametrize("data", ["small_graph", "hetero_graph"])
def test_trials_of_lists(gpu, kit, build, data, rule):
    """What is missed falls with the cache, by the amount that numpy finds; whatever it holds, batches are the same."""
    graph, sampler, samples = sampled(build(getattr(kit, data)()), rule=rule)
    with closing(ListTrials(graph, sampler, devices.open_device(-1), samples, MEMORY)) as trials:
        assert trials.seconds_of_a_batch() > 0
        made = [trials.trial(np.full(trials.kinds, share), 2) for share in (0.0, 0.5, 1.0)]
        lists = places = 0.0
        for index, relation in enumerate(graph.relations):
            degrees = np.diff(graph.csc(relation)[0])
            for column in list_reads(sampler, samples[:2], relation):
                lists += 1
                entries = [min(degrees[column], hop[index]) for hop in sampler.fanouts]
                if rule == "weighted":
                    search = np.ceil(np.log2(degrees[column] + 1))
                    sums = [degrees[column] / 4 if degrees[column] <= n else n * search for n in (4, 3)]
                    entries = [a + b for a, b in zip(entries, sums, strict=True)]
                places += np.mean(entries)
        assert_allclose(made[0].misses, (lists, places))
        assert made[2].misses == (0.0, 0.0)
        assert 0 < made[1].misses[0] < lists and made[1].misses[1] < places
        for trial in made:
            trial.run()
            found = trial.run.args[0].sample(samples[1].seeds, batch=1)[0]
            assert all(found.nodes[t].tolist() == ids.tolist() for t, ids in samples[1].nodes.items())
        on_gpu = [sum(trial.run.args[0].columns.values()) for trial in made]
        assert (
            on_gpu[0] == 0 < on_gpu[1] < on_gpu[2] == sum(graph.num_nodes(relation[2]) for relation in graph.relations)
        )
        del trial, made


def test_lists_that_do_not_fit_share_the_memory(kit, build):
    graph = build(kit.hetero_graph()).artifact.graph
    whole = sum(prefix.bytes for prefix in largest_prefixes(graph, False, 1 << 30).values())
    half = largest_prefixes(graph, False, whole // 2)
    assert whole / 2 - 400 < sum(prefix.bytes for prefix in half.values()) <= whole / 2
    for relation, prefix in half.items():
        assert 0 < prefix.columns < graph.num_nodes(relation[2])
        assert prefix.edges == graph.csc(relation)[0][prefix.columns]
    assert all(prefix.columns == 0 for prefix in largest_prefixes(graph, False, 0).values())


def test_trials_of_rows(gpu, kit, build, monkeypatch):
    graph, _, samples = sampled(build(kit.small_graph()))
    monkeypatch.setattr("tiering.loader.gpu.cache_trials.ROW_BYTES", 100 * 48)
    with closing(RowTrials(graph, 48, ["node"], samples, devices.open_device(-1), MEMORY)) as trials:
        assert trials.seconds_of_a_batch() > 0
        ids = np.concatenate([sample.nodes["node"] for sample in samples[:3]]) % 100
        made = [trials.trial(np.array([share]), 3) for share in (0.0, 0.25, 1.0)]
        assert made[0].misses == (ids.size,) and made[2].misses == (0.0,)
        end = np.sort(ids)[ids.size // 4]
        assert made[1].misses == ((ids >= end).sum(),)
        before = trials._requester.totals()
        made[1].run()
        tiers = np.subtract(trials._requester.totals(), before)
        assert tiers.tolist() == [(ids < end).sum(), 0, (ids >= end).sum(), 0]


def test_the_line():
    rng = np.random.default_rng(5)
    misses = rng.random((6, 2)) * (1e6, 3e7)
    (lists, places), left = fit.fit_line(misses, 0.02 + misses @ (3e-9, 2e-9))
    assert_allclose((lists, places), (3e-9, 2e-9))
    assert left < 1e-12
    # What would be below 0 is 0, and the other explains what it can, as if it stood alone.
    seconds = 0.5 + misses @ (-1e-9, 2e-9) + rng.normal(size=6) * 1e-3
    found, left = fit.fit_line(misses, seconds)
    slope, constant = np.polyfit(misses[:, 1], seconds, 1)
    assert_allclose(found, (0.0, slope))
    rest = seconds - constant - slope * misses[:, 1]
    assert left == pytest.approx((rest**2).sum() / ((seconds - seconds.mean()) ** 2).sum(), rel=1e-6)
    assert fit.fit_line(misses, np.full(6, 0.5)) == ([0.0, 0.0], 0.0)
    assert fit.fit_line(misses[:, :1], -misses[:, 0]) == ([0.0], 1.0)


def test_seconds_by_size():
    assert fit.split_by_size([]) == (0.0, 0.0)
    assert fit.split_by_size([(512, 1e-8)]) == (0.0, 1e-8 / 512)
    assert_allclose(fit.split_by_size([(512, 30e-9), (1024, 50e-9), (4096, 170e-9)]), (10e-9, 20e-9 / 512))
    assert_allclose(fit.split_by_size([(512, 1e-9), (1024, 9e-9)]), (0.0, (512 + 9216) * 1e-9 / (512**2 + 1024**2)))
    assert_allclose(fit.split_by_size([(512, 4e-9), (1024, 2e-9)]), (3e-9, 0.0))


def test_rounds_end_with_the_time(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    ran: list[str] = []

    def run(name: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            ran.append(name)
            now.seconds += seconds

        return work

    monkeypatch.setattr(fit.time, "monotonic", lambda: now.seconds)
    monkeypatch.setattr(fit.time, "perf_counter", lambda: now.seconds)
    trials = [fit.Trial(run("a", 0.5), (0.0,)), fit.Trial(run("b", 1.5), (1.0,))]
    assert fit.time_trials(trials, 7.0, np.random.default_rng(0), "x") == [0.5, 1.5]
    assert ran.count("a") == ran.count("b") == 4  # 2 s a round, of which the first warms up
    assert fit.time_trials(trials, 0.0, np.random.default_rng(0), "x") == [0.5, 1.5]  # two rounds in any case


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A generated graph."""
    folder = tmp_path_factory.mktemp("fit")
    pipeline.generate_dataset(folder / "data", nodes=400, edges=4000, dim=16, seed=2)
    return pipeline.import_graph(folder / "data", folder / "graph")


@pytest.fixture(scope="module")
def chain(graph):
    """Its reordered graph, and the scores behind that."""
    folder = graph.path.parent
    scores = pipeline.score_graph(graph, folder / "scores", "presample", fanouts=[4, 3], batch_size=16, epochs=1)
    return pipeline.reorder_graph(graph, scores, folder / "reordered"), scores


@pytest.fixture
def clock(monkeypatch):
    """Time that passes as if a list took 5 ns, a place 3 ns, and a row 64 ns more from host memory."""

    def seconds(trial: fit.Trial) -> float:
        trial.run()
        return 1e-4 + float(np.dot(trial.misses, (5e-9, 3e-9) if len(trial.misses) == 2 else (64e-9,)))

    monkeypatch.setattr(fit, "seconds_of", seconds)
    monkeypatch.setattr(fit, "SECONDS", 0.0)


def test_a_layout_is_planned_by_what_was_measured(gpu, chain, clock, tmp_path, tiering_cli: Cli):
    """The same division as by a file of the same costs, recorded with where they come from."""
    reordered, scores = chain
    given = ("--gpu", "8KiB", "--adjacency-cache", "auto", "--scores", scores.path)
    done = tiering_cli("layout", reordered.path, *given, "--fit", "auto", "--out", tmp_path / "fitted").ok()
    assert "note: access costs fitted on reordered, " in done.err and "rows of 64 B 0.0 %" in done.err
    layout = pipeline.commands.Layout.open(tmp_path / "fitted")
    recorded = layout.manifest.provenance["options"]
    costs = recorded["gpu_times"]
    assert recorded["fit"] == "auto"
    assert costs["source"].startswith("fitted on reordered, ")
    numbers = costs["list_seconds"], costs["neighbour_seconds"], costs["feature_seconds"]["per_byte"]
    assert_allclose(numbers, (5e-9, 3e-9, 1e-9), rtol=1e-6)
    assert costs["feature_seconds"]["base"] == 0
    document = {name: costs[name] for name in ("feature_seconds", "list_seconds", "neighbour_seconds")}
    (tmp_path / "costs.json").write_text(json.dumps({"device": "x", **document}))
    by_file = ("--access-costs", tmp_path / "costs.json", "--out", tmp_path / "by-file")
    tiering_cli("layout", reordered.path, *given, *by_file).ok()
    assert pipeline.commands.Layout.open(tmp_path / "by-file").manifest.body == layout.manifest.body
    assert not layout.problems("full")


def test_another_graph_and_a_dry_run(gpu, graph, chain, clock, tmp_path, capfd):
    reordered, scores = chain
    options = LayoutOptions.of(gpu="8KiB", adjacency_cache="auto", fit=reordered.path)
    forecast = pipeline.predict_layout(reordered, tmp_path / "out", options, scores=scores)
    assert "note: access costs fitted on reordered, " in capfd.readouterr().err
    assert any("adjacency lists take" in note for note in forecast.plans[0].notes)
    with pytest.raises(InputError, match="expected a reordered graph"):
        pipeline.layout(reordered, tmp_path / "out", scores=scores, gpu=800, adjacency_cache="auto", fit=graph.path)
    pipeline.generate_dataset(tmp_path / "other", nodes=300, edges=900, dim=4, classes=2, hetero=True)
    other = pipeline.import_graph(tmp_path / "other", tmp_path / "other-graph")
    pipeline.reorder_graph(other, pipeline.score_graph(other, tmp_path / "s", "degree"), tmp_path / "other-reordered")
    with pytest.raises(InputError, match=r"fit: .*other-reordered: expected a graph with the node types of .*fit auto"):
        pipeline.layout(
            reordered,
            tmp_path / "out",
            scores=scores,
            gpu=800,
            adjacency_cache="auto",
            fit=tmp_path / "other-reordered",
        )


def test_a_chain_does_not_measure_twice(gpu, clock, tmp_path, monkeypatch):
    pipeline.generate_dataset(tmp_path / "data", nodes=300, edges=2000, dim=8)
    (tmp_path / "chain.toml").write_text(
        '[dataset]\npath = "data"\n[score]\nfanouts = [3, 2]\nbatch_size = 8\n'
        '[layout]\ngpu = "4KiB"\nadjacency_cache = "auto"\nfit = "auto"\n[output]\ndir = "out"\n'
    )
    assert pipeline.run_config(tmp_path / "chain.toml")[-1]["done"] is True
    monkeypatch.setattr(fit, "fit_access_costs", None)
    assert [stage["done"] for stage in pipeline.run_config(tmp_path / "chain.toml")] == [False] * 4


def test_what_is_refused(chain, tmp_path, monkeypatch):
    reordered, scores = chain
    with pytest.raises(InputError, match=r"fit: measures what matters only where .*give --adjacency-cache auto too"):
        LayoutOptions.of(gpu="1GiB", fit="auto")
    (tmp_path / "costs.json").write_text("{}")
    with pytest.raises(InputError, match="fit: measures the costs that --access-costs gives; leave one"):
        LayoutOptions.of(gpu="1GiB", adjacency_cache="auto", fit="auto", access_costs=tmp_path / "costs.json")
    options = LayoutOptions.of(gpu="8KiB", adjacency_cache="auto", fit="auto")
    with pytest.raises(InputError, match="fit: needs the scores"):
        pipeline.layout(reordered, tmp_path / "out", options)
    monkeypatch.setattr(cuda, "_found", None)
    monkeypatch.setattr(cuda, "_missing", "No module named 'tiering._cuda'")
    with pytest.raises(CapabilityError, match=r"fit: there must be a GPU .*no CUDA part.*; leave --fit out"):
        pipeline.layout(reordered, tmp_path / "out", options, scores=scores)
    assert not (tmp_path / "out").exists()


def test_times_that_depend_on_other_things(gpu, chain, clock, tmp_path, monkeypatch, capfd):
    """Noise is said to be noise; so it is where one kind alone is in doubt."""
    reordered, scores = chain
    options = LayoutOptions.of(gpu="8KiB", adjacency_cache="auto", fit="auto")
    noise = np.random.default_rng(3)
    exact = fit.seconds_of
    monkeypatch.setattr(fit, "seconds_of", lambda trial: exact(trial) + 1e-2 * noise.random() * (len(trial.misses) < 2))
    pipeline.predict_layout(reordered, tmp_path / "out", options, scores=scores)
    said = capfd.readouterr().err
    assert "note: the times of rows of 64 B hardly depend on what is cached: the GPU or its link was busy" in said
    assert "times of lists" not in said


def test_other_samplers_and_links_as_fast_as_memory(gpu, graph, chain, clock, tmp_path, monkeypatch):
    reordered, scores = chain
    walks = pipeline.score_graph(graph, tmp_path / "w", "presample", fanouts=[2], sampler="pinsage", num_walks=2)
    by_walks = pipeline.reorder_graph(graph, walks, tmp_path / "by-walks")
    options = LayoutOptions.of(gpu="8KiB", adjacency_cache="auto", fit="auto")
    with pytest.raises(InputError, match="fit: counts the lists that neighbour sampling reads, not those of 'pinsage'"):
        pipeline.layout(by_walks, tmp_path / "out", options, scores=walks)
    monkeypatch.setattr(fit, "seconds_of", lambda trial: 1.0 - 1e-9 * sum(trial.misses))
    with pytest.raises(InputError, match=r"no access was slower from host memory .* leave --adjacency-cache and --fit"):
        pipeline.layout(reordered, tmp_path / "out", options, scores=scores)
