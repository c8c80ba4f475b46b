"""The digest of a build: of what is installed, not of where it lies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiering
from tiering.run.ray import _program
from tiering.version import __version__, build

ASK = "import tiering.version; print(tiering.version.__file__); print(tiering.version.build())"


def build_of(folder: Path) -> str:
    """The build that a copy of the package says, with the compiled core of this one."""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {ASK}"]
    place, said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert folder in Path(place).parents
    return said


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the sources, as a wheel lays them: with the command line inside."""
    root = Path(tiering.__file__).parent
    shutil.copytree(root, tmp_path / "tiering", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tiering" / "cli").mkdir(exist_ok=True)
    (tmp_path / "tiering" / "cli" / "main.py").touch()
    core = find_spec("tiering._native")
    assert core is not None and core.origin is not None
    shutil.copy(core.origin, tmp_path / "tiering")
    return tmp_path


def test_equal_contents_are_one_build_wherever_they_lie(copied: Path) -> None:
    assert build().startswith(f"{__version__} (build ")
    assert build_of(copied) == build()


@pytest.mark.parametrize("file", ["run/step.py", "_native"])
def test_other_contents_are_another_build(copied: Path, file: str) -> None:
    path = next((copied / "tiering").glob(f"{file}*"))
    path.write_bytes(path.read_bytes() + b"\n")
    assert build_of(copied) != build()


@pytest.mark.parametrize(
    ("expected", "found"), [(f"{__version__} (build of another node)", build()), ("0.0.1 (build 1)", __version__)]
)
def test_a_worker_of_another_build_runs_nothing(monkeypatch: pytest.MonkeyPatch, expected: str, found: str) -> None:
    here = SimpleNamespace(get_node_id=lambda: "node-1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: here))
    _, said = _program()(b"", expected)
    assert said == f"expected tiering {expected}, found {found}; install the same build on all machines"
