"""Reference kernels of the GPU benchmarks: they compile, and compute what they should, on the processor here."""

from __future__ import annotations

import ctypes
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from benchmarks.gpu import nvme, reference  # noqa: E402
from benchmarks.gpu.peer_samplers import wrong_draw  # noqa: E402
from tiering.errors import CapabilityError  # noqa: E402


def test_wrong_draws_are_found():
    csc = np.array([0, 3, 5]), np.array([4, 5, 5, 1, 2])
    nodes, right = np.array([0, 1]), ([5, 5, 1, 2], [0, 0, 1, 1])

    def wrong(sources, destinations):
        return wrong_draw(csc, nodes, 2, np.array(sources), np.array(destinations))

    assert wrong(*right) == ""
    assert "node 0: expected 2 neighbors, found 1" in wrong([5, 1, 2], [0, 1, 1])
    assert "node 1: a neighbor that its list does not have" in wrong([5, 5, 1, 1], right[1])
    assert "node 1: a neighbor that its list does not have" in wrong([5, 5, 1, 9], right[1])


def test_what_the_compiler_says_is_said(tmp_path):
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(CapabilityError, match=r"cannot compile .*reference: no such architecture"):
        reference.compile_reference(str(compiler), "sm_10", tmp_path / "cache")


@pytest.fixture
def nvcc():
    if (found := reference.find_nvcc()) is None:
        pytest.skip("no nvcc")
    return found


@pytest.mark.slow
def test_nvcc_compiles_the_gathers(nvcc, tmp_path, monkeypatch):
    """Without the sort of CUDA's own library, which takes nvcc ten times as long."""
    few = tmp_path / "sources"
    few.mkdir()
    for name in ("gather.cu", "launch.hpp"):
        shutil.copy(reference.SOURCES / name, few)
    monkeypatch.setattr(reference, "SOURCES", few)
    library = reference.compile_reference(nvcc, "sm_90", tmp_path / "made")
    made = library.stat().st_mtime_ns
    assert reference.compile_reference(nvcc, "sm_90", tmp_path / "made").stat().st_mtime_ns == made
    assert [file.name for file in (tmp_path / "made").iterdir()] == [library.name]
    with (few / "gather.cu").open("a") as source:
        source.write("static void unused() {}\n")  # another source is another library; a warning is an error
    with pytest.raises(CapabilityError, match="unused"):
        reference.compile_reference(nvcc, "sm_90", tmp_path / "made")


@pytest.mark.long
def test_nvcc_compiles_the_played_drive(nvcc, tmp_path):
    library = ctypes.CDLL(str(nvme.compile_program(nvcc, "sm_90", tmp_path)))
    assert library.nvme_begin and library.nvme_end


@pytest.mark.long
def test_nvcc_compiles_all_reference_kernels(nvcc, tmp_path):
    reference.Reference(reference.compile_reference(nvcc, "sm_90", tmp_path))
