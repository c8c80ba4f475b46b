"""Memory groups of both versions of control groups; of version 2 as files, where the system has none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.memory_group import memory_group
from tiering.errors import CapabilityError


def test_the_kernel_holds_a_process_to_its_limit():
    code = "data = bytearray(200 << 20)"
    try:
        with memory_group(64 << 20) as group:
            done = subprocess.run([sys.executable, "-c", code], preexec_fn=group.enter, check=False)
            assert done.returncode == -9 and group.failures() > 0
    except CapabilityError as error:
        pytest.skip(str(error))
    assert not group.path.exists()


@pytest.fixture
def unified(tmp_path, monkeypatch):
    """Files as version 2 has them: the process is in ``/a/b``, and only ``/`` gives memory to its children."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)  # of real groups the files go with the directory
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text("memory\n")
        (folder / "cgroup.subtree_control").write_text("memory pids\n" if folder == tmp_path else "")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    return tmp_path, own


def test_version_2_takes_the_nearest_group_that_may_have_children(unified, monkeypatch):
    mount, own = unified
    write = Path.write_text

    def busy(path, text):
        if path.name == "cgroup.subtree_control":
            raise OSError(16, "Device or resource busy")  # it has processes
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", busy)
    with memory_group(1 << 20, mount, own) as group:
        assert group.unified and group.path.parent == mount
        assert (group.path / "memory.max").read_text() == "1048576"
        assert (group.path / "memory.swap.max").read_text() == "0"
        (group.path / "memory.events").write_text("low 0\nmax 3\noom 1\n")
        assert group.failures() == 3
    assert not group.path.exists()


def test_version_2_asks_for_memory_where_it_may(unified):
    mount, own = unified
    with memory_group(1 << 20, mount, own) as group:
        assert group.path.parent == mount / "a" / "b"
        assert (group.path.parent / "cgroup.subtree_control").read_text() == "+memory"


def test_why_there_is_none_is_said(tmp_path):
    with pytest.raises(CapabilityError, match="no hierarchy"), memory_group(1 << 20, tmp_path, tmp_path / "own"):
        pass
