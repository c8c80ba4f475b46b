"""The GPU benchmarks run, tiny, on a simulated device, so that the first run on a GPU is none of the scripts' first.

Times mean nothing there, and no ratio is asserted.
"""

from __future__ import annotations

import contextlib
import io
import json

import pytest

torch = pytest.importorskip("torch")


from benchmarks import __main__ as program  # noqa: E402
from benchmarks.gpu import page  # noqa: E402
from benchmarks.gpu.sampling import SECTORS  # noqa: E402
from benchmarks.harness import Spent  # noqa: E402
from tiering.layout.cost_model import read_access_costs  # noqa: E402

GPU = program.gpu_names()
TINY = ["--scale", "9", "--edges", "4000", "--repeats", "2", "--size", "256KiB", "--seconds", "0.01"]
TINY += ["--row-bytes", "64", "--threads", "1"]
SIZES = [512, 1024, 1536, 2408, 4096]


@pytest.fixture
def on_gpu(gpu, in_process, bench):
    """Runs one benchmark; its results."""

    def run(name, *options):
        report = bench(name, *TINY, *options)
        assert report["machine"]["gpu"]["multiprocessors"] == 8
        assert report["machine"]["gpu"]["cuda"]["tiering"] == "13.0"
        for result in report["benchmarks"]:
            assert result["name"] == name
            assert result["rate"] > 0 and len(result["seconds"]) == 2
            for peer in result["peers"]:
                if peer["name"].startswith("reference kernel"):
                    assert "this one is simulated" in peer["note"]
                else:
                    assert len(peer["seconds"]) == 2 and peer["ratio"] > 0
        return report["benchmarks"]

    return run


@pytest.fixture
def in_process(monkeypatch):
    """Stages that prepare the graph run in this process: starting another takes longer than the work."""
    from tiering.cli.main import main

    def run(sizes, command):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = main([*map(str, command), "--threads", "1"])
        assert code == 0, said.getvalue()
        return Spent(0.0, 0.0)

    monkeypatch.setattr("benchmarks.gpu.side.run_tiering", run)


def aims(result):
    return [peer.get("target") for peer in result["peers"] if peer["seconds"]]


def test_rows(on_gpu):
    results = on_gpu("gpu-rows")
    about = [result["parameters"] for result in results]
    assert [each["row_bytes"] for each in about] == [size for size in SIZES for _ in range(5)]
    assert [each["on_gpu"] for each in about[:5]] == [0, 0, 0, 0.1, 1]
    for each, result in zip(about, results, strict=True):
        whole = each["row_bytes"] != 2408 and each["where"] == "table on a page"
        wanted = {0: [3.0, 0.95 if whole else 0.9], 0.1: [1 / 1.1], 1: [1.0, 0.85]}
        assert aims(result) == wanted[each["on_gpu"]]
        assert {0: 0, 0.1: pytest.approx(0.5, abs=0.4), 1: 1}[each["on_gpu"]] == each["from_gpu"]
        assert each["sms"] == (0 if each["on_gpu"] == 1 else 1) and each["of_sms"] == 8


@pytest.mark.slow
def test_sampling(on_gpu):
    results = on_gpu("gpu-sampling")
    assert [result["parameters"]["adjacency_on_gpu"] for result in results] == [0, 0.1, 1]
    assert len({result["amount"] for result in results}) == 1
    assert [aims(result) for result in results] == [[None, None, 1 / 1.3], [None, None, 1 / 1.3], [15.0, None]]
    assert [result["peers"][-1]["name"] == SECTORS for result in results] == [True, True, False]
    assert [result["parameters"]["over_link"] == "0 B" for result in results] == [False, False, True]


