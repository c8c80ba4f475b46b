"""Whether the oldest promised CUDA knows the instructions of the kernels: its PTX ISA, by the version of the text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ptx_program import Kernel

ISA = {"12.2": "8.2"}
"""PTX ISA of a version of CUDA."""


def test_kernels_are_of_the_isa_of_the_oldest_cuda(
    kernels: dict[str, dict[str, Kernel]], ptx_folder: Path, repository: Path, tmp_path: Path
) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("no ptxas on PATH: install CUDA 12.2 or newer")
    promised = re.search(r"TIERING_OLDEST_CUDA (\S+)\)", (repository / "ext/cmake/cuda.cmake").read_text())
    assert promised is not None
    for name in kernels:
        text, changed = (ptx_folder / f"{name}.ptx").read_text(), tmp_path / f"{name}.ptx"
        changed.write_text(re.sub(r"^\.version .*", f".version {ISA[promised[1]]}", text, flags=re.MULTILINE))
        subprocess.run(["ptxas", "-arch=sm_90", str(changed), "-o", str(tmp_path / "cubin")], check=True)
