"""What the GPU benchmarks say of copies, pages, settings and latencies; tiny, on a simulated device."""

from __future__ import annotations

import json
import sys

import pytest

torch = pytest.importorskip("torch")


from benchmarks.gpu import fill, sweep  # noqa: E402
from benchmarks.harness import Sizes  # noqa: E402
from tiering.errors import InternalError  # noqa: E402

TINY = ["--repeats", "2", "--size", "256KiB", "--seconds", "0.001", "--row-bytes", "64", "--threads", "1"]
FEW = [sweep.Case(sms=1), sweep.Case(sms=1, large=True, pages="small"), sweep.Case(512, 4, 1024, False, "ascending")]


@pytest.fixture
def table(gpu, bench):
    """Runs one benchmark that reports a table; its rows by head, and its parameters."""

    def run(name, *options):
        (found,) = bench(name, *TINY, *options)["benchmarks"]
        assert found["name"] == name
        return [dict(zip(found["heads"], row, strict=True)) for row in found["rows"]], found["parameters"]

    return run


def test_ceilings(table):
    rows, about = table("gpu-ceilings")
    assert [row["copied"] for row in rows] == ["host to device", "device to host", "device to device"]
    assert all(row["bytes"] == "64 KiB" and 0 < row["least GB/s"] <= row["GB/s"] <= row["most GB/s"] for row in rows)
    assert about["page"] == "4 KiB" and about["huge_pages"] in ("always", "madvise", "never", "not known")
    assert about["on_huge_pages"] == 0  # too small a table to ask for them


def test_fill_beside_kvikio(gpu, bench, monkeypatch):
    """Without kvikio its side says why; one that reads other bytes is refused."""
    monkeypatch.setitem(sys.modules, "kvikio.cufile", None)
    (found,) = bench("gpu-fill", *TINY)["benchmarks"]
    (peer,) = found["peers"]
    assert found["parameters"]["bytes"] == 256 << 10 and len(found["seconds"]) == 2
    assert peer["name"] == "kvikio" and "kvikio cannot be imported" in peer["note"] and not peer["seconds"]
    monkeypatch.setattr(fill, "_gds_state", lambda: "here")
    monkeypatch.setattr(fill, "_by_kvikio", lambda: lambda *request: None)
    with pytest.raises(InternalError, match="kvikio read other bytes than the file has, from row 0 on"):
        fill.fill(Sizes(repeats=1, image_bytes=64 << 10))
    monkeypatch.setattr(fill, "_by_kvikio", lambda: fill.fill_memory)
    (found,) = bench("gpu-fill", *TINY)["benchmarks"]
    assert len(found["peers"][0]["seconds"]) == 2


def test_sweep_keeps_what_it_measured(table, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "plan", lambda sms, of: FEW[:2])
    kept = tmp_path / "kept" / "sweep.json"
    rows, _ = table("gpu-sweep", "--sweep-out", kept)
    assert [row["table"] for row in rows] == ["256 KiB", "4 MiB"] and rows[1]["pages"] == "small"
    assert all(row["share of copy"] == pytest.approx(row["GB/s"] / row["copy GB/s"], rel=10) for row in rows)
    before = json.loads(kept.read_text())["results"]
    monkeypatch.setattr(sweep, "plan", lambda sms, of: FEW)
    again, _ = table("gpu-sweep", "--sweep-out", kept)
    assert [list(row.values()) for row in again[:2]] == list(before.values())
    assert [again[2][head] for head in sweep.HEADS[:5]] == [512, 4, 1024, "default", "ascending"]


def test_sweep_goes_on_where_memory_cannot_be_had(table, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sweep, "plan", lambda sms, of: FEW[:2])
    monkeypatch.setattr(sweep, "available_memory", lambda: 512 << 10)
    kept = tmp_path / "kept" / "sweep.json"
    rows, about = table("gpu-sweep", "--sweep-out", kept)
    assert len(rows) == 1 and about["not_measured"] == ["a table of 512 KiB: 512 KiB of host memory are free"]
    assert "not measured: a table of 512 KiB" in capsys.readouterr().err
    assert list(json.loads(kept.read_text())["results"]) == [FEW[0].name]  # the other is tried again


def test_latency(table):
    rows, about = table("gpu-latency")
    assert [(row["rows"], row["SMs"]) for row in rows] == [
        *((where, sms) for where in ("host, ours", "GPU, ours") for sms in (1, 3, "all")),
        ("GPU, torch index_select", "-"),
    ]
    for row in rows:
        assert row["p50 us"] > 0 and row["during GEMMs: p50 us"] > 0 and row["GEMMs slower by"] > 0
    assert about["matrices"] == 64 and about["rows"] == 512
