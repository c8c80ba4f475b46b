"""The experiment that says where sampling's time goes still builds and runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_steps_are_timed():
    script = Path(__file__).with_name("sampling_cost.py")
    done = subprocess.run([sys.executable, script, "10", "--json"], capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)
    assert found["edges"] > found["frontier_nodes"] > 0
    assert all(found[step] > 0 for step in ("draw", "ids plain", "unique hash ahead", "sampler"))
