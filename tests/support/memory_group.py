"""Run a command within a memory limit that the kernel enforces: anonymous memory, shared memory and page cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path("/sys/fs/cgroup/memory")


@dataclass
class MemoryGroup:
    """A control group of version 1."""

    path: Path

    def run(self, *argv: Any) -> subprocess.CompletedProcess[str]:
        """Run `tiering` with these arguments inside the group."""
        command = [sys.executable, "-m", "tiering.cli", *map(str, argv)]
        return subprocess.run(command, capture_output=True, text=True, preexec_fn=self._enter, timeout=300)

    def _enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def failures(self) -> int:
        """How often the limit was hit; the page cache gives way then, so it says nothing bad by itself."""
        return int((self.path / "memory.failcnt").read_text())


@contextmanager
def memory_group(limit: int) -> Iterator[MemoryGroup]:
    """A group of at most `limit` bytes; skips the test where none can be made (needs root and cgroup version 1)."""
    path = ROOT / f"tiering-test-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        if path.is_dir():
            path.rmdir()
        pytest.skip(f"cannot make a memory control group here: {error}")
    try:
        yield MemoryGroup(path)
    finally:
        path.rmdir()
