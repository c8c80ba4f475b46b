"""The GPU benchmarks run, tiny, on a simulated device, so that the first run on a GPU is none of the scripts' first.

Times mean nothing there, and no ratio is asserted.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # under pytest's importlib mode
sys.path.insert(0, str(Path(__file__).parent))

import gpu as script
from simulated_gpu import lend

from tiering.bench.access_fit import fit_access_times
from tiering.bench.gpu_layouts import HeldLists, layouts
from tiering.bench.gpu_mixed import power_law_task
from tiering.bench.gpu_rows import RowTask
from tiering.bench.gpu_times import _more
from tiering.bench.harness import Comparison, Peer
from tiering.bench.registry import BENCHMARKS
from tiering.bench.sizes import Sizes
from tiering.errors import InputError
from tiering.placement.access_times import read_access_times

GPU = [benchmark.name for benchmark in BENCHMARKS if benchmark.gpu]
TINY = ["--scale", "9", "--edges", "4000", "--repeats", "2", "--size", "256KiB", "--seconds", "0.01"]
TINY += ["--row-bytes", "64", "--threads", "1"]


@pytest.fixture
def gpu(monkeypatch):
    """A simulated GPU; what a benchmark leaves on it is a failure."""
    yield from lend(monkeypatch)


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
    found = tiering_cli("bench", "gpu-local-rows", *TINY, "--sms", sms)
    assert found.code == 1 and "error: --sms: " in found.err and words in found.err


def test_table_for_people(gpu, tiering_cli):
    out = tiering_cli("bench", "gpu-local-rows", *TINY).ok().out
    assert "aim 0.85" in out and "8 SMs" in out and "torch index_select" in out


def test_times_are_written_as_layout_reads_them(bench, tmp_path, monkeypatch):
    def more(result):
        about = result.parameters
        if "rows" in about:
            return about["rows"] * (2e-9 + 4e-11 * about["row_bytes"])
        return 3e-9 * about["lists"] + 1e-9 * about["entries"]

    monkeypatch.setattr("tiering.bench.gpu_times._more", more)  # a simulated link is as fast as no link
    results = bench("gpu-times", "--gpu-times-out", tmp_path / "times.json")
    assert len(results) == 5 + 4
    found = read_access_times(tmp_path / "times.json")
    assert found.source.startswith("measured on ")
    assert (found.feature_base, found.feature_per_byte) == pytest.approx((2e-9, 4e-11))
    assert (found.list_seconds, found.neighbour_seconds) == pytest.approx((3e-9, 1e-9))


def test_times_out_of_nothing_are_refused(gpu, tiering_cli, tmp_path):
    words = ("--gpu-times-out", "tiering bench gpu-times")
    tiering_cli("bench", "copy", *TINY, "--gpu-times-out", tmp_path / "times.json").refused(*words)


def test_without_names_gpu_benchmarks_are_passed_over(tiering_cli, monkeypatch):
    few = [each for each in BENCHMARKS if each.name in ("copy", "gpu-epoch")]
    monkeypatch.setattr("tiering.bench.registry.BENCHMARKS", few)
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is no NVIDIA GPU")
    found = tiering_cli("bench", *TINY, "--json").ok()
    assert "gpu-epoch: skipped: device='cuda': there is no NVIDIA GPU" in found.err
    assert [each["name"] for each in found.json["benchmarks"]] == ["copy"]
    assert "gpu" not in found.json["machine"]


def test_seconds_more_are_those_of_a_pass():
    result = Comparison("x", {"passes": 4}, [1.0, 2.0, 9.0], [Peer("host", [3.0, 5.0, 10.0])], 1, "B")
    assert _more(result) == 0.5


@pytest.mark.parametrize("more", [(2e-9, 4e-11), (0.0, 4e-11), (2e-9, 0.0)])
def test_fit_finds_what_was_put_in(more):
    rows = [(size, more[0] + more[1] * size) for size in (512, 1024, 2408)]
    lists = [(n, m, 3e-9 * n + 1e-9 * m) for n, m in ((1000, 1500), (5000, 40_000), (300, 600))]
    found = fit_access_times(rows, lists, "a GPU")
    assert (found.feature_base, found.feature_per_byte) == pytest.approx(more, abs=1e-14)
    assert (found.list_seconds, found.neighbour_seconds) == pytest.approx((3e-9, 1e-9))


def test_fit_gives_nothing_below_zero():
    rows = [(512, 1e-9), (4096, 9e-8)]  # a line through both begins below zero
    found = fit_access_times(rows, [(10, 10, -1.0), (20, 30, -2.0)], "a GPU")
    assert found.feature_base == 0 < found.feature_per_byte
    assert found.list_seconds == found.neighbour_seconds == 0
    with pytest.raises(InputError, match="no access was slower"):
        fit_access_times([(512, -1e-9), (4096, -1e-9)], [(10, 10, -1.0)], "a GPU")


def test_ids_come_once_and_follow_the_power_law():
    task = RowTask.of(1 << 20, 64, 0)
    assert np.unique(task.ids).size == task.ids.size >= 0.9 * task.rows
    assert (np.diff(RowTask.of(1 << 20, 64, 0, "ascending").ids, axis=1) > 0).all()
    mixed = power_law_task(1 << 20, 64, 0)
    assert all(np.unique(batch).size == batch.size for batch in mixed.ids)
    assert np.count_nonzero(mixed.ids < task.rows // 10) > mixed.ids.size // 4
    with pytest.raises(InputError, match="expected at least 8 rows of 4096 B"):
        RowTask.of(7 * 4096, 4096, 0)


def test_torch_sampler_draws_sets_of_neighbours_evenly(gpu):
    from tiering.bench.gpu_torch_sampler import TorchSampler
    from tiering.loader.gpu import device

    degrees = np.array([6, 3, 0, 2])
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.concatenate([[9, 8, 7, 6, 5, 4], [0, 4, 9], [1, 3]]).astype(np.int32)
    indptr = np.concatenate([indptr, np.full(6, indptr[-1])])
    sampler = TorchSampler(device.open_device(0), (indptr, indices), [3, 2], 0)
    counts = np.zeros(10, int)
    for _ in range(2000):
        nodes, (first, second) = sampler.sample(torch.tensor([0, 1, 2]))
        nodes, (src, dst) = nodes.numpy(), first.numpy()
        assert nodes[:3].tolist() == [0, 1, 2] and np.unique(nodes).size == nodes.size
        drawn = nodes[src[dst == 0]]
        assert np.unique(drawn).size == 3 and set(drawn) <= set(indices[:6].tolist())
        assert set(nodes[src[dst == 1]]) == {0, 4, 9} and not (dst == 2).any()
        assert np.bincount(second[1].numpy(), minlength=nodes.size)[:3].tolist() == [2, 2, 0]
        counts[drawn] += 1
    assert (np.abs(counts[4:] - 1000) < 130).all()  # 130: more than five deviations


def test_lists_are_held_up_to_a_share_of_their_bytes(gpu, in_process, tmp_path):
    sizes = Sizes(scale=8, edges=3000, threads=1, folder=tmp_path)
    with layouts(sizes, with_rows=False) as made:
        path = made.make("layout", "--cpu", "100%")
        indptr, indices = HeldLists.open(path).graph.csc()
        keys = HeldLists.open(path).graph.new_to_old("node")
        total = 8 * indptr.size + indices.nbytes + keys.nbytes
        for share in (0.0, 0.1, 0.5, 1.0):
            prefix = HeldLists.holding(path, share).adjacency_prefix()
            columns, more = prefix.columns, min(prefix.columns + 1, indptr.size - 1)
            held = (8 * (columns + 1) + 4 * int(indptr[columns]) + keys[:columns].nbytes) if columns else 0
            after = 8 * (columns + 2) + 4 * int(indptr[more]) + keys[:more].nbytes
            assert held == prefix.bytes and held <= share * total < after
        assert columns == indptr.size - 1
        assert HeldLists.holding(path, 0.1).digest != HeldLists.holding(path, 0.5).digest


def test_script_measures_once_and_writes_the_page(gpu, in_process, tmp_path, capsys):
    page = tmp_path / "gpu.md"
    page.write_text(f"before\n{script.BEGIN}\nnothing yet\n{script.END}\nafter\n")
    options = ["--dir", str(tmp_path), "--docs", str(tmp_path), "--scale", "9", "--edges", "4000", "--repeats", "2"]
    options += ["--table-bytes", "262144", "--row-bytes", "64", "--seconds", "0.01", "--threads", "1"]
    assert script.main(["gpu-local-rows", "gpu-sampling", *options]) == 0
    (file,) = (tmp_path / "benchmarks").iterdir()
    first = file.read_text()
    assert script.main(["gpu-sampling", *options]) == 0
    assert file.read_text() == first
    text = page.read_text()
    assert script.tables(json.loads(first)) in text and text.startswith("before\n") and text.endswith("after\n")
    assert "nothing yet" not in text and "| 4096 | 8 |" in text and "`gpu-sampling`" in text


def test_script_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is no NVIDIA GPU")
    assert script.main(["--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: device='cuda': there is no NVIDIA GPU")


def test_tables_say_what_was_aimed_at_and_met():
    peers = [
        Peer("copying", [0.9, 1.0], target=0.95),
        Peer("torch", [4.0, 4.0], target=3.0),
        Peer("dgl", note="absent"),
    ]
    about = {"row_bytes": 512, "ids": "scrambled", "where": "table on a page", "sms": 13}
    result = Comparison("gpu-host-rows", about, [1.0, 1.0], peers, 25e9, "B").to_json()
    gpu = {"name": "A GPU", "multiprocessors": 132, "memory_bytes": 2**37, "driver": {"driver_version": "580.1"}}
    gpu["cuda"] = {"driver serves": "13.0", "tiering": "13.0", "torch": "13.0"}
    machine = {"gpu": gpu, "versions": {"torch": "2.13.0"}, "processor": "A CPU", "cores": 16}
    text = script.tables({"machine": machine, "results": {"gpu-host-rows": [result]}})
    row = "| 512 | scrambled | table on a page | 13 | 25 GB/s |"
    assert f"{row} copying | 26.3 GB/s | 0.95 (0.90 .. 1.00) | 0.95, met |" in text
    assert f"{row} torch | 6.25 GB/s | 4.00 (4.00 .. 4.00) | 3.00, met |" in text
    assert f"{row} dgl | - | absent |  |" in text
    assert "driver_version 580.1" in text and set(script.SETTINGS) == set(GPU)
