"""Drives that BaM's libnvm brings up, on emulated registers: built and run where there is a checkout of BaM."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_emulated_drives(tmp_path):
    checkout = os.environ.get("TIERING_BAM_ROOT", "")
    if not checkout:
        pytest.skip("TIERING_BAM_ROOT names no checkout of BaM: git clone https://github.com/ZaidQureshi/bam")
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert cmake is not None
    options = ["TESTS=ON", "BINDINGS=OFF", "CUDA=OFF", "SIMULATOR=ON", "WERROR=ON", f"BAM_ROOT={checkout}"]
    subprocess.run(
        [cmake, "-S", str(ROOT / "ext"), "-B", str(tmp_path), *(f"-DTIERING_{option}" for option in options)],
        check=True,
    )
    programs = ["test_bam", "simulated_test_bam_gpu"]
    subprocess.run([cmake, "--build", str(tmp_path), "--target", *programs, "--parallel", "2"], check=True)
    for program in programs:
        subprocess.run([str(tmp_path / "tests-bam" / program)], check=True, timeout=60)
