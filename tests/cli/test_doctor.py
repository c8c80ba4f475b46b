"""`tiering doctor`: what it says of this machine, of machines that lack something, and of disks."""

from __future__ import annotations

import json
import os
import resource

import pytest
import simulated_gpu

from tiering.pipeline import doctor


@pytest.fixture
def examined(tiering_cli):
    """Runs the command with ``--json``; findings by name."""

    def run(*options):
        report = tiering_cli("doctor", *options, "--seconds", "0.05", "--json").ok().json
        return {finding["name"]: finding for finding in report["findings"]}

    return run


def test_says_something_of_everything(tiering_cli, examined, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = examined()
    assert list(found) == ["memory", "io_uring", "locked memory", "gpu", "torch"]
    assert 0 < found["memory"]["figures"]["available"] <= found["memory"]["figures"]["total"]
    lines = tiering_cli("doctor").ok().out.splitlines()
    for name, finding in found.items():
        assert any(line.startswith(name) for line in lines)
        assert finding["error"] is None
        assert not finding["advice"] or f"{name}: {finding['advice']}" in lines
    assert list(tmp_path.iterdir()) == []


def test_disks_are_measured_and_left_as_they_were(examined, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    found = examined("--ssd", folders[0], "--ssd", folders[1], "--size", "3MiB")
    for folder in folders:
        figures = found[f"ssd {folder}"]["figures"]
        assert figures["reads_per_second"] > 0 and figures["bytes_per_second"] > 0
        assert figures["depth"] >= 128 and 0 < figures["peak_share"] <= 1 and figures["latency"] > 0
        assert (
            f"queue depth of {figures['depth']} reaches {figures['peak_share']:.0%}" in found[f"ssd {folder}"]["text"]
        )
        assert figures["size"] == 3 << 20 and figures["engine"] in ("io_uring", "threads")
        assert bool(found[f"ssd {folder}"]["advice"]) == (not figures["direct"])
        assert list(folder.iterdir()) == []


def test_the_file_has_no_name_while_it_is_read(examined, tmp_path, monkeypatch):
    seen = []
    plain = doctor.random_reads
    monkeypatch.setattr(
        doctor, "random_reads", lambda *given: (seen.append(list(tmp_path.iterdir())), plain(*given))[1]
    )
    examined("--ssd", tmp_path, "--size", "1MiB")
    assert seen and not any(seen)


def test_at_most_a_fourth_of_what_is_free_is_written(examined, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "disk_free", lambda folder: 10 << 20)
    assert examined("--ssd", tmp_path)[f"ssd {tmp_path}"]["figures"]["size"] == 2 << 20


def test_a_full_disk_is_refused_before_anything_is_written(tiering_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "disk_free", lambda folder: 3 << 20)
    tiering_cli("doctor", "--ssd", tmp_path).refused(str(tmp_path), "3 MiB free")


def test_a_directory_that_cannot_be_used_fails_after_the_report(tiering_cli, tmp_path):
    found = tiering_cli(
        "doctor", "--ssd", tmp_path / "none", "--ssd", tmp_path, "--size", "1MiB", "--seconds", "0.05", "--json"
    )
    assert found.code == 1 and f"{tmp_path / 'none'}: no such directory" in json.loads(found.err)["error"]["message"]
    first, second = json.loads(found.out)["findings"][-2:]
    assert "no such directory" in first["error"] and second["figures"]["reads_per_second"] > 0


def test_a_disk_that_fails_is_one_line(tiering_cli, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    tiering_cli("doctor", "--ssd", tmp_path).refused(str(tmp_path), "Input/output error")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_said(examined, monkeypatch):
    def no_package(name):
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.native, "uring_unavailable", lambda: "io_uring is forbidden here, ask for it")
    monkeypatch.setattr(doctor, "version", no_package)
    monkeypatch.setattr(doctor.cuda, "_found", None)
    monkeypatch.setattr(doctor.cuda, "_missing", "No module named 'tiering._cuda'")
    found = examined()
    assert found["io_uring"]["advice"] == "io_uring is forbidden here, ask for it"
    assert "pip install" in found["torch"]["advice"]
    assert "nvcc" in found["gpu"]["advice"] and "not built" in found["gpu"]["text"]
    assert found["gpu"]["figures"]["devices"] == []


def test_a_control_group_is_said(examined, monkeypatch):
    monkeypatch.setattr(doctor, "total_memory", lambda: 1 << 30)
    found = examined()["memory"]
    assert found["figures"]["limited"] and "1 GiB allowed by a control group" in found["text"]


@pytest.mark.extra
def test_a_gpu_and_what_it_locks(examined, monkeypatch):
    lent = simulated_gpu.lend(monkeypatch)
    simulator = next(lent)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (8 << 20, 8 << 20))
    for writes, text in (("none", "not possible"), ("flushed", "drives after a flush"), ("ordered", "drives in order")):
        simulator.set_drive_writes(writes)
        found = examined()
        assert found["gpu"]["figures"]["devices"][0]["drive_writes"] == writes
        assert text in found["gpu"]["text"].split("engine='bam': ")[1]
    (device,) = found["gpu"]["figures"]["devices"]
    assert device["memory"] == 1 << 30 and found["gpu"]["figures"]["build_cuda"] == "13.0"
    assert found["gpu"]["advice"] == "" and "ulimit -l" in found["locked memory"]["advice"]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert examined()["locked memory"]["figures"] == {"limit": None}
