"""The scripts behind the time of dry runs: the constants' fit, and predictions beside runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tiering.execution.costs import KERNELS


def run(script: Path, *arguments: object) -> str:
    command = [sys.executable, script, *arguments]
    return subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True).stdout


def test_every_constant_is_fitted(repository: Path) -> None:
    printed = run(repository / "tests/benchmarks/fit_kernels.py", "--edges", "30000", "--large", "12")
    assert {line.split('"')[1] for line in printed.splitlines() if "Kernel(" in line} == set(KERNELS) - {
        "column",
        "sweep run",
    }


def test_predictions_beside_runs(repository: Path, tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    script = repository / "tests/benchmarks/predictions.py"
    printed = run(script, "--edges", "30000", "--work", tmp_path, "--json", found, "reorder")
    results = json.loads(found.read_text())
    assert [each["stage"] for each in results] == ["import", "score", "reorder", "reorder", "layout"]
    for each in results:
        assert each["measured"]["seconds"] > 0
        assert 0 <= each["measured"]["disk_left"] - each["predicted"]["disk_left"] < 4096  # JSON apart
    assert len(printed.splitlines()) == 1 + len(results)
