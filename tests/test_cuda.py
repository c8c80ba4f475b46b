"""What is said where a GPU cannot be used."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
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
print(json.dumps([cuda.unavailable(), cuda.status(), cuda.list_architectures()]))
"""


def toolkit_without_static_runtime(folder: Path) -> Path:
    """The toolkit of this machine's nvcc, but for the archive that it links; nvcc looks beside itself for all else."""
    said = subprocess.run(["nvcc", "--dryrun", "-x", "cu", "none.cu"], capture_output=True, text=True).stderr
    toolkit = Path(next(line for line in said.splitlines() if "_HERE_=" in line).split("=")[1].strip('"')).parent
    for part in ("bin", "lib64"):
        (folder / part).mkdir()
        for file in (toolkit / part).iterdir():
            if file.name != "libcudart_static.a":
                (folder / part / file.name).symlink_to(file)
    for name in ("nvcc", "nvcc.profile"):
        (folder / "bin" / name).unlink()
        shutil.copy(toolkit / "bin" / name, folder / "bin")
    (target := folder / "targets/x86_64-linux").mkdir(parents=True)
    for link, to in {"nvvm": toolkit / "nvvm", "include": toolkit / "include", "lib": folder / "lib64"}.items():
        (folder / link).symlink_to(to)
    for name in ("include", "lib"):
        (target / name).symlink_to(folder / name)
    return folder


@pytest.mark.slow
def test_a_toolkit_with_the_shared_runtime_alone(repository, tmp_path):
    """The module is linked with it, and finds it where it was."""
    if shutil.which("nvcc") is None or platform.machine() != "x86_64":
        pytest.skip("no nvcc here")
    (folder := tmp_path / "toolkit").mkdir()
    programs = toolkit_without_static_runtime(folder) / "bin"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    options = ["TIERING_CUDA=ON", "TIERING_BINDINGS=OFF", "TIERING_CUDA_TESTS=ON", "CMAKE_CUDA_ARCHITECTURES=90"]
    command = [
        Path(sys.executable).with_name("cmake"),
        "-S",
        repository / "ext",
        "-B",
        tmp_path / "build",
        "-G",
        "Ninja",
    ]
    made = subprocess.run(
        [*command, *(f"-D{option}" for option in options)], capture_output=True, text=True, env=environment
    )
    assert made.returncode == 0, made.stderr
    linked = re.findall(r"libcudart[\w.]*", (tmp_path / "build/build.ninja").read_text())
    assert set(linked) == {"libcudart.so"}


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
    assert reason.startswith("the driver supports CUDA up to 11.4, but the build needs 13.0: update the driver")


def test_no_gpu():
    assert "no GPU can be used: looking for a GPU" in ask(TIERING_SIMULATED_DEVICES="0")[0]


@pytest.mark.parametrize(
    ("architectures", "runs", "runs_not"),
    [
        ("75-virtual 80-real 90", "7.5 8.0 8.6 8.9 9.0 10.0 12.0", "7.0 6.1"),
        ("80-real 90-real", "8.0 8.9 9.0", "7.5 10.0 12.0"),
        ("86-real", "8.6 8.9", "8.0 9.0"),
        ("90a", "9.0", "8.0 10.0"),
        ("75-real 100-real 120", "7.5 10.0 12.0 12.1", "8.0 9.0"),
    ],
)
def test_which_gpus_a_build_serves(architectures, runs, runs_not):
    assert [gpu for gpu in f"{runs} {runs_not}".split() if cuda.serves(architectures, gpu)] == runs.split()


def test_a_gpu_that_the_build_has_no_kernels_for(monkeypatch):
    module = pytest.importorskip("tiering._cuda_simulated")
    monkeypatch.setattr(cuda, "_cuda", module, raising=False)
    monkeypatch.setattr(cuda, "_found", module)
    cuda.require_device(0)
    monkeypatch.setattr(module, "architectures", "80-real")
    message = "simulated device has compute capability 9.0, but the kernels .* are for 80-real; .*ARCHITECTURES=90 "
    with pytest.raises(CapabilityError, match=message):
        cuda.require_device(0)


@pytest.mark.parametrize(("served", "enough"), [(13_000, True), (13_020, True), (14_000, True), (12_090, False)])
def test_a_driver_serves_all_of_its_major_version(monkeypatch, served, enough):
    module = pytest.importorskip("tiering._cuda_simulated")
    monkeypatch.setattr(cuda, "_cuda", module, raising=False)
    monkeypatch.setattr(cuda, "_found", module)
    monkeypatch.setattr(module, "versions", lambda: (served, 13_010))
    expected = "" if enough else "the driver supports CUDA up to 12.9, but the build needs 13.0"
    assert cuda.unavailable().startswith(expected) and bool(cuda.unavailable()) != enough


def test_a_build_without_cuda(monkeypatch):
    monkeypatch.setattr(cuda, "_found", None)
    monkeypatch.setattr(cuda, "_missing", "No module named 'tiering._cuda'")
    with pytest.raises(CapabilityError, match="this build has no CUDA part, because nvcc or a GPU was missing"):
        cuda.require_device(0)
    assert cuda.list_architectures() == ""
    with pytest.raises(AttributeError, match="RowTable"):
        cuda.RowTable  # noqa: B018
    monkeypatch.setattr(cuda, "_missing", "libfoo.so: cannot open shared object file")
    assert cuda.unavailable() == "the CUDA part cannot be loaded: libfoo.so: cannot open shared object file"


def test_errors_of_the_runtime(monkeypatch):
    module = pytest.importorskip("tiering._cuda_simulated")
    monkeypatch.setattr(cuda, "_cuda", module, raising=False)
    monkeypatch.setattr(cuda, "_found", module)
    message = r"^tier: memory of the GPU: out of memory .*1 TiB needed; .* are free; shrink$"
    with pytest.raises(BudgetError, match=message), cuda.device_errors("tier", "shrink"):
        module.DeviceMemory(0, 1 << 40)
    message = r"^peer: opening the memory of a peer: .*\(cudaError"
    with pytest.raises(DeviceError, match=message), cuda.device_errors("peer"):
        module.PeerMemory(0, bytes(64))
    with pytest.raises(ValueError, match="handle: expected 64 bytes, found 3"):
        module.PeerMemory(0, b"abc")
