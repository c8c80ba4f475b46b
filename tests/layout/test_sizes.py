"""Sizes of tiers that the machine decides: against sums by hand, on machines that are pretended, through commands."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from toy_datasets import chain, toy_dataset

import tiering
from tiering import pipeline
from tiering.errors import CapabilityError, InputError
from tiering.formats.shape import GraphShape
from tiering.layout.options import LayoutOptions
from tiering.layout.sizes import TierRoom, choose_sizes
from tiering.layout.tiers import Capacities
from tiering.pipeline.sizes import BatchSize, process_memory
from tiering.sampling import SamplingOptions
from tiering.text.units import Size

MIB = 1 << 20


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(1, 60), st.integers(0, 3))
@example(35, 1, 0, 36, 0)
def test_the_fastest_tiers_are_filled_first(gpu, cpu, ahead, total, ssd):
    """In MiB: the gpu tier takes what fits, the cpu tier all others if they fit, else what reading ahead leaves."""
    room = TierRoom(gpu * MIB, cpu * MIB, min(cpu, ahead) * MIB)
    asked = (Capacities(ssd=ssd > 0), ["gpu", "cpu"], room, total * MIB, 0, ssd)
    rest = total - min(gpu, total)
    if rest > cpu and not ssd:
        with pytest.raises(InputError, match=r"MiB feature data do not fit in memory .*give `ssd=DIR`|do not fit"):
            choose_sizes(*asked)
        return
    try:
        found = choose_sizes(*asked)
    except InputError:  # an automatic gpu tier is rounded down: what is left may be too much for the cpu tier
        assert not ssd and gpu < total and total - 15 / 16 * gpu > cpu
        return
    on_gpu, on_cpu = found.bytes["gpu"] / MIB, found.bytes["cpu"] / MIB
    assert on_gpu == total if gpu >= total else 15 / 16 * gpu <= on_gpu <= gpu
    left = total - on_gpu
    if left <= cpu:
        assert on_cpu == left and not found.capacities.ssd and found.capacities.cpu.auto
    else:
        assert 15 / 16 * min(cpu, ahead) <= on_cpu + 1e-9 and on_cpu <= min(cpu, ahead) and found.capacities.ssd
        assert [row[0] for row in found.rows] == ["gpu", "cpu", "ssd"]


def test_lists_share_a_gpu_tier_that_is_given():
    """The other rows grow by what lists take."""
    asked = Capacities(gpu=Size("10MiB", bytes=10 * MIB))
    found = choose_sizes(asked, ["cpu"], TierRoom(0, 40 * MIB, 40 * MIB), 20 * MIB, 3 * MIB, 0)
    assert found.bytes["cpu"] == 13 * MIB


@pytest.mark.parametrize(
    ("asked", "tiers"),
    [
        ({}, ["gpu", "cpu"]), ({"ssd": "d"}, ["gpu", "cpu"]), ({"gpu": "auto"}, ["gpu", "cpu"]),
        ({"gpu": "auto", "ssd": "d"}, ["gpu"]), ({"gpu": "1GiB"}, ["cpu"]), ({"cpu": "auto", "ssd": "d"}, ["cpu"]),
        ({"cpu": "10%", "ssd": "d"}, []), ({"cpu": 0, "ssd": "d"}, []), ({"peer": "2x10%", "ssd": "d"}, []),
    ],
)  # fmt: skip
def test_which_tiers_the_machine_decides(asked, tiers):
    assert LayoutOptions(**asked).automatic == tiers


@dataclass
class Device:
    total_bytes: int = 8 << 30


@pytest.fixture
def reordered(tmp_path):
    return chain(toy_dataset(tmp_path / "data", 21, max_nodes=400, min_nodes=300, featureless=0), tmp_path)[2]


@pytest.fixture
def gpu(monkeypatch):
    """A machine with two GPUs, of which the second has 3 GiB free."""
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "")
    functions = {"count_devices": lambda: 2, "device_info": lambda n: Device(), "free_bytes": lambda n: (4 - n) << 30}
    for name, function in functions.items():
        monkeypatch.setattr(f"tiering.cuda.{name}", function, raising=False)


def test_all_rows_on_the_gpu_and_no_ssd(tiering_cli, reordered, tmp_path, gpu):
    said = tiering_cli(
        "layout", reordered.path, "--out", tmp_path / "l", "--step-memory", "1GiB", "--ssd", tmp_path / "d"
    )
    assert "3 GiB of free GPU memory, less 1 GiB for a training step (--step-memory)" in said.ok().err
    assert "all rows fit in memory: the directories stay empty" in said.err
    layout = tiering.open(tmp_path / "l").artifact
    assert all(layout.type_layout(t).rows("gpu") == layout.type_layout(t).num_nodes for t in layout.feature_types)
    assert not (tmp_path / "d").exists()


def test_more_than_a_gpu_has(reordered, tmp_path, gpu):
    with pytest.raises(InputError, match="gpu: 9GiB is more than a GPU here has, 8 GiB; give a smaller size"):
        pipeline.layout(reordered, tmp_path / "l", gpu="9GiB", cpu="10%")


def test_without_a_gpu(reordered, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is none")
    with pytest.raises(CapabilityError, match=r"gpu: auto .* give a size such as 8GiB. Reason: there is none"):
        pipeline.layout(reordered, tmp_path / "l", gpu="auto")
    layout = pipeline.layout(reordered, tmp_path / "l")
    assert all(layout.type_layout(t).rows("cpu") == layout.type_layout(t).num_nodes for t in layout.feature_types)


def test_rows_left_over(tiering_cli, reordered, tmp_path, monkeypatch):
    """Nothing is free: without a directory the bytes that lack are named; with one all rows go there."""
    monkeypatch.setattr("tiering.pipeline.sizes.available_memory", lambda: 0)
    command = ("layout", reordered.path, "--out", tmp_path / "l")
    tiering_cli(*command).refused(
        "feature data do not fit in memory", "of 1,024 seeds, fanouts 10,10,10", "--ssd DIR", "--cpu 100%"
    )
    estimate = tiering_cli(*command, "--ssd", tmp_path / "d", "--dry-run", "--json").ok().json
    assert "ssd" in estimate["stages"][0]["notes"][-1]
    tiering_cli(*command, "--ssd", tmp_path / "d").ok()
    layout = tiering.open(tmp_path / "l").artifact
    assert all(layout.type_layout(t).rows("ssd") == layout.type_layout(t).num_nodes for t in layout.feature_types)


def test_a_chain_holds_still_where_memory_changes(tiering_cli, tmp_path, monkeypatch):
    toy = tmp_path / "tiny"
    tiering_cli("generate", toy, "--nodes", "500", "--edges", "3000", "--dim", "8", "--classes", "3").ok()
    config = tmp_path / "chain.toml"
    config.write_text('[dataset]\npath = "tiny"\n[output]\ndir = "out"\n')
    assert [step["done"] for step in tiering_cli("run", config, "--json").ok().json["stages"]] == [True] * 4
    monkeypatch.setattr("tiering.pipeline.sizes.available_memory", lambda: 0)
    assert [step["done"] for step in tiering_cli("run", config, "--json").ok().json["stages"]] == [False] * 4


@pytest.mark.parametrize("hops", [1, 2])
def test_batches_of_all_neighbors(tmp_path, hops):
    """Rows and nodes of a batch are those that powers of the adjacency matrix reach; sizes alone give a bound."""
    tiering.generate_dataset(tmp_path / "data", nodes=400, edges=900, dim=8, classes=2, seed=3)
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph")
    src, dst = np.load(next((tmp_path / "data").rglob("edge_index.npy"))).T
    adjacency = np.zeros((400, 400), bool)
    adjacency[dst, src] = True
    known = [np.unique(np.linspace(0, 399, 50).astype(int))]
    for _ in range(hops):
        known.append(np.union1d(known[-1], adjacency[known[-1]].any(axis=0).nonzero()[0]))
    size = BatchSize.of(graph, SamplingOptions([-1] * hops, batch_size=50), {"paper": 32})
    assert size.rows == 32 * known[-1].size and size.layers == sum(len(own) for own in known[:-1])
    bound = BatchSize.of(GraphShape.of(graph), SamplingOptions([-1] * hops, batch_size=50), {"paper": 32})
    assert bound.rows >= size.rows and bound.layers >= size.layers
    few = BatchSize.of(GraphShape.of(graph), SamplingOptions([2] * hops, batch_size=10), {"paper": 32})
    assert (few.rows, few.layers) == (32 * 10 * 3**hops, sum(10 * 3**hop for hop in range(hops)))


def test_memory_of_a_process_is_that_of_a_plan(tmp_path):
    """With all rows in memory it is where a plan finds that they fit, give or take a batch; each row counts itself."""
    tiering.generate_dataset(tmp_path / "data", nodes=4000, edges=9000, dim=4096, classes=2, seed=3)
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph")
    ranked = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "scores", "degree"), tmp_path / "r")
    layout = pipeline.layout(ranked, tmp_path / "l", cpu="100%")
    everything, how = 4000 * 16384, SamplingOptions([3, 2], batch_size=8)
    whole = process_memory(layout, how, everything)
    sizes = [whole - 4 * MIB, whole + 4 * MIB]
    plan = tiering.plan_epochs(ranked, fanouts=[3, 2], batch_size=8, rows_in_memory=sizes)
    assert [epoch.all_fit for epoch in plan.epochs] == [False, True]
    assert process_memory(layout, how, everything // 4) == whole - everything // 4 * 3


def test_the_batches_of_training_are_asked_for(tiering_cli, reordered, tmp_path):
    command = ("layout", reordered.path, "--dry-run", "--out", tmp_path / "l")
    said = tiering_cli(*command).ok().out
    assert "batches: 1,024 seeds: fanouts 10,10,10, assumed: change them with --fanouts and --batch-size" in said
    said = tiering_cli(*command, "--fanouts", "5,2", "--batch-size", "64").ok().out
    assert "batches: 64 seeds: fanouts 5,2\n" in said
    assert "batches:" not in tiering_cli(*command, "--cpu", "100%").ok().out
    tiering_cli(*command, "--batch-size", "0").refused("batch")
    with pytest.raises(InputError, match=r"fanouts of hop 0: .*relation"):
        pipeline.layout(reordered, tmp_path / "l", fanouts="none=5")


def test_a_chain_knows_its_batches(tiering_cli, tmp_path):
    """Those of its score, unless `[layout]` says others; a layout made for others is made again."""
    tiering_cli("generate", tmp_path / "tiny", "--nodes", "500", "--edges", "3000", "--dim", "8", "--classes", "3").ok()
    config = tmp_path / "chain.toml"
    for score, own, expected in (
        ('fanouts = [-1]\nbatch_size = 8\nsampler = "full"', "", "batches 8 seeds fanouts -1, sampler full gpu"),
        ("fanouts = [4, 3]\nbatch_size = 32", "", "batches 32 seeds fanouts 4,3 gpu"),
        ("fanouts = [4, 3]\nbatch_size = 32", "batch_size = 16", "batches 16 seeds fanouts 4,3 gpu"),
    ):
        config.write_text(f'[dataset]\npath = "tiny"\n[score]\n{score}\n[layout]\n{own}\n[output]\ndir = "out"\n')
        run = tiering_cli("run", config, "--json").ok()
        assert expected in " ".join(run.err.split()) and run.json["stages"][-1]["done"]
        assert not tiering_cli("run", config, "--json").ok().json["stages"][-1]["done"]
    options = json.loads((tmp_path / "out" / "layout" / "manifest.json").read_text())["provenance"]["options"]
    assert options["sampling"]["batch_size"] == 16 and options["sampling"]["fanouts"] == [4, 3]
    config.write_text('[dataset]\npath = "tiny"\n[layout]\nbatch_size = 0\n')
    tiering_cli("run", config).refused(r"[layout] batch")
