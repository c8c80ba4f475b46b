"""The experiment that says where sampling's time goes still builds and runs, and writes its table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_steps_are_timed(repository, tmp_path):
    shutil.copy(repository / "docs" / "sampling.md", tmp_path)
    script = Path(__file__).with_name("sampling_cost.py")
    subprocess.run([sys.executable, script, "10", "--docs", tmp_path], capture_output=True, check=True)
    (found,) = json.loads((tmp_path / "benchmarks" / "sampling-cost.json").read_text())["results"]
    assert found["edges"] > found["frontier_nodes"] > 0
    assert all(found[step] > 0 for step in ("draw", "ids plain", "unique hash ahead", "sampler"))
    assert "| unique hash ahead |" in (tmp_path / "sampling.md").read_text()
