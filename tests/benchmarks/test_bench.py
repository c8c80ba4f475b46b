"""`tiering bench` runs every benchmark, tiny, so that none can rot; no figure is asserted."""

from __future__ import annotations

import pytest

from tiering.bench.harness import compare
from tiering.bench.registry import BENCHMARKS

TINY = ["--scale", "10", "--edges", "20000", "--repeats", "1", "--size", "4MiB", "--seconds", "0.05"]
TINY += ["--features", "2MiB", "--row-bytes", "300", "--nodes", "1000"]


@pytest.mark.parametrize("name", [benchmark.name for benchmark in BENCHMARKS if not benchmark.gpu])
def test_each_benchmark_runs_and_reports_rates(tiering_cli, tmp_path, name):
    report = tiering_cli("bench", name, *TINY, "--dir", tmp_path, "--json").ok().json
    assert report["machine"]["cores"] >= 1
    (result,) = report["benchmarks"]
    assert result["rate"] > 0
    for peer in result["peers"]:
        assert ("ratio" in peer) != bool(peer["note"] and not peer["seconds"])


def test_table_and_list(tiering_cli, tmp_path):
    assert "faster by" in tiering_cli("bench", "copy", *TINY).ok().out
    assert all(benchmark.name in tiering_cli("bench", "--list").ok().out for benchmark in BENCHMARKS)


def test_an_unknown_name_is_refused(tiering_cli):
    tiering_cli("bench", "nonsense").refused("nonsense", "coo-to-csc")


def test_ratio_is_taken_pair_by_pair():
    turns = iter(range(100))
    result = compare("x", lambda: next(turns), {"peer": lambda: next(turns), "absent": "not installed"},
                     amount=10, unit="edges", repeats=3)  # fmt: skip
    peer, absent = result.peers
    assert next(turns) == 7  # one warm-up, then three turns of each side
    result.seconds, peer.seconds = [1.0, 2.0, 4.0], [2.0, 8.0, 8.0]
    assert result.ratios(peer) == [2.0, 4.0, 2.0]
    assert result.to_json()["peers"][0]["ratio"] == 2.0
    assert absent.seconds == [] and absent.note == "not installed"
