"""The bundle for a machine with a GPU and no network, made and run as far as its first call of CUDA."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

# What such a machine has, with what these need; in the versions that are here, torch's for processors among them.
THERE = ["torch", "torch-geometric", "numpy", "scipy", "pyarrow", "click", "rich", "tqdm", "xxhash", "matplotlib"]
THERE += ["typer", "pytest", "pytest-xdist", "hypothesis", "scikit-build-core", "nanobind", "cmake", "ninja", "pip"]
NOT_THERE = {"jsonschema", "jsonschema-specifications", "referencing", "rpds-py"}
FAST = ["-Ccmake.build-type=None", "-Ccmake.define.CMAKE_CXX_FLAGS=-O0", "-Ccmake.define.CMAKE_CUDA_FLAGS=-O0"]
FAST += ["-Ccmake.define.CMAKE_CUDA_ARCHITECTURES=80-real"]
OTHER_SCRIPTS = ["2-check", "3-gather", "4-sampling", "5-epochs", "6-initialized"]


def with_needs(names: list[str]) -> dict[str, metadata.Distribution]:
    """Distributions by name, those that they need with them."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for line in found[name].requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return found


def machine_without(folder: Path) -> Path:
    """An environment whose packages are those of `THERE` alone; its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    there = with_needs(THERE)
    assert not NOT_THERE & set(there)
    for distribution in there.values():
        for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(distribution.locate_file(name))
    return folder / "bin"


@pytest.fixture
def bundle(repository, tmp_path):
    """As `make gpu-bundle` makes it."""
    folder = tmp_path / "gpu-bundle"
    made = subprocess.run([repository / "benchmarks/gpu/bundle/make", folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(f"{folder}: ") and made.stdout.endswith(" MiB\n")
    return folder


@pytest.fixture
def run(tmp_path):
    """Runs a program of the bundle elsewhere, with no network where this system lets a process do without."""
    bin_folder = machine_without(tmp_path / "machine")
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "TIERING_BUILD": " ".join(FAST)}
    for name in ("OUT", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    environment["PKG_CONFIG_LIBDIR"] = "/nowhere"  # this system's liburing is not seen
    if shutil.which("ccache"):  # what was compiled before need not be again
        environment |= {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("CXX", "CUDA")}
        environment |= {"CCACHE_BASEDIR": str(tmp_path), "CCACHE_NOHASHDIR": "1"}
    environment["CUDA_TESTS"] = "OFF"  # they would come after the first call of CUDA
    alone = ["unshare", "-n"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []

    def run(script: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*alone, script], capture_output=True, text=True, env=environment | more, cwd="/")

    return run


def results(bundle: Path, name: str) -> dict[str, str]:
    """Results by step, as JSON says them."""
    return {step["step"]: step["result"] for step in json.loads((bundle / f"out/{name}.json").read_text())["steps"]}


@pytest.mark.long
@pytest.mark.parametrize("cuda", ["OFF", "ON"])
def test_up_to_the_first_call_of_cuda(bundle, run, cuda):
    """Really built, without optimization; with CUDA, whose kernels `make cuda` compiles in every run, it takes twice as
    long.
    """
    if cuda == "ON" and shutil.which("nvcc") is None:
        pytest.skip("no nvcc here")
    too_early = run(bundle / "2-check.sh")
    assert too_early.returncode == 2 and f"run {bundle}/1-build.sh first" in too_early.stderr

    first = run(bundle / "1-build.sh", CUDA=cuda)
    log = (bundle / "out/1-build.log").read_text()
    found = results(bundle, "1-build")
    assert found.pop("first call of CUDA") == "failed (1)", log
    assert list(found) == [
        *("facts", "environment", "its packages", "build", "what the build found"),
        *("tests found", "benchmarks found"),
    ]
    assert set(found.values()) == {"ok"}, log
    assert first.returncode == 1 and first.stdout.splitlines()[-2].startswith("first call of CUDA ")
    assert any(said in log for said in ("no NVIDIA driver", "no CUDA part"))
    if (bundle / "liburing").is_dir():
        assert f"liburing: {bundle}/liburing/lib/liburing.a" in first.stdout
    facts = json.loads((bundle / "out/facts.json").read_text())
    assert facts["package torch"] == metadata.version("torch")

    for name in OTHER_SCRIPTS:
        done = run(bundle / f"{name}.sh")
        assert done.returncode == 1, done.stderr
        assert results(bundle, name) == {"first call of CUDA": "failed (1)"}


def test_a_folder_of_something_else_is_left_alone(repository, tmp_path):
    (tmp_path / "mine").write_text("mine")
    made = subprocess.run([repository / "benchmarks/gpu/bundle/make", tmp_path], capture_output=True, text=True)
    assert made.returncode == 1 and "expected a bundle or nothing, found something else" in made.stderr
    assert (tmp_path / "mine").read_text() == "mine"


def test_steps(repository, tmp_path):
    """A step that fails or hangs does not keep those after it from running; the table says which."""
    bundle = tmp_path / "bundle"
    shutil.copytree(repository / "benchmarks/gpu/bundle", bundle)
    (bundle / "source").mkdir()
    (bundle / "source.version").write_text("v1\n")
    script = bundle / "9-try.sh"
    script.write_text(
        """. "$(dirname "$0")/common.sh"
step fails 5 sh -c 'echo first; echo no such thing; exit 3'
step hangs 1 sleep 30
step "has no device" 5 sh -c 'exit 77'
shown figures 5 sh -c 'echo rows 12; echo slow >&2'
limit=0
step "too late" 5 true
finish
"""
    )
    done = subprocess.run(["bash", script], capture_output=True, text=True, cwd="/")
    assert done.returncode == 1, done.stderr
    table = json.loads((bundle / "out/9-try.json").read_text())
    assert table["script"] == "9-try" and table["sources"] == "v1"
    results = {
        "fails": "failed (3)",
        "hangs": "time is up",
        "has no device": "skipped",
        "figures": "ok",
        "too late": "not run",
    }
    assert {step["step"]: step["result"] for step in table["steps"]} == results
    assert table["steps"][0]["last line"] == "no such thing"
    lines = done.stdout.splitlines()
    assert lines.index("no such thing") < lines.index("rows 12") < len(lines) - 6
    assert lines[-6].split()[:2] == ["fails", "failed"] and lines[-7].startswith("step ")
    assert "slow" in (bundle / "out/9-try.log").read_text()
