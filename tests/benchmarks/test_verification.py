"""The script that says what verification costs still runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import verification


@pytest.mark.slow
def test_every_stage_is_timed(tmp_path: Path) -> None:
    verification.make_inputs(tmp_path, 8, 2000)
    found = verification.measure(tmp_path, 1)
    assert set(found) == set(verification.stages(tmp_path))
    assert all(each["with"] > 0 and each["without"] > 0 for each in found.values())
