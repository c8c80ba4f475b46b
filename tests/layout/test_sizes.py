"""Sizes of tiers that the machine decides: against sums by hand, on machines that are pretended, through commands."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_datasets import chain, toy_dataset

import tiering
from tiering import pipeline
from tiering.errors import CapabilityError, InputError
from tiering.layout.options import LayoutOptions
from tiering.layout.sizes import TierRoom, choose_sizes
from tiering.layout.tiers import Capacities

MIB = 1 << 20


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(1, 60), st.integers(0, 3))
def test_the_fastest_tiers_are_filled_first(gpu, cpu, ahead, total, ssd):
    """In MiB: the gpu tier takes what fits, the cpu tier all others if they fit, else what reading ahead leaves."""
    room = TierRoom(gpu * MIB, cpu * MIB, min(cpu, ahead) * MIB)
    asked = (Capacities(ssd=ssd > 0), ["gpu", "cpu"], room, total * MIB, 0, ssd)
    rest = total - min(gpu, total)
    if rest > cpu and not ssd:
        with pytest.raises(InputError, match=r"MiB feature data find no room in memory .*give `ssd=DIR`|no room"):
            choose_sizes(*asked)
        return
    found = choose_sizes(*asked)
    on_gpu, on_cpu = found.bytes["gpu"] / MIB, found.bytes["cpu"] / MIB
    assert on_gpu == total if gpu >= total else 15 / 16 * gpu <= on_gpu <= gpu
    left = total - on_gpu
    if left <= cpu:
        assert on_cpu == left and not found.capacities.ssd and found.capacities.cpu.auto
    else:
        assert 15 / 16 * min(cpu, ahead) <= on_cpu + 1e-9 and on_cpu <= min(cpu, ahead) and found.capacities.ssd
        assert [row[0] for row in found.rows] == ["gpu", "cpu", "ssd"]


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
    assert "3 GiB of the GPU is free, less 1 GiB for a step, as asked" in said.ok().err
    assert "all rows lie in memory: the directories stay empty" in said.err
    layout = tiering.open(tmp_path / "l").artifact
    assert all(layout.type_layout(t).rows("gpu") == layout.type_layout(t).num_nodes for t in layout.feature_types)
    assert not (tmp_path / "d").exists()


def test_more_than_a_gpu_has(reordered, tmp_path, gpu):
    with pytest.raises(InputError, match="gpu: expected at most the 8 GiB that a GPU here has, found 9GiB"):
        pipeline.layout(reordered, tmp_path / "l", gpu="9GiB", cpu="10%")


def test_without_a_gpu(reordered, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is none")
    with pytest.raises(CapabilityError, match=r"gpu: auto .* give a size such as 8GiB, .*there is none"):
        pipeline.layout(reordered, tmp_path / "l", gpu="auto")
    layout = pipeline.layout(reordered, tmp_path / "l")
    assert all(layout.type_layout(t).rows("cpu") == layout.type_layout(t).num_nodes for t in layout.feature_types)


def test_rows_left_over(tiering_cli, reordered, tmp_path, monkeypatch):
    """Nothing is free: without a directory the bytes that lack are named; with one all rows go there."""
    monkeypatch.setattr("tiering.pipeline.sizes.available_memory", lambda: 0)
    command = ("layout", reordered.path, "--out", tmp_path / "l")
    tiering_cli(*command).refused("feature data find no room in memory", "--ssd DIR", "--cpu 100%")
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
