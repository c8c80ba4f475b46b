"""Memory groups hold a process to their limit, or say why there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.memory_group import memory_group
from tiering.errors import CapabilityError


def test_the_kernel_holds_a_process_to_its_limit():
    code = "data = bytearray(200 << 20)"
    try:
        with memory_group(64 << 20) as group:
            done = subprocess.run([sys.executable, "-c", code], preexec_fn=group.enter, check=False)
            assert done.returncode == -9 and group.failures() > 0
    except CapabilityError as error:
        pytest.skip(str(error))
    assert not group.path.exists()


def test_why_there_is_none_is_said(tmp_path):
    with pytest.raises(CapabilityError, match="no hierarchy"), memory_group(1 << 20, tmp_path, tmp_path / "own"):
        pass
