"""The door to the compiled core."""

from __future__ import annotations

import re
from pathlib import Path

import tiering
from tiering import native


def test_build_info_names_what_the_build_found():
    assert {"compiler", "build_type", "liburing", "nvcc"} <= set(native.build_info())


def test_every_exported_name_has_a_stub():
    stub = (Path(tiering.__file__).parent / "_native.pyi").read_text()
    declared = set(re.findall(r"^(?:def |class |)(\w+)(?=[(:])", stub, flags=re.MULTILINE))
    assert {name for name in dir(native) if not name.startswith("_")} - {"CapabilityError", "annotations"} <= declared
