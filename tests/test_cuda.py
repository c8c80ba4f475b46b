"""What is said where a GPU cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiering import cuda
from tiering.errors import BudgetError, CapabilityError, DeviceError

SUPPORT = str(Path(__file__).parent / "support")
PROGRAM = """
import json, sys
import pytest
sys.path.insert(0, sys.argv[1])
from simulated_gpu import install
from tiering import cuda
install(pytest.MonkeyPatch())
print(json.dumps([cuda.unavailable(), cuda.status(), cuda.architectures()]))
"""


def ask(**environment):
    pytest.importorskip("tiering._cuda_simulated")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, SUPPORT], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_gpu_is_described():
    assert ask() == ["", "simulated device (1 GiB, compute capability 9.0)", "simulated"]


def test_a_driver_that_is_too_old():
    reason, status, _ = ask(TIERING_SIMULATED_DRIVER="old")
    assert reason == status
    assert reason.startswith("the driver serves CUDA up to 11.4, and this build needs 13.0: update the driver")


def test_no_gpu():
    assert "no GPU can be used: looking for a GPU" in ask(TIERING_SIMULATED_DEVICES="0")[0]


def test_a_build_without_cuda(monkeypatch):
    monkeypatch.setattr(cuda, "_found", None)
    monkeypatch.setattr(cuda, "_missing", "No module named 'tiering._cuda'")
    with pytest.raises(CapabilityError, match="this build has no CUDA part, because no nvcc or no GPU was found"):
        cuda.require_device(0)
    assert cuda.architectures() == ""
    with pytest.raises(AttributeError, match="RowTable"):
        cuda.RowTable  # noqa: B018
    monkeypatch.setattr(cuda, "_missing", "libfoo.so: cannot open shared object file")
    assert cuda.unavailable() == "the CUDA part cannot be loaded: libfoo.so: cannot open shared object file"


def test_errors_of_the_runtime(monkeypatch):
    module = pytest.importorskip("tiering._cuda_simulated")
    monkeypatch.setattr(cuda, "_cuda", module, raising=False)
    monkeypatch.setattr(cuda, "_found", module)
    message = r"^tier: memory of the GPU: out of memory .*1 TiB wanted; .* are free; shrink$"
    with pytest.raises(BudgetError, match=message), cuda.device_errors("tier", "shrink"):
        module.DeviceMemory(0, 1 << 40)
    message = r"^peer: opening the memory of a peer: .*\(cudaError"
    with pytest.raises(DeviceError, match=message), cuda.device_errors("peer"):
        module.PeerMemory(0, bytes(64))
    with pytest.raises(ValueError, match="handle: expected 64 bytes, found 3"):
        module.PeerMemory(0, b"abc")
