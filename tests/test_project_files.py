"""Files around the package: how `make` chooses torch, hooks and workflows that call what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
INDEX = "http://index.example/cpu"
PYTHON = """#!/bin/sh
case "$1" in -c) {ask} ;; esac
echo "$*" >>{log}
"""


def nvidia_driver() -> bool:
    return bool(shutil.which("nvidia-smi") or [*Path("/dev").glob("nvidia*")] or Path("/proc/driver/nvidia").exists())


def outside_make() -> dict[str, str]:
    """The environment without what a `make` around the tests says to those inside it."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def install_torch(repository: Path, folder: Path, ask: str, **variables: str) -> tuple[str, list[str]]:
    """Return what `make` prints as it installs torch, and the arguments after `install` of each pip that it runs.

    `ask` is the shell command by which a stand-in for Python answers whether the index is there.
    """
    log = folder / "log"
    (folder / "bin").mkdir()
    (folder / ".base").touch()
    program = folder / "bin" / "python"
    program.write_text(PYTHON.format(ask=ask, log=log))
    program.chmod(0o755)
    settings = {"VENV": str(folder), "TORCH": "torch==9", "TORCH_INDEX": INDEX, **variables}
    command = ["make", "-s", f"{folder}/.torch", *(f"{key}={value}" for key, value in settings.items())]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True, env=outside_make())
    return done.stdout, [line.partition(" install ")[2] for line in log.read_text().splitlines()]


@pytest.mark.skipif(nvidia_driver(), reason="there is an NVIDIA driver")
def test_machines_without_a_driver_take_the_cpu_build(repository: Path, tmp_path: Path) -> None:
    said, runs = install_torch(repository, tmp_path, "exit 0")
    assert said == f"installing torch==9 from {INDEX}, as there is no NVIDIA driver: about 0.2 GB\n"
    assert runs == [f"--no-compile --no-deps --index-url {INDEX} torch==9", "--no-compile torch==9"]


@pytest.mark.skipif(nvidia_driver(), reason="there is an NVIDIA driver")
@pytest.mark.parametrize("ask", ["exit 1", "exec sleep 60"])
def test_an_index_that_does_not_answer_costs_five_seconds(repository: Path, tmp_path: Path, ask: str) -> None:
    begin = time.monotonic()
    said, runs = install_torch(repository, tmp_path, ask)
    assert time.monotonic() - begin < 30
    assert f"{INDEX} does not answer: up to 3 GB" in said
    assert runs == ["--no-compile torch==9"]


@pytest.mark.skipif(nvidia_driver(), reason="there is an NVIDIA driver")
def test_an_empty_index_is_not_asked(repository: Path, tmp_path: Path) -> None:
    said, runs = install_torch(repository, tmp_path, "exit 0", TORCH_INDEX="")
    assert said == "installing torch==9 from pip's index\n"
    assert runs == ["--no-compile torch==9"]


def test_machines_with_a_driver_take_the_build_for_gpus(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "driver" / "nvidia-smi"
    driver.parent.mkdir()
    driver.touch(0o755)
    monkeypatch.setenv("PATH", str(driver.parent), prepend=":")
    said, runs = install_torch(repository, tmp_path, "exit 0")
    assert "3 GB with its libraries for GPUs" in said
    assert runs == ["--no-compile torch==9"]


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_hooks_are_the_gates(repository: Path) -> None:
    command = ["make", "-n", "-o", ".venv/.dev", "gates", "CPP="]
    gates = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True, env=outside_make())
    hooks = read_yaml(repository / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    entries = [hook["entry"].replace(" --force-exclude", "") for hook in hooks]
    assert entries == [re.sub(r" \.$", "", line.strip()) for line in gates.stdout.splitlines()]


def test_workflows_call_what_is_there(repository: Path) -> None:
    workflows = {path.name: read_yaml(path) for path in (repository / ".github" / "workflows").glob("*.yml")}
    assert sorted(workflows) == ["ci.yml", "publish.yml", "wheels.yml"]
    steps = [step for file in workflows.values() for job in file["jobs"].values() for step in job.get("steps", ())]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert ".ci/run\n" in commands
    called = set(re.findall(r"\.ci/[\w.]+", commands + (repository / "pyproject.toml").read_text()))
    assert called == {".ci/run", ".ci/chain.py", ".ci/liburing"}
    assert all((repository / path).is_file() for path in called)
    assert (repository / workflows["publish.yml"]["jobs"]["wheels"]["uses"]).is_file()


def test_pythons_of_wheels_are_those_of_the_classifiers(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text()
    built = re.search(r'^build = "cp3\{([\d,]+)\}', text, re.MULTILINE)
    assert built is not None
    assert built[1].split(",") == re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)
    tested = json.dumps(read_yaml(repository / ".github" / "workflows" / "ci.yml"))
    assert sorted(set(re.findall(r'"3\.(\d+)"', tested))) == built[1].split(",")
