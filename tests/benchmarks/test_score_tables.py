"""The script that makes the measured tables of docs/scores.md runs on the small generated graphs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_tables_of_generated_graphs(repository, tmp_path):
    shutil.copy(repository / "docs" / "scores.md", tmp_path)
    script = Path(__file__).with_name("score_tables.py")
    command = [sys.executable, script, "--small", "--docs", tmp_path, "--data", tmp_path]
    subprocess.run(command, capture_output=True, check=True)
    done = json.loads((tmp_path / "benchmarks" / "scores.json").read_text())
    assert list(done["tables"]) == ["rmat", "samplers", "hetero"]
    page = (tmp_path / "scores.md").read_text()
    assert "*oracle*" in page and "`hybrid` K=2" in page and "ssd" in page
