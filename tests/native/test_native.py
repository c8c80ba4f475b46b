"""The door to the compiled core."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import tiering
from tiering import native


def test_build_info_names_what_the_build_found():
    assert {"compiler", "build_type", "liburing", "nvcc"} <= set(native.build_info())


def test_a_missing_build_says_how_to_build(tmp_path):
    """A copy of the sources without the compiled module, imported in an interpreter without site packages."""
    package = tmp_path / "tiering"
    package.mkdir()
    sources = Path(native.__file__).parent
    for name in ("native.py", "errors.py"):
        (package / name).write_text((sources / name).read_text())
    (package / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tiering.native"
    result = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "CapabilityError" in result.stderr
    assert "pip install --no-build-isolation -e ." in result.stderr


def test_every_exported_name_has_a_stub():
    stub = (Path(tiering.__file__).parent / "_native.pyi").read_text()
    declared = set(re.findall(r"^(?:def |class |)(\w+)(?=[(:])", stub, flags=re.MULTILINE))
    assert {name for name in dir(native) if not name.startswith("_")} - {"CapabilityError", "annotations"} <= declared