@pytest.mark.slow
def test_epochs(on_gpu, monkeypatch):
    monkeypatch.setattr("benchmarks.gpu.epochs.HOT", (0, 10))
    none, tenth = on_gpu("gpu-epoch")
    assert [none["parameters"]["hot"], tenth["parameters"]["hot"]] == ["0%", "10%"]
    assert aims(none) == [2.5, None] and aims(tenth) == [1.6, 4.0, None]
    assert none["parameters"]["from_cpu"] == 1 and "from_gpu" not in none["parameters"]
    about = tenth["parameters"]
    assert about["from_gpu"] > 0.1 and abs(about["from_gpu"] + about["from_cpu"] - 1) < 0.001
    (result,) = on_gpu("gpu-ssd")
    assert len(result["peers"]) == 2
    assert all(result["parameters"][f"from_{tier}"] > 0 for tier in ("gpu", "cpu", "ssd"))


@pytest.mark.slow
def test_profile(gpu, in_process, bench):
    (result,) = bench("gpu-profile", *TINY)["benchmarks"]
    assert result["heads"] == ["kernel", "calls", "ms", "us a call", "share"]
    times = [row[2] for row in result["rows"][:-1]]  # the last row has what is left
    assert times == sorted(times, reverse=True) and sum(row[4] for row in result["rows"]) == pytest.approx(1)
    assert any("addmm" in row[0] for row in result["rows"]) and result["parameters"]["epoch_seconds"] > 0


def test_without_a_gpu(tmp_path, monkeypatch, capsys, bench):
    monkeypatch.setattr("tiering.cuda.unavailable", lambda: "there is no NVIDIA GPU")
    for name in GPU:
        assert program.main([name, *TINY, "--dir", str(tmp_path)]) == 1
        assert f"error: {name}: device='cuda': there is no NVIDIA GPU" in capsys.readouterr().err
    assert program.main(["gpu", "--docs", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: device='cuda': there is no NVIDIA GPU")
    assert not list(tmp_path.iterdir())
    few = {name: program.BENCHMARKS[name] for name in ("memory-copy", "gpu-epoch")}
    monkeypatch.setattr(program, "BENCHMARKS", few)
    report = bench(*TINY)
    assert "gpu-epoch: skipped: device='cuda': there is no NVIDIA GPU" in capsys.readouterr().err
    assert [each["name"] for each in report["benchmarks"]] == ["copy"]


@pytest.mark.slow
def test_times_are_written_as_layout_reads_them(on_gpu, tmp_path, monkeypatch):
    def longer(result):
        about = result.parameters
        if "rows" in about:
            return about["rows"] * (2e-9 + 4e-11 * about["row_bytes"])
        return 3e-9 * about["lists"] + 1e-9 * about["entries"]

    monkeypatch.setattr("benchmarks.gpu.times.more", longer)  # a simulated link is as fast as no link
    results = on_gpu("gpu-times", "--gpu-times-out", tmp_path / "times.json")
    assert len(results) == 5 + 4
    times = read_access_costs(tmp_path / "times.json")
    assert times.source.startswith("measured on ")
    assert (times.feature_base, times.feature_per_byte) == pytest.approx((2e-9, 4e-11))
    assert (times.list_seconds, times.neighbour_seconds) == pytest.approx((3e-9, 1e-9))


@pytest.mark.slow
def test_report_measures_once_and_writes_the_page(gpu, in_process, tmp_path):
    place = tmp_path / "gpu.md"
    place.write_text(f"before\n{page.BEGIN}\nnothing yet\n{page.END}\nafter\n")
    options = ["--dir", str(tmp_path), "--docs", str(tmp_path), "--scale", "9", "--edges", "4000", "--repeats", "2"]
    options += ["--size", "262144", "--row-bytes", "64", "--seconds", "0.01", "--threads", "1"]
    assert program.main(["gpu-rows", "gpu-sampling", *options]) == 0
    (file,) = (tmp_path / "benchmarks").iterdir()
    first = file.read_text()
    assert program.main(["gpu-sampling", *options]) == 0
    assert json.loads(file.read_text()) == json.loads(first)
    text = place.read_text()
    assert page.tables(json.loads(first)) in text and text.startswith("before\n") and text.endswith("after\n")
    assert "nothing yet" not in text and "| 4096 | 0.1 |" in text and "`gpu-sampling`" in text
