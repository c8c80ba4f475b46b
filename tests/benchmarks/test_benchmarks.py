"""Every benchmark that needs no GPU runs, tiny, and reports what it says; the harness takes turns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks.harness import Sizes, compare
from benchmarks.sampling import uniform
from benchmarks.workers import Worker
from tiering.errors import CapabilityError, InternalError

TINY = ["--scale", "10", "--edges", "20000", "--repeats", "1", "--size", "4MiB", "--seconds", "0.05"]
TINY += ["--features", "2MiB", "--row-bytes", "300", "--nodes", "1000"]
FAKE_PEER = """
from loop import serve
serve(lambda library, folder: ("fake", {"in one batch": lambda: 12, "batches side by side": lambda: 12}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in program.BENCHMARKS if name not in program.gpu_names()])
def test_each_benchmark_runs_and_reports_rates(bench, name):
    report = bench(name, *TINY)
    assert report["machine"]["cores"] >= 1
    assert report["benchmarks"]
    for result in report["benchmarks"]:
        assert result["rate"] > 0
        for peer in result["peers"]:
            assert ("ratio" in peer) != bool(peer["note"] and not peer["seconds"])


def test_an_unknown_name_is_refused(capsys):
    assert program.main(["nonsense"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "nonsense" in said and "coo-to-csc" in said


def test_ratio_is_taken_turn_by_turn():
    turns = iter(range(100))
    result = compare("x", lambda: next(turns), {"peer": lambda: next(turns), "absent": "not installed"},
                     amount=10, unit="edges", repeats=3)  # fmt: skip
    peer, absent = result.peers
    assert next(turns) == 7  # one warm-up, then three turns of each side
    result.ours.seconds, peer.seconds = [1.0, 2.0, 4.0], [2.0, 8.0, 8.0]
    result.ours.cpu_seconds, peer.cpu_seconds = [1.0, 1.0, 1.0], [3.0, 5.0, 4.0]
    (entry, _) = result.to_json()["peers"]
    assert (entry["ratio"], entry["ratio_min"], entry["ratio_max"]) == (2.0, 2.0, 4.0)
    assert (entry["cpu_ratio"], entry["cpu_ratio_min"], entry["cpu_ratio_max"]) == (4.0, 3.0, 5.0)
    assert absent.seconds == [] and absent.note == "not installed"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sampling_beside_dgl():
    pytest.importorskip("dgl")
    report = uniform(Sizes(scale=8, edges=2000, repeats=2)).to_json()
    peers = {peer["name"]: peer for peer in report["peers"]}
    ran = [name for name in peers if name.startswith("dgl")]
    assert report["amount"] > 0 and len(ran) == 2 and all("(fused)" in name for name in ran)
    assert all(len(peers[name]["seconds"]) == 2 and peers[name]["cpu_ratio"] > 0 for name in ran)
    assert "--graphbolt-python" in peers["graphbolt"]["note"]


def test_peers_that_are_not_there_are_said(tmp_path):
    (tmp_path / "empty").mkdir()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    sizes = Sizes(scale=8, edges=2000, repeats=1, dgl_python=bare, graphbolt_python=Path("/nowhere/python"))
    dgl, graphbolt = uniform(sizes).peers
    assert "ModuleNotFoundError" in dgl.note and "No such file" in graphbolt.note


@pytest.fixture
def peer(tmp_path):
    file = tmp_path / "peers.py"
    file.write_text(f"import sys; sys.path.insert(0, {str(Path(program.__file__).with_name('programs'))!r}){FAKE_PEER}")
    return file


def test_another_process_takes_turns(peer, tmp_path):
    with Worker(sys.executable, peer, "dgl", tmp_path) as worker:
        assert worker.name == "fake" and worker.works == ["in one batch", "batches side by side"]
        assert [worker.turn(work).result for work in worker.works] == [12, 12]
        with pytest.raises(CapabilityError, match="fake, nothing: KeyError"):
            worker.turn("nothing")


def test_a_peer_that_samples_fewer_edges_is_not_timed(peer, monkeypatch):
    monkeypatch.setattr("benchmarks.workers.PROGRAMS", peer.parent)
    with pytest.raises(InternalError, match="number of edges"):
        uniform(Sizes(scale=8, edges=2000, repeats=1))
