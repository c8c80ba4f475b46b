"""Damaged graphs for every kernel of the core, under the sanitizers of addresses and of undefined behavior."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from campaign import Campaign

PROGRAM = Path("build", "cpp-address", "tests", "fuzz_adjacency")
"""What ``make fuzz-program`` builds."""


@pytest.mark.long
def test_fuzz(repository):
    subprocess.run(["make", "-s", "fuzz-program"], cwd=repository, check=True)

    def trial(luck: random.Random) -> str:
        environment = {**os.environ, "TIERING_FUZZ_SEED": str(luck.randrange(1 << 63)), "TIERING_FUZZ_SECONDS": "0"}
        ended = subprocess.run(
            [repository / PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-3000:]}"
        return "without a complaint"

    Campaign("fuzz").run(trial)
