"""The GPU benchmarks run, tiny, on a simulated device, so that the first run on a GPU is none of the scripts' first.

Times mean nothing there, and no ratio is asserted.
"""

from __future__ import annotations

import contextlib
import gc
import io
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # under pytest's importlib mode

from simulated_gpu import install

from tiering.bench.gpu_layouts import HeldLists
from tiering.bench.registry import BENCHMARKS

GPU = [benchmark.name for benchmark in BENCHMARKS if benchmark.gpu]
TINY = ["--scale", "9", "--edges", "4000", "--repeats", "2", "--size", "256KiB", "--seconds", "0.01"]
TINY += ["--row-bytes", "64", "--threads", "1"]
HELD = ("allocations", "host", "registered", "ipc", "streams")


@pytest.fixture
def gpu(monkeypatch):
    """A simulated GPU; what a benchmark leaves on it is a failure."""
    pytest.importorskip("torch")
    simulator = install(monkeypatch)
    simulator.set_memory(1 << 30)
    simulator.set_registrable(1 << 40)
    gc.collect()
    before = {kind: simulator.live(kind) for kind in HELD}
    yield simulator
    gc.collect()
    assert {kind: simulator.live(kind) for kind in HELD} == before


@pytest.fixture
def in_process(monkeypatch):
    """Stages that prepare the graph run in this process: starting another takes longer than the work."""
    from tiering.cli.main import main

    def run(sizes, command):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main([*map(str, command), "--threads", "1"])
        assert code == 0, said.getvalue()
        return 0.0

    monkeypatch.setattr("tiering.bench.gpu_layouts.run_tiering", run)


@pytest.fixture
def bench(gpu, in_process, tiering_cli, tmp_path):
    """Runs one benchmark; its results."""

    def run(name, *options):
        report = tiering_cli("bench", name, *TINY, "--dir", tmp_path, *options, "--json").ok().json
        assert report["machine"]["gpu"]["multiprocessors"] == 8
        assert report["machine"]["gpu"]["cuda"]["tiering"] == "13.0"
        for result in report["benchmarks"]:
            assert result["name"] == name
            assert result["rate"] > 0 and len(result["seconds"]) == 2
            for peer in result["peers"]:
                assert len(peer["seconds"]) == 2 and peer["ratio"] > 0
        assert not list(tmp_path.glob("tiering-bench-*"))
        return report["benchmarks"]

    return run


def aims(result):
    return {peer["name"]: peer.get("target") for peer in result["peers"]}


def test_host_rows(bench):
    results = bench("gpu-host-rows")
    found = {(r["parameters"]["row_bytes"], r["parameters"]["ids"], r["parameters"]["where"]) for r in results}
    assert len(found) == len(results) == 15
    for result in results:
        about, (copy, torch) = result["parameters"], aims(result).values()
        whole = about["row_bytes"] != 2408 and about["where"] == "table on a page"
        assert (copy, torch) == (0.95 if whole else 0.9, 3.0)
        assert about["sms"] == 1 and about["of_sms"] == 8


def test_local_rows(bench):
    results = bench("gpu-local-rows")
    assert [r["parameters"]["row_bytes"] for r in results] == [512, 1024, 1536, 2408, 4096]
    assert all(list(aims(result).values()) == [0.85, 1.0] for result in results)


def test_mixed_rows(bench):
    results = bench("gpu-mixed-rows", "--sms", "3")
    for result in results:
        assert 0.1 < result["parameters"]["from_gpu"] < 0.9
        assert result["parameters"]["sms"] == 3
    assert len(results) == 5


def test_sampling(bench):
    results = bench("gpu-sampling")
    assert [result["parameters"]["adjacency_on_gpu"] for result in results] == [0, 0.1, 1]
    assert len({result["amount"] / result["parameters"]["passes"] for result in results}) == 1
    assert all(len(result["peers"]) == 2 for result in results)


def test_epoch(bench):
    (result,) = bench("gpu-epoch")
    assert len(result["peers"]) == 3
    about = result["parameters"]
    assert about["from_gpu"] > 0.1 and abs(about["from_gpu"] + about["from_cpu"] - 1) < 0.001


def test_ssd(bench):
    (result,) = bench("gpu-ssd")
    assert len(result["peers"]) == 2
    assert all(result["parameters"][f"from_{tier}"] > 0 for tier in ("gpu", "cpu", "ssd"))


def test_every_gpu_benchmark_is_refused_without_a_gpu(tiering_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is no NVIDIA GPU")
    for name in GPU:
        tiering_cli("bench", name, *TINY, "--dir", tmp_path).refused(name, "device='cuda': there is no NVIDIA GPU")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("sms", "words"), [("9", "expected auto or 0 .. 8"), ("many", "found many")])
def test_a_bound_that_cannot_be(gpu, tiering_cli, sms, words):
    tiering_cli("bench", "gpu-local-rows", *TINY, "--sms", sms).refused("--sms", words)
